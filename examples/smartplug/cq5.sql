-- CQ5: for each household, the highest total load of a single smart plug within the last 5 minutes.
SELECT t.house_id, t.household_id, MAX(t.total_load) AS max_total_load
FROM (
    SELECT p.house_id, p.household_id, p.plug_id, SUM(p.value) AS total_load
    FROM plugs [RANGE 5 MINUTES SLIDE 1 SECOND] AS p
    WHERE p.property = 1
    GROUP BY p.house_id, p.household_id, p.plug_id
) AS t
GROUP BY t.house_id, t.household_id
