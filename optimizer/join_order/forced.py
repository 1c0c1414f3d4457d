"""Join orders given by a person: nested parentheses over aliases, as explain prints them."""

from __future__ import annotations

import re

from optimizer.errors import HintError
from optimizer.join_order.dpccp import JoinTree

_FORM = "((a ⋈ b) ⋈ c), or ((a b) c)"
_TOKEN = re.compile(r"\s*([()]|[^\s()⋈*,]+)|\s*[⋈*,]\s*|\s+")


def forced_tree(text: str, names: tuple[str, ...]) -> JoinTree | None:
    """The tree, where it joins exactly these relations; None where it is meant for another region.

    >>> forced_tree("((a b) (c d))", ("a", "b", "c", "d")).render(("a", "b", "c", "d"))
    '((a ⋈ b) ⋈ (c ⋈ d))'
    >>> forced_tree("(x y)", ("a", "b")) is None
    True
    """
    tokens = [m[1] for m in _TOKEN.finditer(text) if m[1]]
    if set(tokens) - {"(", ")"} != set(names):
        return None
    number = {name: i for i, name in enumerate(names)}
    stack: list[list[JoinTree]] = [[]]
    seen: set[str] = set()
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise HintError(f"the join order {text} closes more parentheses than it opens; write {_FORM}")
            stack[-2].append(_join(stack.pop(), text))
        elif token in seen:
            raise HintError(f"the join order {text} names {token} twice")
        else:
            seen.add(token)
            stack[-1].append(JoinTree(1 << number[token]))
    if len(stack) != 1:
        raise HintError(f"the join order {text} leaves a parenthesis open; write {_FORM}")
    return _join(stack[0], text)


def _join(parts: list[JoinTree], text: str) -> JoinTree:
    """Two or more trees, joined from left to right."""
    if not parts:
        raise HintError(f"the join order {text} has an empty pair; write {_FORM}")
    tree = parts[0]
    for part in parts[1:]:
        tree = JoinTree(tree.mask | part.mask, tree, part)
    return tree
