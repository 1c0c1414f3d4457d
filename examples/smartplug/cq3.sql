-- CQ3: for each smart plug, the highest and the average load of the last 5 minutes against those of the last minute.
SELECT a.house_id, a.household_id, a.plug_id,
       a.max_load - b.max_load AS max_change,
       a.avg_load - b.avg_load AS avg_change
FROM (
    SELECT p.house_id, p.household_id, p.plug_id, MAX(p.value) AS max_load, AVG(p.value) AS avg_load
    FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND] AS p
    WHERE p.property = 1
    GROUP BY p.house_id, p.household_id, p.plug_id
) AS a
JOIN (
    SELECT q.house_id, q.household_id, q.plug_id, MAX(q.value) AS max_load, AVG(q.value) AS avg_load
    FROM plugs [RANGE 5 MINUTES SLIDE 1 SECOND] AS q
    WHERE q.property = 1
    GROUP BY q.house_id, q.household_id, q.plug_id
) AS b
  USING (house_id, household_id, plug_id)
