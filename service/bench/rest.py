"""How long a plan request takes: CQ6 over REST on one worker, one client with a keep-alive connection."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from statistics import median
from time import perf_counter

from rich.table import Table

from optimizer.errors import PenstockError
from service.bench.nway import smartplug
from service.server import running

TARGET_MS = 50.0  # of 99% of the uncached requests
WARM_UP = 10
LOWEST_RATE = 1_000.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds, from the request's first byte to the answer's last."""

    requests: int
    median: float
    p95: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class Report:
    query: str
    uncached: Latency
    cached: Latency
    answer_bytes: int
    met: bool


def run(requests: int = 500) -> Report:
    """Every uncached request has a rate of its own; the same requests again are the cached ones."""
    bodies = [_body(LOWEST_RATE + i) for i in range(WARM_UP + requests)]
    with running() as (host, port):
        connection = HTTPConnection(host, port, timeout=60)
        for body in bodies[:WARM_UP]:
            _ask(connection, body, cached=False)
        fresh = [_ask(connection, body, cached=False) for body in bodies[WARM_UP:]]
        # The cache holds some hundreds of plans: ask for the latest ones.
        again = [_ask(connection, body, cached=True) for body in bodies[-min(requests, 500) :]]
        connection.close()
    uncached, cached = (_latency([ms for ms, _ in times]) for times in (fresh, again))
    return Report("CQ6", uncached, cached, fresh[-1][1], uncached.p99 <= TARGET_MS)


def _body(rate: float) -> bytes:
    request = {"sql": smartplug("cq6.sql"), "catalog": smartplug("catalog.sql"), "rates": {"plugs": rate}}
    return json.dumps(request).encode()


def _ask(connection: HTTPConnection, body: bytes, cached: bool) -> tuple[float, int]:
    started = perf_counter()
    connection.request("POST", "/v1/plans", body, {"content-type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    ms = (perf_counter() - started) * 1e3
    found = json.loads(answer)
    if response.status != 200 or found["cached"] is not cached:
        raise PenstockError(f"status {response.status}, expected a plan with cached = {cached}: {answer[:200]!r}")
    return ms, len(answer)


def _latency(times: list[float]) -> Latency:
    ordered = sorted(times)
    last = len(ordered) - 1
    return Latency(
        len(ordered), median(ordered), ordered[round(0.95 * last)], ordered[round(0.99 * last)], ordered[last]
    )


def render(report: Report) -> Table:
    met = "met" if report.met else "MISSED"
    caption = f"target: 99% of the uncached within {TARGET_MS:g} ms, {met}; an answer has {report.answer_bytes:,} bytes"
    table = Table(title=f"POST /v1/plans of {report.query}, one worker, one client, ms", caption=caption)
    for column in ("", "requests", "median", "95%", "99%", "worst"):
        table.add_column(column, justify="right" if column else "left")
    for name, latency in (("uncached", report.uncached), ("cached", report.cached)):
        figures = (latency.median, latency.p95, latency.p99, latency.worst)
        table.add_row(name, str(latency.requests), *(f"{ms:.1f}" for ms in figures))
    return table


def to_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=1) + "\n"
