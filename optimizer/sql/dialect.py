"""The continuous dialect: a sqlglot dialect that reads windows, relation-to-stream operators and catalog statements.

A window is kept in the metadata of its `exp.Table` (`window_of`), so that sqlglot's own passes see a plain table. The
three spellings of design section 3 meet here: `plugs [RANGE …]`, `HOP(TABLE plugs, …)` and `TUMBLE(…)` as tables;
`window(ts, …)` in GROUP BY parses as an ordinary function and is resolved by `windows`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.parser import Parser as BaseParser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer as BaseTokenizer

from optimizer.algebra import WindowSpec, WindowUnit
from optimizer.sql.statements import CreateRelation, CreateStatistics, Option, WatermarkDef

WINDOW_FORM = "[RANGE 5 MINUTES SLIDE 1 SECOND] or [ROWS 1000 SLIDE 10]"
HOP_FORM = "HOP(TABLE plugs, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '5' MINUTE)  -- slide first, then size"
TUMBLE_FORM = "TUMBLE(TABLE plugs, DESCRIPTOR(ts), INTERVAL '5' MINUTE)"
STREAM_FORM = "CREATE STREAM plugs (ts TIMESTAMP, …, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH (rate = 2000)"
STATISTICS_FORM = "CREATE STATISTICS ON plugs (plug_id) WITH (distinct = 2125)"

MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def window_of(table: exp.Expression) -> WindowSpec | None:
    spec = table.meta.get("window")
    return spec if isinstance(spec, WindowSpec) else None


def unit_of(word: str) -> int | None:
    """Microseconds of a unit, singular or plural.

    >>> unit_of("minutes")
    60000000
    """
    return MICROSECONDS.get(word.upper().removesuffix("S"))


def microseconds(amount: str, unit: int) -> int | None:
    """None where the amount is not positive, not a whole number of microseconds, or longer than a thousand years."""
    exact = Fraction(amount) * unit
    longest = 365_000 * MICROSECONDS["DAY"]
    return int(exact) if exact.denominator == 1 and 0 < exact <= longest else None


def parse_duration(words: str) -> int | None:
    """A duration in one string, as Spark writes it.

    >>> parse_duration("5 minutes"), parse_duration("5 parsecs")
    (300000000, None)
    """
    matched = _DURATION.fullmatch(words)
    unit = unit_of(matched[2]) if matched else None
    return microseconds(matched[1], unit) if matched and unit else None


class Penstock(Dialect):
    CONCAT_COALESCE = True  # concat(…) passes over NULLs, as in DuckDB and PostgreSQL; || does not
    SAFE_DIVISION = True  # x / 0 is NULL: a stream must not stop at a zero. `/` is float division, 1 / 2 is 0.5

    class Tokenizer(BaseTokenizer):
        # A named WINDOW clause is not accepted; as a plain name, `window(…)` parses as a function.
        KEYWORDS = {k: v for k, v in BaseTokenizer.KEYWORDS.items() if k != "WINDOW"}  # noqa: RUF012

    class Parser(BaseParser):
        OPERATION_MODIFIERS = {"RSTREAM", "ISTREAM", "DSTREAM"}  # noqa: RUF012

        def raise_error(self, message: str, token: Any = None) -> None:
            """Adds the offsets of what was found, which sqlglot's own error leaves out."""
            found = token or self._curr or self._prev
            try:
                super().raise_error(message, found) if found else super().raise_error(message)
            except ParseError as error:
                if error.errors and found:
                    error.errors[0].setdefault("start", found.start)
                    error.errors[0].setdefault("end", found.end + 1)
                raise

        def _warn_unsupported(self) -> None:
            """Says nothing: a statement that sqlglot only keeps as text is refused with its place."""

        def refuse(self, message: str, form: str, token: Token | None = None) -> NoReturn:
            try:
                self.raise_error(message, token)
            except ParseError as error:
                error.errors[0]["form"] = form
                raise
            raise ParseError(message)  # only where sqlglot was told to collect errors

        def _found(self) -> str:
            return f"'{self._curr.text}'" if self._curr and self._curr.text else "the end of the text"

        # -- windows ------------------------------------------------------------------------------------------

        def _parse_table_parts(self, *args: Any, **kwargs: Any) -> Any:
            if self._curr and self._next and self._next.token_type == TokenType.L_PAREN:
                word = self._curr.text.upper()
                if word in ("HOP", "TUMBLE"):
                    return self._parse_window_function(word)
                if word in ("SESSION", "CUMULATE"):
                    self.refuse(f"{word} windows are not supported", HOP_FORM)
                if word == "TABLE":  # Flink's older spelling: FROM TABLE(HOP(…))
                    self._advance(2)
                    inner = self._parse_table_parts()
                    self._expect(TokenType.R_PAREN, ")", HOP_FORM)
                    return inner
            table = super()._parse_table_parts(*args, **kwargs)
            if isinstance(table, exp.Table) and self._match(TokenType.L_BRACKET):
                table.meta["window"] = self._parse_stream_window()
                self._expect(TokenType.R_BRACKET, "SLIDE or ']'", WINDOW_FORM)
            return table

        def _expect(self, token_type: TokenType, what: str, form: str) -> None:
            if not self._match(token_type):
                self.refuse(f"expected {what}, found {self._found()}", form)

        def _parse_stream_window(self) -> WindowSpec:
            if self._match_text_seq("RANGE"):
                size = self._parse_duration(WINDOW_FORM)
                slide = self._parse_duration(WINDOW_FORM) if self._match_text_seq("SLIDE") else None
                return WindowSpec(WindowUnit.TIME, size, slide)
            if self._match_text_seq("ROWS"):
                rows = self._parse_count()
                return WindowSpec(WindowUnit.ROWS, rows, self._parse_count() if self._match_text_seq("SLIDE") else None)
            self.refuse(f"expected RANGE or ROWS, found {self._found()}", WINDOW_FORM)

        def _parse_count(self) -> int:
            token = self._curr
            if self._match(TokenType.NUMBER) and token.text.isdigit() and 0 < int(token.text) < 10**12:
                return int(token.text)
            self.refuse(
                f"expected a positive number of rows, found '{token.text if token else ''}'", WINDOW_FORM, token
            )

        def _parse_duration(self, form: str) -> int:
            """`5 MINUTES`, `'5 minutes'`, `INTERVAL '5' MINUTE`, `INTERVAL '5 minutes'`."""
            start = self._curr
            interval = self._match(TokenType.INTERVAL)
            amount = self._curr
            length: int | None = None
            if self._match_set((TokenType.NUMBER, TokenType.STRING)):
                length = parse_duration(amount.text) if amount.token_type == TokenType.STRING else None
                plain = re.fullmatch(r"\s*[0-9]+(\.[0-9]+)?\s*", amount.text)
                if length is None and plain and self._curr and (unit := unit_of(self._curr.text)):
                    self._advance()
                    length = microseconds(amount.text.strip(), unit)
            if length is None:
                words = "a positive INTERVAL" if interval else "a positive duration"
                unit_word = self._curr if amount is not self._curr else None
                found = " ".join(token.text for token in (amount, unit_word) if token)
                self.refuse(f"expected {words} in MILLISECONDS, SECONDS … DAYS, WEEKS, found '{found}'", form, start)
            return length

        def _parse_window_function(self, word: str) -> exp.Table:
            form = HOP_FORM if word == "HOP" else TUMBLE_FORM
            start = self._curr
            self._advance(2)
            self._match(TokenType.TABLE)
            table = super()._parse_table_parts()
            self._expect(TokenType.COMMA, "','", form)
            time_column = self._parse_descriptor(form)
            self._expect(TokenType.COMMA, "','", form)
            slide = size = self._parse_duration(form)
            if word == "HOP":
                self._expect(TokenType.COMMA, "','", form)
                size = self._parse_duration(form)
            self._expect(TokenType.R_PAREN, "')'", form)
            if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
                self.refuse(f"{word} needs the name of a stream", form, start)
            table.meta["window"] = WindowSpec(WindowUnit.TIME, size, slide)
            table.meta["time_column"] = time_column
            table.meta["window_columns"] = True  # Flink's window_start and window_end may be read
            return table

        def _parse_descriptor(self, form: str) -> exp.Identifier:
            wrapped = self._match_text_seq("DESCRIPTOR")
            if wrapped:
                self._expect(TokenType.L_PAREN, "'('", form)
            name = self._parse_id_var(any_token=False)
            if not isinstance(name, exp.Identifier):
                self.refuse(f"expected the time column, found {self._found()}", form)
            if wrapped:
                self._expect(TokenType.R_PAREN, "')'", form)
            return name

        # -- catalog ------------------------------------------------------------------------------------------

        def _parse_create(self) -> Any:
            if self._match_text_seq("STREAM"):
                return self._parse_relation("stream")
            if self._match(TokenType.TABLE):
                return self._parse_relation("table")
            if self._match_text_seq("STATISTICS"):
                return self._parse_statistics()
            self.refuse(f"expected STREAM, TABLE or STATISTICS after CREATE, found {self._found()}", STREAM_FORM)

        def _name(self, form: str) -> exp.Identifier:
            name = self._parse_id_var(any_token=False)
            if not isinstance(name, exp.Identifier):
                self.refuse(f"expected a name, found {self._found()}", form)
            return name

        def _parse_relation(self, kind: str) -> CreateRelation:
            name = self._name(STREAM_FORM)
            columns: list[exp.ColumnDef] = []
            keys: list[exp.Identifier] = []
            watermark: WatermarkDef | None = None
            self._expect(TokenType.L_PAREN, "'('", STREAM_FORM)
            while True:
                if self._match_text_seq("WATERMARK", "FOR"):
                    watermark = self._parse_watermark()
                elif self._match(TokenType.PRIMARY_KEY):
                    self._expect(TokenType.L_PAREN, "'('", STREAM_FORM)
                    keys += self._parse_csv(lambda: self._name(STREAM_FORM))
                    self._expect(TokenType.R_PAREN, "')'", STREAM_FORM)
                else:
                    columns.append(self._read_column(keys))
                if not self._match(TokenType.COMMA):
                    break
            self._expect(TokenType.R_PAREN, "',' or ')'", STREAM_FORM)
            options = self._parse_options(STREAM_FORM)
            return CreateRelation(
                this=name, kind=kind, expressions=columns, keys=keys, watermark=watermark, options=options
            )

        def _read_column(self, keys: list[exp.Identifier]) -> exp.ColumnDef:
            name = self._name(STREAM_FORM)
            kind = self._parse_types(schema=True)
            if not isinstance(kind, exp.DataType) or kind.this == exp.DataType.Type.USERDEFINED:
                self.refuse(f"expected the type of column {name.name}, found {self._found()}", STREAM_FORM)
            nullable = not self._match_text_seq("NOT", "NULL")
            if self._match(TokenType.PRIMARY_KEY):
                keys.append(name)
            constraints = [] if nullable else [exp.ColumnConstraint(kind=exp.NotNullColumnConstraint())]
            return exp.ColumnDef(this=name, kind=kind, constraints=constraints)

        def _parse_watermark(self) -> WatermarkDef:
            form = "WATERMARK FOR ts AS ts - INTERVAL '2' SECOND"
            name = self._name(form)
            self._expect(TokenType.ALIAS, "AS", form)
            again = self._name(form)
            if again.name.lower() != name.name.lower():
                self.refuse(f"a watermark on {name.name} is counted from {name.name}", form, self._prev)
            delay = 0
            if self._match(TokenType.DASH):
                delay = self._parse_duration(form)
            return WatermarkDef(this=name, delay=delay)

        def _parse_options(self, form: str) -> list[Option]:
            if not self._match_text_seq("WITH"):
                return []
            self._expect(TokenType.L_PAREN, "'('", form)
            options = self._parse_csv(lambda: self._parse_option(form))
            self._expect(TokenType.R_PAREN, "',' or ')'", form)
            return options

        def _parse_option(self, form: str) -> Option:
            token = self._curr
            if not token or token.token_type in (TokenType.R_PAREN, TokenType.EQ):
                self.refuse(f"expected the name of an option, found {self._found()}", form)
            self._advance()
            name = token.text
            while self._match(TokenType.DOT):  # kafka.bootstrap.servers
                name += "." + (self._curr.text if self._curr else "")
                self._advance()
            self._expect(TokenType.EQ, "'='", form)
            negative = self._match(TokenType.DASH)
            value = self._curr
            if self._match(TokenType.NUMBER):
                number = float(value.text)
                return Option(this=name, value=-number if negative else number).update_positions(token)
            if not negative and self._match(TokenType.STRING):
                return Option(this=name, value=value.text).update_positions(token)
            if not negative and self._match_texts(("TRUE", "FALSE")):
                return Option(this=name, value=value.text.upper() == "TRUE").update_positions(token)
            self.refuse(f"expected a number, a string or a boolean for {name}, found {self._found()}", form)

        def _parse_statistics(self) -> CreateStatistics:
            if not self._match(TokenType.ON):
                self.refuse(f"expected ON, found {self._found()}", STATISTICS_FORM)
            relations = self._parse_csv(lambda: self._name(STATISTICS_FORM))
            columns: list[exp.Identifier] = []
            if self._match(TokenType.L_PAREN):
                columns = self._parse_csv(lambda: self._name(STATISTICS_FORM))
                self._expect(TokenType.R_PAREN, "',' or ')'", STATISTICS_FORM)
            where = self._parse_disjunction() if self._match(TokenType.WHERE) else None
            options = self._parse_options(STATISTICS_FORM)
            return CreateStatistics(this=relations, expressions=columns, where=where, options=options)
