-- CQ2: for each smart plug, how many load values of the last 5 minutes are above their average.
SELECT p.house_id, p.household_id, p.plug_id, COUNT(*) AS high_loads
FROM plugs [RANGE 5 MINUTES SLIDE 1 SECOND] AS p
JOIN (
    SELECT q.house_id, q.household_id, q.plug_id, AVG(q.value) AS avg_load
    FROM plugs [RANGE 5 MINUTES SLIDE 1 SECOND] AS q
    WHERE q.property = 1
    GROUP BY q.house_id, q.household_id, q.plug_id
) AS m
  ON p.house_id = m.house_id AND p.household_id = m.household_id AND p.plug_id = m.plug_id
WHERE p.property = 1 AND p.value > m.avg_load
GROUP BY p.house_id, p.household_id, p.plug_id
