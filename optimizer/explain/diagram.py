"""The plan as a picture: Mermaid and Graphviz dot, one box per operator, one group per MIG."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.algebra import RelationToStream, describe
from optimizer.explain.explanation import Explanation
from optimizer.explain.text import load, number
from optimizer.physical import PhysicalPlan, engine_name


@dataclass(frozen=True, slots=True)
class _Box:
    key: str
    label: tuple[str, ...]
    group: str | None
    engine: str  # source, spark or the database


@dataclass(frozen=True, slots=True)
class _Arrow:
    start: str
    end: str
    label: str


def _parts(plan: PhysicalPlan) -> tuple[list[_Box], list[_Arrow]]:
    key = {leaf.id: f"l{i}" for i, leaf in enumerate(plan.leaves)} | {
        o.id: f"o{i}" for i, o in enumerate(plan.operators)
    }
    rate = {leaf.id: leaf.rate for leaf in plan.leaves} | {o.id: o.rate_out for o in plan.operators}
    boxes = [_Box(key[leaf.id], (describe(leaf.node),), None, "source") for leaf in plan.leaves]
    arrows = []
    for o in plan.operators:
        engine = engine_name(o, plan.database)
        boxes.append(_Box(key[o.id], (o.id, o.text, f"{engine}, u {load(o.u)}"), o.mig, engine))
        arrows += [_Arrow(key[below], key[o.id], f"{number(rate[below])}/s") for below in o.inputs]
    root = plan.tree
    assert isinstance(root, RelationToStream)
    boxes.append(_Box("out", (root.emission.name,), None, "source"))
    last = plan.operators[-1].id if plan.operators else plan.leaves[0].id
    arrows.append(_Arrow(key[last], "out", f"{number(rate[last])}/s"))
    return boxes, arrows


def render_mermaid(explanation: Explanation) -> str:
    plan = explanation.optimized.plan
    boxes, arrows = _parts(plan)
    lines = ["flowchart BT"]
    for box in boxes:
        if box.group is None:
            lines.append(f"  {_mermaid_box(box)}")
    for mig in plan.migs:
        lines.append(f'  subgraph {mig.id}["{mig.id} in {mig.engine}, u {load(mig.u)}"]')
        lines += [f"    {_mermaid_box(box)}" for box in boxes if box.group == mig.id]
        lines.append("  end")
    lines += [f'  {a.start} -- "{a.label}" --> {a.end}' for a in arrows]
    lines += ["  classDef spark fill:#fde9d9,stroke:#e25a1c", "  classDef source fill:#eeeeee,stroke:#888888"]
    lines.append(f"  classDef {plan.database} fill:#fff7cc,stroke:#b59b00")
    return "\n".join(lines) + "\n"


# Mermaid reads #name; where HTML has &name;, and markup in every label.
_ENTITIES = str.maketrans({"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\n": " "})


def _mermaid_box(box: _Box) -> str:
    text = "<br/>".join(part.translate(_ENTITIES) for part in box.label)
    return f'{box.key}["{text}"]:::{box.engine}'


def render_dot(explanation: Explanation) -> str:
    plan = explanation.optimized.plan
    boxes, arrows = _parts(plan)
    colour = {"spark": "#fde9d9", "source": "#eeeeee", plan.database: "#fff7cc"}
    lines = ["digraph plan {", "  rankdir=BT;", '  node [shape=box, style=filled, fontname="Helvetica"];']
    for box in boxes:
        if box.group is None:
            lines.append(f"  {_dot_box(box, colour)}")
    for mig in plan.migs:
        lines.append(f"  subgraph cluster_{mig.id} {{")
        lines.append(f'    label="{mig.id} in {mig.engine}, u {load(mig.u)}";')
        lines += [f"    {_dot_box(box, colour)}" for box in boxes if box.group == mig.id]
        lines.append("  }")
    lines += [f'  {a.start} -> {a.end} [label="{a.label}"];' for a in arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _dot_box(box: _Box, colour: dict[str, str]) -> str:
    text = "\\n".join(part.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for part in box.label)
    return f'{box.key} [label="{text}", fillcolor="{colour[box.engine]}"];'
