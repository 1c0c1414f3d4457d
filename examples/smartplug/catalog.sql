-- The smart-plug stream: every plug reports its work (property 0, kWh since its start) and its load (property 1, W)
-- once a second; 40 houses, about 2,125 plugs. A plug is told apart by house, household and plug id together.

CREATE STREAM plugs (
    id            BIGINT NOT NULL,
    ts            TIMESTAMP NOT NULL,
    value         DOUBLE,
    property      INT NOT NULL,
    plug_id       INT NOT NULL,
    household_id  INT NOT NULL,
    house_id      INT NOT NULL,
    WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH (connector = 'smartplug', rate = 2000);

CREATE STATISTICS ON plugs (property) WITH (distinct = 2);
CREATE STATISTICS ON plugs (house_id) WITH (distinct = 40);
CREATE STATISTICS ON plugs (house_id, household_id) WITH (distinct = 425);
CREATE STATISTICS ON plugs (house_id, household_id, plug_id) WITH (distinct = 2125);
CREATE STATISTICS ON plugs (value) WITH (min = 0, max = 4000);
CREATE STATISTICS ON plugs WHERE property = 1 WITH (selectivity = 0.5);
-- Beside the largest load of its own plug in five minutes (CQ1).
CREATE STATISTICS ON plugs WHERE value > 0.9 * MAX(value) WITH (selectivity = 0.21);
