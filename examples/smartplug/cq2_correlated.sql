-- CQ2 as one would say it: the same query as cq2.sql with a correlated subquery.
SELECT p.house_id, p.household_id, p.plug_id, COUNT(*) AS high_loads
FROM plugs [RANGE 5 MINUTES SLIDE 1 SECOND] AS p
WHERE p.property = 1
  AND p.value > (
    SELECT AVG(q.value)
    FROM plugs [RANGE 5 MINUTES SLIDE 1 SECOND] AS q
    WHERE q.property = 1
      AND q.house_id = p.house_id AND q.household_id = p.household_id AND q.plug_id = p.plug_id
  )
GROUP BY p.house_id, p.household_id, p.plug_id
