"""A Spark standalone cluster on loopback, from the pyspark package: a master and workers that can be killed.

The Python of the workers cannot import Penstock, as on machines that have only Spark, pyarrow and the database's
driver: a `sitecustomize` refuses its packages, and notes every process that it was loaded in.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

HOST = "127.0.0.1"
PATIENCE = 120.0  # seconds for a daemon to be there
_HOME = Path(pyspark.__file__).parent
_DAEMON = "org.apache.spark.deploy"
_SITE = """
import os
import sys

OURS = {"connectors", "migration", "optimizer", "costmodel", "service", "penstock", "tests"}


class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OURS:
            raise ImportError(f"{name} is not on the workers")


sys.meta_path.insert(0, Refusing())
with open(os.path.join(os.path.dirname(__file__), "processes"), "a") as file:
    file.write(f"{os.getpid()}\\n")
"""


@dataclass(frozen=True)
class Cluster:
    master: str
    workers: tuple[subprocess.Popen[bytes], ...]
    environment: Mapping[str, str]  # for the driver: which Python the workers run
    _web: str
    _processes: Path

    def kill_worker(self, number: int) -> None:
        """As when its machine dies: the worker and the executor that it started, with one blow."""
        _kill(self.workers[number])

    @property
    def alive(self) -> int:
        """Workers that the master counts on."""
        try:
            with urllib.request.urlopen(f"{self._web}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return 0

    @property
    def python_processes(self) -> int:
        """How many Python processes were started on workers."""
        return len(self._processes.read_text().split()) if self._processes.exists() else 0


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    """Each worker has one core and room for one executor of 512 MB."""
    directory.mkdir(parents=True, exist_ok=True)
    port, web = _free_port(), _free_port()
    master = f"spark://{HOST}:{port}"
    site = directory / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_SITE)
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []
    try:
        ports = ("--port", str(port), "--webui-port", str(web))
        started.append(_daemon("master.Master", ports, directory / "master.log"))
        for number in range(workers):
            home = directory / f"worker{number}"
            words = ("--port", "0", "--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(home), master)
            started.append(_daemon("worker.Worker", words, directory / f"worker{number}.log"))
        environment = {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": HOST}
        cluster = Cluster(master, tuple(started[1:]), environment, f"http://{HOST}:{web}", site / "processes")
        deadline = time.monotonic() + PATIENCE
        while cluster.alive < workers:
            assert all(p.poll() is None for p in started), f"a daemon ended; its log is in {directory}"
            assert time.monotonic() < deadline, f"{cluster.alive} of {workers} workers; logs are in {directory}"
            time.sleep(0.2)
        yield cluster
    finally:
        for process in reversed(started):
            _kill(process)


def _daemon(name: str, words: tuple[str, ...], log: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    environment.pop("PYTHONPATH", None)
    command = [str(_HOME / "bin" / "spark-class"), f"{_DAEMON}.{name}", "--host", HOST, *words]
    with log.open("wb") as output:
        # In a group of its own, with whatever it starts; not in this directory, from which Python would import.
        return subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, cwd=log.parent, start_new_session=True
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])
