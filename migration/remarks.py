"""Where an estimate is far off, in a sentence that says what would put it right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from migration.analysis import LeafAnalysis, OperatorAnalysis, Pair, pair
from optimizer.algebra import Aggregate, Join, Node, Select, StoredTable, Window, text
from optimizer.physical import PhysicalPlan, PlanOperator

FAR = 4.0  # times
_WORTH = 0.01  # a u below this is not worth a sentence


def remarks(
    plan: PhysicalPlan, estimated: PhysicalPlan, operators: Sequence[OperatorAnalysis], leaves: Sequence[LeafAnalysis]
) -> Iterator[str]:
    sizes = {leaf.id: leaf.size for leaf in leaves} | {o.id: o.size for o in operators}
    seen: set[str] = set()
    for leaf in leaves:
        if leaf.rate.q_error > FAR and leaf.relation not in seen:
            seen.add(leaf.relation)
            yield _about_leaf(plan, leaf)
    for o, guessed, found in zip(plan.operators, estimated.operators, operators, strict=True):
        match o.node:
            case Select():
                yield from _about_select(o, sizes)
            case Join():
                yield from _about_join(o, sizes)
            case Aggregate():
                on_leaf = isinstance(_below(o.node.input), Window | StoredTable)
                if on_leaf or sizes[o.inputs[0]].q_error <= FAR:  # else the fault lies below
                    yield from _about_groups(o, o.node, found.size)
        if found.form is not None and guessed.form != found.form:
            yield f"{o.id} is estimated as {guessed.form}, and was run as {found.form}: choose with --spe"
    slow = [o.id for o in operators if o.u.q_error > FAR and max(o.u.estimated, o.u.measured) > _WORTH]
    if slow:
        names = ", ".join(slow)
        yield f"u of {names} is more than {FAR:g} times off: the profile is of another machine or of other data"
    short = min(leaves, key=lambda leaf: leaf.filled)
    if short.filled < 0.99:
        yield (
            f"the run filled {short.filled:.0%} of the window of {short.id}: "
            "estimates are for windows as full as they were; a longer --for shows them fuller"
        )


def _about_leaf(plan: PhysicalPlan, leaf: LeafAnalysis) -> str:
    node = next(known.node for known in plan.leaves if known.id == leaf.id)
    if isinstance(node, StoredTable):
        rows = leaf.size
        return (
            f"table {leaf.relation} has {rows.measured:,.0f} rows, the catalog says {rows.estimated:,.0f}: "
            f"CREATE TABLE {leaf.relation} … WITH (rows = {rows.measured:.0f})"
        )
    return (
        f"stream {leaf.relation} brings {leaf.rate.measured:,.3g} tuples/s, estimated {leaf.rate.estimated:,.3g}: "
        f"CREATE STREAM {leaf.relation} … WITH (rate = {leaf.rate.measured:.3g})"
    )


def _share(o: PlanOperator, sizes: dict[str, Pair]) -> Pair:
    """Of its input, or of all pairs of its inputs, what an operator lets through: its own error, not those below."""
    estimated, measured = sizes[o.id].estimated, sizes[o.id].measured
    least = 1.0
    for below in o.inputs:
        estimated /= max(sizes[below].estimated, 1e-9)
        measured /= max(sizes[below].measured, 1e-9)
        least /= max(sizes[below].measured, 1.0)
    return pair(estimated, measured, least)


def _about_select(o: PlanOperator, sizes: dict[str, Pair]) -> Iterator[str]:
    share = _share(o, sizes)
    if share.q_error > FAR:
        assert isinstance(o.node, Select)
        cure = _selectivity(o.node, share.measured)
        says = f"{o.source.label} figures say {share.estimated:.3g}"
        yield f"{o.id} passes {share.measured:.3g} of its tuples, {says}" + (f": {cure}" if cure else "")


def _selectivity(node: Select, share: float) -> str:
    below = _below(node.input)
    if not isinstance(below, Window | StoredTable) or len(node.predicates) > 1:
        return ""
    relation = below.stream if isinstance(below, Window) else below.table
    plain = node.predicates[0].transform(lambda p: exp.column(p.name) if isinstance(p, exp.Column) else p)
    return f"CREATE STATISTICS ON {relation} WHERE {text(plain)} WITH (selectivity = {share:.3g})"


def _about_join(o: PlanOperator, sizes: dict[str, Pair]) -> Iterator[str]:
    share = _share(o, sizes)
    if share.q_error > FAR:
        yield (
            f"{o.id} gives {sizes[o.id].measured:,.0f} rows, {share.measured:.3g} of the pairs, "
            f"{o.source.label} figures say {share.estimated:.3g}: "
            "CREATE STATISTICS of the distinct values of its keys, or of what its other conditions let through"
        )


def _about_groups(o: PlanOperator, node: Aggregate, size: Pair) -> Iterator[str]:
    if size.q_error <= FAR:
        return
    below = _below(node.input)
    keys = [k.expression for k in node.keys]
    cure = ""
    if isinstance(below, Window | StoredTable) and all(isinstance(key, exp.Column) for key in keys):
        relation = below.stream if isinstance(below, Window) else below.table
        names = ", ".join(key.name for key in keys)
        cure = f": CREATE STATISTICS ON {relation} ({names}) WITH (distinct = {size.measured:.0f})"
    yield f"{o.id} has {size.measured:,.0f} groups, {o.source.label} figures say {size.estimated:,.0f}{cure}"


def _below(node: Node) -> Node:
    """Not through projections, which give columns other names."""
    while isinstance(node, Select):
        node = node.input
    return node
