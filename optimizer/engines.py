"""What each engine can run: a capability table per engine, asked by the binder and by phase two.

Engines are data here, never imports: a name, the sqlglot dialect that writes its SQL, and the functions it has. A
function is named as sqlglot names its expression class (`Max`, `ApproxQuantile`), an unknown one by its own name.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from optimizer.algebra import Scalar, Tree, scalars
from optimizer.errors import HintError

# Every engine runs these; they are also what an expression may be made of at all.
STRUCTURE = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Star),
    *(exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Between, exp.In),
    *(exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg),
    *(exp.Case, exp.If, exp.Cast, exp.DataType, exp.DataTypeParam, exp.Interval, exp.Var, exp.Distinct, exp.Filter),
    *(exp.Where, exp.DPipe, exp.IntDiv, exp.ILike, exp.WithinGroup, exp.Order, exp.Ordered),
)

_COMMON = (
    "Count Sum Avg Min Max Stddev StddevSamp StddevPop Variance VariancePop Coalesce Nullif Abs Round Floor Ceil Sqrt "
    "Exp Ln Pow Sign Greatest Least Lower Upper Length Substring Concat Trim Extract TimestampTrunc DateTrunc "
    "Corr CovarPop CovarSamp BitwiseAnd BitwiseOr BitwiseXor LogicalAnd LogicalOr Year Month Day Hour Minute Second "
    "Tick"
)


@dataclass(frozen=True, slots=True)
class Engine:
    name: str
    dialect: str
    functions: frozenset[str]

    def lacks(self, node: Tree) -> str | None:
        """The first function of an operator that the engine does not have."""
        for scalar in scalars(node):
            for name in function_names(scalar):
                if name not in self.functions:
                    return name
        return None


def _engine(name: str, dialect: str, extra: str) -> Engine:
    return Engine(name, dialect, frozenset((_COMMON + " " + extra).split()))


SPARK = _engine(
    "spark",
    "spark",
    "TryCast ApproxDistinct ApproxQuantile RegexpLike RegexpExtract Split Levenshtein Soundex Md5 SHA2 ArgMax ArgMin "
    "StartsWith EndsWith CountIf Median Skewness Kurtosis ArraySize",
)
DUCKDB = _engine(
    "duckdb",
    "duckdb",
    "TryCast ApproxDistinct ApproxQuantile RegexpLike RegexpExtract Split Levenshtein Md5 ArgMax ArgMin Quantile "
    "PercentileCont PercentileDisc StartsWith EndsWith CountIf Median Mode Skewness Kurtosis JARO_WINKLER_SIMILARITY",
)
POSTGRES = _engine("postgres", "postgres", "PercentileCont PercentileDisc Md5 StartsWith RegexpLike")
DATABASES = {engine.name: engine for engine in (DUCKDB, POSTGRES)}


def database(name: str) -> Engine:
    if name not in DATABASES:
        raise HintError(f"no database is called {name!r}; choose one of {', '.join(DATABASES)}")
    return DATABASES[name]


def function_names(scalar: Scalar) -> list[str]:
    """
    >>> import sqlglot
    >>> function_names(sqlglot.parse_one("max(a) + jaro_winkler_similarity(b, c)"))
    ['Max', 'JARO_WINKLER_SIMILARITY']
    """
    names = []
    for node in scalar.walk():
        if isinstance(node, exp.Anonymous):
            names.append(node.name.upper() if node.name.upper() != "TICK" else "Tick")
        elif isinstance(node, exp.TryCast) or (isinstance(node, exp.Func) and not isinstance(node, STRUCTURE)):
            names.append(type(node).__name__)
    return names


def known_functions() -> list[str]:
    return sorted(frozenset().union(*(engine.functions for engine in (SPARK, *DATABASES.values()))))


def known_somewhere(name: str) -> bool:
    return any(name in engine.functions for engine in (SPARK, *DATABASES.values()))
