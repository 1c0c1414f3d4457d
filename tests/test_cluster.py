"""The same query on a cluster: executors write into PostgreSQL side by side, and one of them may die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from adbc_driver_postgresql import dbapi

from migration.deployment import drop_state
from tests.cluster import HOST, Cluster, standalone_cluster
from tests.command import penstock_run, rows_of
from tests.crash import Harness, compare
from tests.crash_points import LAST, WORKLOADS
from tests.postgres_server import postgres_url

pytestmark = pytest.mark.slow
SETTINGS = (
    f"spark.driver.host={HOST}",
    f"spark.driver.bindAddress={HOST}",
    "spark.executor.memory=512m",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.files.maxPartitionBytes=2k",  # the recording is small: still more than one partition a batch
    "spark.sql.files.openCostInBytes=0",
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path / "cluster") as found:
        yield found


@pytest.mark.parametrize("killed", [False, True], ids=["all alive", "a worker dies"])
def test_the_rows_are_the_oracles(killed: bool, cluster: Cluster, tmp_path: Path) -> None:
    harness, workload, url = Harness(tmp_path, "postgres"), WORKLOADS["db"], postgres_url()
    table, place = f"out_of_cluster_{killed}".lower(), tmp_path / "run"
    arguments = [
        *("--db", "postgres", "--url", url, "--sink", f"postgres:{url}#{table}", *workload.arguments),
        *(word for setting in SETTINGS for word in ("--spark", setting)),
    ]
    commits = place / "state" / "checkpoint" / "commits"
    try:
        with penstock_run(
            place,
            workload.sql,
            harness.directory / "catalog.sql",
            *arguments,
            master=cluster.master,
            environment=cluster.environment,
        ) as command:
            if killed:
                command.until((commits / "0").exists)
                cluster.kill_worker(0)
                assert not (commits / str(LAST)).exists(), "it was over before the worker died"
            assert command.ended() == 0, command.said
        assert (commits / str(LAST)).exists()
        assert cluster.python_processes > 0, "no executor wrote"
        assert compare(harness.expected("db"), rows_of(url, table)) == (0, 0, 0)
        drop_state(place / "state", url)
    finally:
        with dbapi.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
            connection.commit()
