"""The REST API as a process: a socket first, so that its address is known and a taken port is an error with words."""

from __future__ import annotations

import copy
import gc
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from costmodel.profile import CalibrationProfile
from optimizer.catalog import Catalog
from optimizer.engines import DATABASES
from optimizer.errors import PenstockError
from optimizer.explain.document import document
from optimizer.explain.explanation import explain_plan
from optimizer.optimize import Options, optimize
from service.api import create_app

ANNOUNCEMENT = "penstock answers at "
STOP_SECONDS = 10


def serve(
    host: str, port: int, catalogs: Mapping[str, Catalog], profile: tuple[CalibrationProfile, str, str | None]
) -> None:
    """Answers until the process is told to end; the first line on standard output is the address."""
    listener = _listen(host, port)
    bound = listener.getsockname()[1]
    print(f"{ANNOUNCEMENT}http://{f'[{host}]' if ':' in host else host}:{bound} (documentation at /docs)", flush=True)
    logging = copy.deepcopy(LOGGING_CONFIG)
    logging["handlers"]["access"]["stream"] = "ext://sys.stderr"
    server = uvicorn.Server(uvicorn.Config(create_app(catalogs, profile), log_config=logging))
    _warm_up()
    gc.collect()
    gc.freeze()  # what is loaded by now stays: full collections need not walk it, they would be pauses of 100 ms
    gc.set_threshold(5_000, 10, 10)  # a plan makes some ten thousand short-lived nodes: fewer, larger collections
    server.run(sockets=[listener])


def _warm_up() -> None:
    """Loads what planning loads at its first use, the databases' dialects above all."""
    catalog = "CREATE STREAM s (ts TIMESTAMP, v INT, WATERMARK FOR ts AS ts) WITH (rate = 1000)"
    for database in DATABASES:
        query = "SELECT MAX(v) AS top FROM s [RANGE 1 MINUTE SLIDE 1 SECOND]"
        document(explain_plan(optimize(query, catalog, Options(database=database)))).model_dump_json()


def _listen(host: str, port: int) -> socket.socket:
    # The protocol is named because asyncio sets TCP_NODELAY only then; without, an answer waits 40 ms for an ACK.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError, UnicodeError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PenstockError(f"cannot listen on {host}, port {port}: {reason.lower()}") from None
    return listener


@contextmanager
def running(*arguments: str) -> Iterator[tuple[str, int]]:
    """`penstock serve` as a process of its own on a free loopback port; its host and port."""
    command = [sys.executable, "-c", "from service.cli import main; main()", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(ANNOUNCEMENT):
            raise PenstockError(f"the server did not start: {line.strip() or 'it ended without a word'}")
        host, _, port = line.removeprefix(ANNOUNCEMENT).split()[0].removeprefix("http://").rpartition(":")
        yield host, int(port)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
