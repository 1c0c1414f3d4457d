"""What the fuzz bench mutates: queries in every spelling that is accepted, of every kind that is refused, catalogs."""

from __future__ import annotations

from service.bench.nway import nway_query, smartplug

# Beside the smart plugs: a second stream, a stored table, a stream without figures.
_MORE_RELATIONS = """
CREATE STREAM weather (
    at TIMESTAMP NOT NULL, house_id INT NOT NULL, temperature DOUBLE, "Sky" VARCHAR(20),
    WATERMARK FOR at AS at - INTERVAL '500' MILLISECOND
) WITH (connector = 'kafka', topic = 'weather', rate = 40);
CREATE TABLE houses (house_id INT NOT NULL, name TEXT, area DECIMAL(10, 2), PRIMARY KEY (house_id))
    WITH (connector = 'postgres', rows = 40);
CREATE STREAM alarms (ts TIMESTAMP, house_id INT, level INT, WATERMARK FOR ts AS ts);
CREATE STATISTICS ON weather (temperature) WITH (min = -30, max = 45, nulls = 0.01);
CREATE STATISTICS ON plugs, weather WHERE plugs.house_id = weather.house_id WITH (selectivity = 0.025);
"""

_ACCEPTED = (
    "SELECT avg(value) AS mean FROM plugs [RANGE 5 MINUTES SLIDE 1 SECOND]",
    "SELECT plug_id, count(*) AS n FROM plugs [ROWS 1000 SLIDE 10] GROUP BY plug_id",
    "SELECT * FROM plugs [RANGE 10 SECONDS] WHERE value > 3000 AND property = 1",
    "SELECT ISTREAM p.id, p.value * 2 AS twice FROM plugs [RANGE 1 MINUTE SLIDE 10 SECONDS] AS p",
    "SELECT RSTREAM p.plug_id FROM plugs [RANGE 1 HOUR SLIDE 1 MINUTE] p WHERE p.value BETWEEN 1 AND 2.5e3",
    "SELECT DSTREAM id FROM plugs [ROWS 5 SLIDE 1] WHERE property IN (0, 1, 2)",
    "SELECT house_id, max(value) AS top FROM HOP(TABLE plugs, DESCRIPTOR(ts), INTERVAL '1' SECOND, "
    "INTERVAL '5' MINUTE) GROUP BY window_start, window_end, house_id",
    "SELECT window_end, house_id, sum(value) AS s FROM HOP(plugs, ts, INTERVAL '2' SECOND, INTERVAL '1' MINUTE) "
    "GROUP BY window_start, window_end, house_id HAVING sum(value) > 10",
    "SELECT house_id, min(value) AS low FROM TABLE(TUMBLE(TABLE plugs, DESCRIPTOR(ts), INTERVAL '5' MINUTE)) "
    "GROUP BY window_start, window_end, house_id",
    "SELECT window.start, plug_id, avg(value) AS mean FROM plugs GROUP BY window(ts, '5 minutes', '1 second'), plug_id",
    "SELECT plug_id, stddev(value) AS spread FROM plugs GROUP BY window(ts, '10 minutes'), plug_id",
    "WITH loads AS (SELECT plug_id, value FROM plugs [RANGE 1 MINUTE SLIDE 5 SECONDS] WHERE property = 1) "
    "SELECT plug_id, sum(value) / count(*) AS mean FROM loads GROUP BY plug_id HAVING count(*) >= 2",
    "SELECT h.name, count(DISTINCT p.plug_id) AS plugs FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND] AS p "
    "JOIN houses AS h ON p.house_id = h.house_id GROUP BY h.name",
    "SELECT p.house_id, w.temperature FROM plugs [RANGE 1 MINUTE] p, weather [RANGE 1 HOUR] w "
    "WHERE p.house_id = w.house_id AND w.temperature < -5",
    'SELECT w."Sky", avg(p.value) AS mean FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND] AS p LEFT JOIN weather '
    '[RANGE 1 HOUR SLIDE 1 SECOND] AS w USING (house_id) GROUP BY w."Sky"',
    "SELECT CASE WHEN value > 100 THEN 'high' WHEN value IS NULL THEN NULL ELSE 'low' END AS class, count(*) AS n "
    "FROM plugs [RANGE 30 SECONDS SLIDE 500 MILLISECONDS] GROUP BY 1",
    "SELECT DISTINCT house_id FROM plugs [RANGE 5 SECONDS SLIDE 1 SECOND]",
    "SELECT count(*) AS pairs FROM plugs [ROWS 10 SLIDE 1] a, weather [ROWS 10 SLIDE 1] b, alarms [ROWS 2 SLIDE 1] c",
    "SELECT p.id FROM plugs [RANGE 1 SECOND] p WHERE p.house_id IN (SELECT h.house_id FROM houses h WHERE h.area > 5)",
    "SELECT p.id FROM plugs [RANGE 1 SECOND] p WHERE EXISTS (SELECT 1 FROM houses h WHERE h.house_id = p.house_id)",
    "SELECT p.house_id, count(*) FILTER (WHERE p.value > 5) AS big FROM plugs [RANGE 9 SECONDS SLIDE 3 SECONDS] p "
    "GROUP BY p.house_id",
    "SELECT house_id, approx_distinct(plug_id) AS d, median(value) AS m FROM plugs [RANGE 1 DAY SLIDE 1 HOUR] "
    "GROUP BY house_id",
    "SELECT coalesce(value, 0) AS v, cast(id AS VARCHAR) || 'x' AS k FROM plugs [RANGE 1 SECOND] "
    "WHERE NOT (property = 0 OR value <> value)",
    "SELECT a.house_id, w.t, l.n FROM (SELECT house_id, avg(value) AS v FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND] "
    "GROUP BY house_id) a JOIN (SELECT house_id, max(temperature) AS t FROM weather [RANGE 1 HOUR SLIDE 1 MINUTE] "
    "GROUP BY house_id) w ON a.house_id = w.house_id JOIN (SELECT house_id, count(*) AS n FROM alarms "
    "[RANGE 1 DAY SLIDE 1 MINUTE] GROUP BY house_id) l ON l.house_id = w.house_id WHERE a.v > w.t",
    "/* a comment */ SELECT extract(hour FROM ts) AS h, -value AS v -- and one more\nFROM plugs [RANGE 2 HOURS];",
)

_REFUSED = (
    "SELECT avg(value) FROM plugs",
    "SELECT avg(value) AS a FROM plugs [RANGE 5 MINUTES] GROUP BY house_id",
    "SELECT p.nothing FROM plugs [RANGE 1 SECOND] p",
    "SELECT * FROM nowhere [RANGE 1 SECOND]",
    "SELECT house_id FROM plugs [RANGE 1 SECOND] p JOIN weather [RANGE 1 SECOND] w ON p.house_id = w.house_id",
    "SELECT id FROM plugs [RANGE 1 SECOND] ORDER BY id LIMIT 3",
    "SELECT id FROM plugs [RANGE 1 SECOND] UNION ALL SELECT house_id FROM houses",
    "SELECT row_number() OVER (PARTITION BY house_id ORDER BY ts) AS r FROM plugs [RANGE 1 SECOND]",
    "SELECT a.id FROM plugs [RANGE 1 SECOND] a FULL OUTER JOIN weather [RANGE 1 SECOND] b ON a.house_id = b.house_id",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
    "SELECT house_id, sum(value) AS s FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY ROLLUP (house_id)",
    "SELECT frobnicate(value) AS f FROM plugs [RANGE 1 SECOND]",
    "SELECT id FROM plugs [SESSION 5 MINUTES]",
    "SELECT house_id FROM SESSION(TABLE plugs, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
    "INSERT INTO houses SELECT house_id, 'x', 1 FROM plugs [RANGE 1 SECOND]",
    "SELECT u.x FROM plugs [RANGE 1 SECOND] p CROSS JOIN LATERAL (SELECT p.value AS x) u",
    "SELECT 1",
    "DROP TABLE houses; SELECT id FROM plugs [RANGE 1 SECOND]",
    "SELECT sum(avg(value)) AS s FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND]",
    "SELECT * FROM plugs [RANGE 1 SECOND] TABLESAMPLE (10 PERCENT) PIVOT (sum(value) FOR property IN (0, 1))",
    "SELECT {'a': [1, 2]}['a'][1] AS x, value::STRUCT<a INT> AS y FROM plugs [RANGE 1 SECOND]",
)


def good_catalog() -> str:
    return smartplug("catalog.sql") + _MORE_RELATIONS


def queries() -> tuple[str, ...]:
    examples = (*(f"cq{i}.sql" for i in range(1, 7)), "cq1_correlated.sql", "cq2_correlated.sql")
    return (*map(smartplug, examples), nway_query(4), *_ACCEPTED, *_REFUSED)
