"""How good and how quick the orderings of mjoin pipelines are: the experiments of paper 000.

Figures 4, 7, 9 and 10 compare F-Greedy, TreeOpt and FAB with the optimum of DMJoin on random settings: for each number
of streams and each shape of the join graph, rates of 1 to 100 tuples a second and selectivities in (0, 1]. This module
repeats that and holds the result against what the paper says of it.

Departures: both charges for a probe are measured, since equation (3) and the paper's count of intermediate tuples lead
to different optima; all n pipelines of an mjoin count; beyond `FULL_TO` streams each further stream halves the number
of settings, down to `FEWEST`, because DMJoin takes twice as long with each.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import median
from time import perf_counter

import numpy as np
from rich.console import Group
from rich.progress import Progress
from rich.table import Table

from optimizer.join_order import dmjoin, f_greedy, fab, q_aware, tree_opt
from optimizer.join_order.mjoin import Charge, Pipelines, Shape, StreamGraph, cpu_cost

ALGORITHMS: tuple[tuple[str, Callable[[StreamGraph], Pipelines]], ...] = (
    ("F-Greedy", f_greedy.order),
    ("TreeOpt", tree_opt.order),
    ("FAB", fab.order),
    ("Q-Aware", q_aware.order),
)
SHAPES = (Shape.LINEAR, Shape.STAR, Shape.ACYCLIC, Shape.CYCLIC, Shape.COMPLETE)
TOLERANCE = 1e-9
FULL_TO = 12
FEWEST = 50
SHOWN = (3, 5, 8, 10, 12, 16, 20)  # the rows a reader gets; the JSON has all


@dataclass(frozen=True, slots=True)
class Score:
    """One algorithm on the settings of one cell; ratios are costs over DMJoin's, None where that did not run."""

    algorithm: str
    plan_ms: float  # median
    optimal: float | None  # share of settings
    median: float | None
    p95: float | None
    worst: float | None


@dataclass(frozen=True, slots=True)
class Cell:
    """All algorithms on random graphs of one shape and size."""

    charge: Charge
    shape: Shape
    n: int
    settings: int
    dmjoin_ms: float | None  # median
    scores: tuple[Score, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure of the paper, and the worst that was measured for it."""

    text: str
    charge: Charge
    limit: float
    optimal: float  # share of settings
    worst: float
    worst_shape: Shape
    worst_n: int
    met: bool


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    settings: int  # per cell, up to FULL_TO streams
    max_n: int
    seconds: float
    dmjoin_to: int  # streams; the comparison with the optimum ends here for every shape
    cells: tuple[Cell, ...]
    claims: tuple[Claim, ...]


PAPER: tuple[tuple[str, str, tuple[Shape, ...], float], ...] = (
    ("TreeOpt is optimal on every acyclic graph", "TreeOpt", SHAPES[:3], 1.0),
    ("F-Greedy is optimal on linear graphs", "F-Greedy", (Shape.LINEAR,), 1.0),
    ("F-Greedy is optimal on stars", "F-Greedy", (Shape.STAR,), 1.0),
    ("FAB costs at most 1.25 times the optimum on acyclic graphs", "FAB", SHAPES[:3], 1.25),
    ("FAB costs at most twice the optimum on complete graphs", "FAB", (Shape.COMPLETE,), 2.0),
)


def run(settings: int = 500, max_n: int = 20, seed: int = 7, budget_seconds: float = 480.0) -> Report:
    """Measure all cells; once the budget is used up, without DMJoin and so without ratios."""
    begin = perf_counter()
    todo = [(n, shape, charge) for n in range(3, max_n + 1) for shape in SHAPES for charge in Charge]
    cells: list[Cell] = []
    with Progress(disable=not sys.stdout.isatty(), transient=True) as progress:
        for n, shape, charge in progress.track(todo, description="ordering mjoins"):
            compare = n <= dmjoin.MAX_STREAMS and perf_counter() - begin < budget_seconds
            count = min(settings, max(FEWEST, settings >> max(0, n - FULL_TO)))
            graphs = (random_graph(random.Random(f"{seed}/{n}/{shape}/{k}"), n, shape, charge) for k in range(count))
            cells.append(_measure(n, shape, charge, graphs, compare))
    ends = min((cell.n - 1 for cell in cells if cell.dmjoin_ms is None), default=max_n)
    whole = [cell for cell in cells if cell.n <= ends]
    claims = tuple(_check(charge, *figure, whole) for charge in reversed(Charge) for figure in PAPER if whole)
    return Report(seed, settings, max_n, perf_counter() - begin, ends, tuple(cells), claims)


def quick(seed: int = 7) -> Report:
    """The same in some seconds: fewer settings, fewer streams."""
    return run(settings=FEWEST, max_n=10, seed=seed)


def random_graph(rng: random.Random, n: int, shape: Shape, charge: Charge) -> StreamGraph:
    """A random setting. Trees grow by random attachment; cyclic graphs are such a tree and 30% of the other edges."""
    rates = tuple(rng.uniform(1, 100) for _ in range(n))
    pairs = list(combinations(range(n), 2))
    match shape:
        case Shape.LINEAR:
            edges = [(i - 1, i) for i in range(1, n)]
        case Shape.STAR:
            edges = [(0, i) for i in range(1, n)]
        case Shape.COMPLETE:
            edges = pairs
        case _:
            edges = [(rng.randrange(i), i) for i in range(1, n)]
    if shape is Shape.CYCLIC:
        others = [pair for pair in pairs if pair not in edges]
        edges += rng.sample(others, max(1, round(0.3 * len(others))))
    return StreamGraph.of(rates, {edge: 1.0 - rng.random() for edge in edges}, charge=charge)


def _measure(n: int, shape: Shape, charge: Charge, graphs: Iterator[StreamGraph], compare: bool) -> Cell:
    times: list[list[float]] = [[] for _ in ALGORITHMS]
    ratios: list[list[float]] = [[] for _ in ALGORITHMS]
    dmjoin_times: list[float] = []
    for graph in graphs:
        optimum = None
        if compare:
            pipelines, ms = _timed(dmjoin.order, graph)
            dmjoin_times.append(ms)
            optimum = cpu_cost(graph, pipelines)
        for i, (_, order) in enumerate(ALGORITHMS):
            pipelines, ms = _timed(order, graph)
            times[i].append(ms)
            if optimum is not None:
                ratios[i].append(cpu_cost(graph, pipelines) / optimum)
    scores = tuple(_score(name, times[i], ratios[i]) for i, (name, _) in enumerate(ALGORITHMS))
    return Cell(charge, shape, n, len(times[0]), median(dmjoin_times) if compare else None, scores)


def _timed(order: Callable[[StreamGraph], Pipelines], graph: StreamGraph) -> tuple[Pipelines, float]:
    begin = perf_counter()
    pipelines = order(graph)
    return pipelines, (perf_counter() - begin) * 1e3


def _score(name: str, times: list[float], ratios: list[float]) -> Score:
    if not ratios:
        return Score(name, median(times), None, None, None, None)
    optimal = sum(ratio <= 1 + TOLERANCE for ratio in ratios) / len(ratios)
    return Score(name, median(times), optimal, median(ratios), float(np.quantile(ratios, 0.95)), max(ratios))


def _check(
    charge: Charge, text: str, algorithm: str, shapes: tuple[Shape, ...], limit: float, cells: list[Cell]
) -> Claim:
    of_claim = [cell for cell in cells if cell.charge is charge and cell.shape in shapes]
    results = [(score, cell) for cell in of_claim for score in cell.scores if score.algorithm == algorithm]
    worst, cell = max(((score.worst or 0.0, cell) for score, cell in results), key=lambda result: result[0])
    optimal = sum((score.optimal or 0.0) * cell.settings for score, cell in results)
    share = optimal / sum(cell.settings for cell in of_claim)
    return Claim(text, charge, limit, share, worst, cell.shape, cell.n, worst <= limit * (1 + TOLERANCE))


def to_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=1) + "\n"


def render(report: Report) -> Group:
    """What the paper says, then plan costs under either charge, then planning times."""
    charges = {Charge.PAIRS: "charged by pairs, eq. (3)", Charge.MATCHES: "charged by matches, intermediate tuples"}
    quality = [_quality_table(report, charge, title) for charge, title in charges.items()]
    return Group(_claims_table(report), *quality, _times_table(report))


def _claims_table(report: Report) -> Table:
    end = (
        f"DMJoin, the optimum, is carried to N = {report.dmjoin_to}; {report.seconds:.0f} s, seed {report.seed}. "
        "By matches is the paper's measure; by pairs, eq. (3), FAB tries one order more than the paper's."
    )
    table = Table(title="The figures of paper 000", caption=end)
    for column in ("the paper says", "probes charged by", "met", "optimal plans", "worst ratio", "there"):
        table.add_column(column)
    for claim in report.claims:
        there = f"{claim.worst_shape}, N = {claim.worst_n}" if claim.worst > 1 + TOLERANCE else ""
        verdict = "yes" if claim.met else "no"
        table.add_row(claim.text, claim.charge, verdict, f"{claim.optimal:.1%}", f"{claim.worst:.3f}", there)
    return table


def _quality_table(report: Report, charge: Charge, title: str) -> Table:
    table = Table(title=f"Optimal plans; cost over DMJoin's: median, 95%, worst. Probes {title}")
    for column in ("shape", "N", "settings", *(name for name, _ in ALGORITHMS)):
        table.add_column(column, no_wrap=True)
    for shape in SHAPES:
        cells = [c for c in report.cells if c.shape is shape and c.charge is charge and c.n in SHOWN]
        for cell in cells:
            last = cell is cells[-1]
            table.add_row(shape, str(cell.n), str(cell.settings), *map(_ratios, cell.scores), end_section=last)
    return table


def _ratios(score: Score) -> str:
    if score.optimal is None:
        return "-"
    return f"{score.optimal:4.0%}  {score.median:.2f} {score.p95:.2f} {score.worst:.2f}"


def _times_table(report: Report) -> Table:
    table = Table(title="Planning all N pipelines, median ms; probes charged by pairs")
    for column in ("shape", "N", "DMJoin", *(name for name, _ in ALGORITHMS)):
        table.add_column(column, justify="right")
    for shape in (Shape.ACYCLIC, Shape.COMPLETE):
        for cell in report.cells:
            if cell.shape is shape and cell.charge is Charge.PAIRS and cell.n in SHOWN:
                exact = "-" if cell.dmjoin_ms is None else f"{cell.dmjoin_ms:.2f}"
                table.add_row(shape, str(cell.n), exact, *(f"{score.plan_ms:.2f}" for score in cell.scores))
    return table
