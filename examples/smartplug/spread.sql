-- How much the load of each plug varies over five minutes: an aggregate that no database makes from panes.
SELECT p.house_id, p.household_id, p.plug_id, STDDEV(p.value) AS spread
FROM plugs [RANGE 5 MINUTES SLIDE 1 SECOND] AS p
WHERE p.property = 1
GROUP BY p.house_id, p.household_id, p.plug_id
