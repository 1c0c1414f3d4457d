"""Rewrites from algebra to algebra that always pay: each a plain function, applied in this order.

Selections go down first, so that join regions have only join conditions left; columns are pruned last, when it is
known who reads them.
"""

from __future__ import annotations

from optimizer.rewrite.prune_columns import prune_columns
from optimizer.rewrite.push_selections import push_selections

PASSES = (push_selections, prune_columns)
