"""Sets of relations as bit masks, and what a join graph says of them: `neighbours` has a mask for each relation."""

from __future__ import annotations

from collections.abc import Iterator


def members(mask: int) -> Iterator[int]:
    """The relations of a set, in ascending order.

    >>> list(members(0b10110))
    [1, 2, 4]
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def around(neighbours: tuple[int, ...], mask: int) -> int:
    """The relations outside a set that share an edge with one inside.

    >>> bin(around((0b010, 0b101, 0b010), 0b001))
    '0b10'
    """
    found = 0
    for i in members(mask):
        found |= neighbours[i]
    return found & ~mask


def connected(neighbours: tuple[int, ...], start: int, within: int) -> int:
    """The relations of `within` that paths inside `within` connect to `start`."""
    found = 1 << start
    while fresh := around(neighbours, found) & within:
        found |= fresh
    return found


def parts(neighbours: tuple[int, ...]) -> list[int]:
    """The connected components.

    >>> parts((0b10, 0b01, 0b00))
    [3, 4]
    """
    left = (1 << len(neighbours)) - 1
    found = []
    while left:
        found.append(connected(neighbours, next(members(left)), left))
        left &= ~found[-1]
    return found
