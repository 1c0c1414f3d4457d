"""What the feasibility check is worth: the plans picked with and without it, measured where they differ (paper 001,
section 8.4, Figure 6).

Where everything shares one loop, the bottleneck is the utilization, and the check cannot change the pick. The paper
gives every operator a unit of its own, so its rule is asked as well; what is picked then runs in the same loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from optimizer.placement.problem import Units
from service.bench.curve import Reading, throughput
from service.bench.figure5 import RATES
from service.bench.lab import Job, Lab
from service.bench.plans import Candidate, Kind, Query, candidate, in_spark
from service.profile_lookup import find_profile


@dataclass(frozen=True)
class Step:
    rate: float  # requested
    checked: tuple[str, ...]  # operators in Spark, with the check
    unchecked: tuple[str, ...]
    checked_throughput: Reading | None
    unchecked_throughput: Reading | None

    @property
    def differs(self) -> bool:
        return self.checked != self.unchecked


@dataclass(frozen=True)
class Panel:
    query: str
    database: str
    units: str
    steps: tuple[Step, ...]

    @property
    def differences(self) -> list[Step]:
        """Rates at which the two picks are not the same."""
        return [s for s in self.steps if s.differs]


@dataclass(frozen=True)
class Figure6:
    panels: tuple[Panel, ...]
    left_out: tuple[str, ...]


def run(lab: Lab, queries: Sequence[str], databases: Sequence[str]) -> Figure6:
    rates = (*RATES, *(RATES[-1] * 2**i for i in range(1, 5)))
    rules = list(dict.fromkeys((Units(find_profile(None)[0].units), Units.OPERATOR)))
    panels = [(Query.example(q), d, rule) for rule in rules for d in databases for q in queries]
    picks = {
        (q.name, d, rule): _picks(q, d, rule, [r for r in rates if r <= lab.highest_on(d)]) for q, d, rule in panels
    }
    jobs = []
    for query, database, rule in panels:
        for rate, (checked, unchecked) in picks[query.name, database, rule]:
            # What is picked either way need only be known somewhere.
            if checked.id != unchecked.id or (rate == RATES[-1] and not lab.points(query, checked)):
                for one in (checked, unchecked):
                    name = f"{query.name} {database} by {rule}, {rate:,.0f}/s"
                    jobs.append(Job(name, partial(lab.trial, query, one, rate)))
    left_out = lab.run("Figure 6", jobs)
    found = []
    for query, database, rule in panels:
        steps = tuple(_step(lab, query, rate, *both) for rate, both in picks[query.name, database, rule])
        found.append(Panel(query.name, database, rule.value, steps))
    return Figure6(tuple(found), left_out)


def _picks(
    query: Query, database: str, rule: Units, rates: Sequence[float]
) -> list[tuple[float, tuple[Candidate, Candidate]]]:
    """By rate, the pick with the check and the one without."""
    found = []
    for rate in rates:
        both = [candidate(query.optimized(rate, database, check, rule), Kind.OPTIMAL) for check in (True, False)]
        found.append((rate, (both[0], both[1])))
    return found


def _step(lab: Lab, query: Query, rate: float, checked: Candidate, unchecked: Candidate) -> Step:
    through = [throughput(lab.points(query, one), rate) for one in (checked, unchecked)]
    return Step(rate, in_spark(checked.plan), in_spark(unchecked.plan), through[0], through[1])
