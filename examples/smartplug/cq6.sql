-- CQ6: for each smart plug, the average loads of the last 1, 3 and 5 minutes beside each other.
WITH a AS (
    SELECT p.house_id, p.household_id, p.plug_id, AVG(p.value) AS avg_load
    FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND] AS p
    WHERE p.property = 1
    GROUP BY p.house_id, p.household_id, p.plug_id
), b AS (
    SELECT q.house_id, q.household_id, q.plug_id, AVG(q.value) AS avg_load
    FROM plugs [RANGE 3 MINUTES SLIDE 1 SECOND] AS q
    WHERE q.property = 1
    GROUP BY q.house_id, q.household_id, q.plug_id
), c AS (
    SELECT r.house_id, r.household_id, r.plug_id, AVG(r.value) AS avg_load
    FROM plugs [RANGE 5 MINUTES SLIDE 1 SECOND] AS r
    WHERE r.property = 1
    GROUP BY r.house_id, r.household_id, r.plug_id
)
SELECT a.house_id, a.household_id, a.plug_id,
       a.avg_load - b.avg_load AS change_1_to_3,
       b.avg_load - c.avg_load AS change_3_to_5
FROM a
JOIN b ON a.house_id = b.house_id AND a.household_id = b.household_id AND a.plug_id = b.plug_id
JOIN c ON b.house_id = c.house_id AND b.household_id = c.household_id AND b.plug_id = c.plug_id
