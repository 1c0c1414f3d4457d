"""Penstock's public Python API: continuous SQL in, a federated plan out, explained.

>>> import penstock
>>> catalog = "CREATE STREAM s (ts TIMESTAMP, k INT, v DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 5000)"
>>> plan = penstock.optimize("SELECT k, avg(v) AS mean FROM s [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY k", catalog)
>>> plan.plan.cost.feasible
True
"""

from costmodel.cost import PlanCost
from costmodel.profile import CalibrationProfile, ProfileError, load_profile
from optimizer.catalog import Catalog
from optimizer.errors import HintError, PenstockError, SqlError
from optimizer.explain.api import explain
from optimizer.explain.document import PlanDocument
from optimizer.explain.explanation import SweepRange
from optimizer.hints import Hints
from optimizer.optimize import Optimized, Options, Search, optimize
from optimizer.physical import PhysicalPlan, Where
from optimizer.placement.problem import Units
from optimizer.sql.ddl import parse_catalog

__all__ = [
    "CalibrationProfile",
    "Catalog",
    "HintError",
    "Hints",
    "Optimized",
    "Options",
    "PenstockError",
    "PhysicalPlan",
    "PlanCost",
    "PlanDocument",
    "ProfileError",
    "Search",
    "SqlError",
    "SweepRange",
    "Units",
    "Where",
    "explain",
    "load_profile",
    "optimize",
    "parse_catalog",
]
