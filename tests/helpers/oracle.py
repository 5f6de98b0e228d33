"""The oracle: plans run row by row in plain Python, with no engine and no optimizer.

Each operator knows how to build itself on a lazy frame and how to run itself on a list of dicts.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from semops.engine.backends.replay import Reply, WordTokenizer

Row = dict[str, Any]
Rows = list[Row]
AnswerFunction = Callable[[str, str, Mapping[str, Any]], Any]

_tokenizer = WordTokenizer()


@dataclass
class Asked:
    """Answers with a function and counts what an engine without luck would ask."""

    answer: AnswerFunction
    calls: int = 0
    """Distinct (operator, tuple) pairs of each operator, and every pair that fails."""
    _known: dict[Any, Reply] = field(default_factory=dict)

    def __call__(self, place: int, operator: str, instruction: str, values: Row) -> Reply:
        key = (place, tuple(values.items()))
        if key in self._known:
            return self._known[key]
        self.calls += 1
        found = self.answer(operator, instruction, values)
        reply = found if isinstance(found, Reply) else Reply(found)
        if reply.failure is None and not (operator == "sem_map" and reply.answer is None):
            self._known[key] = reply
        return reply


@dataclass(frozen=True)
class Keep:
    """A cheap filter: keeps rows whose number is above one."""

    column: str
    above: int

    def build(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.filter(pl.col(self.column) > self.above)

    def run(self, rows: Rows, place: int, ask: Asked) -> Rows:
        return [r for r in rows if r[self.column] is not None and r[self.column] > self.above]


@dataclass(frozen=True)
class Compute:
    """A cheap new column (or a new meaning of an old one): upper case text, or a number doubled."""

    column: str
    name: str

    def build(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        value = pl.col(self.column)
        text = frame.collect_schema()[self.column] == pl.String
        made = value.str.to_uppercase() if text else value * 2
        return frame.with_columns(made.alias(self.name))

    def run(self, rows: Rows, place: int, ask: Asked) -> Rows:
        def made(value: Any) -> Any:
            if value is None:
                return None
            return value.upper() if isinstance(value, str) else value * 2

        return [{**row, self.name: made(row[self.column])} for row in rows]


@dataclass(frozen=True)
class Head:
    count: int

    def build(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.head(self.count)

    def run(self, rows: Rows, place: int, ask: Asked) -> Rows:
        return rows[: self.count]


@dataclass(frozen=True)
class Select:
    columns: tuple[str, ...]

    def build(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.select(self.columns)

    def run(self, rows: Rows, place: int, ask: Asked) -> Rows:
        return [{name: row[name] for name in self.columns} for row in rows]


@dataclass(frozen=True)
class Drop:
    column: str

    def build(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.drop(self.column)

    def run(self, rows: Rows, place: int, ask: Asked) -> Rows:
        return [{n: value for n, value in row.items() if n != self.column} for row in rows]


@dataclass(frozen=True)
class Rename:
    old: str
    new: str

    def build(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.rename({self.old: self.new})

    def run(self, rows: Rows, place: int, ask: Asked) -> Rows:
        return [{self.new if n == self.old else n: v for n, v in row.items()} for row in rows]


@dataclass(frozen=True)
class Filter:
    instruction: str
    columns: tuple[str, ...]
    name: str | None = None
    probability: str | None = None
    nulls: str = "null"
    min_margin: float = 0.0

    def build(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.sem_filter(
            self.instruction,
            name=self.name,
            probability=self.probability,
            nulls=self.nulls,
            min_margin=self.min_margin,
        )

    def run(self, rows: Rows, place: int, ask: Asked) -> Rows:
        out = []
        for row in rows:
            values = {name: row[name] for name in self.columns}
            verdict, share = judged(
                place, "sem_filter", self.instruction, values, ask, self.nulls, self.min_margin
            )
            new = dict(row)
            if self.name is not None:
                new[self.name] = verdict
            if self.probability is not None:
                new[self.probability] = share
            if self.name is not None or verdict is True:
                out.append(new)
        return out


@dataclass(frozen=True)
class Map:
    instruction: str
    columns: tuple[str, ...]
    name: str
    max_tokens: int = 256
    on_cutoff: str = "null"
    nulls: str = "null"

    def build(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.sem_map(
            self.instruction,
            self.name,
            max_tokens=self.max_tokens,
            on_cutoff=self.on_cutoff,
            nulls=self.nulls,
        )

    def run(self, rows: Rows, place: int, ask: Asked) -> Rows:
        return [{**row, self.name: self._text(row, place, ask)} for row in rows]

    def _text(self, row: Row, place: int, ask: Asked) -> str | None:
        values = {name: row[name] for name in self.columns}
        if self.nulls == "null" and None in values.values():
            return None
        reply = ask(place, "sem_map", self.instruction, values)
        if reply.failure is not None or reply.answer is None:
            return None
        text = str(reply.answer)
        if reply.cut_off or len(_tokenizer.encode(text)) > self.max_tokens:
            return None
        return text.strip()


@dataclass(frozen=True)
class Join:
    instruction: str
    left_columns: tuple[str, ...]
    right_columns: tuple[str, ...]
    right: tuple[tuple[tuple[str, Any], ...], ...]
    """Rows of the right side, as items of dicts."""
    right_schema: tuple[str, ...]

    @property
    def frame(self) -> pl.DataFrame:
        schema = dict.fromkeys(self.right_schema, pl.String)
        return pl.DataFrame([dict(row) for row in self.right], schema=schema)

    def build(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.sem_join(self.frame, self.instruction)

    def run(self, rows: Rows, place: int, ask: Asked) -> Rows:
        out = []
        for left in rows:
            for right in self.right:
                pair = {**left, **dict(right)}
                values = {name: pair[name] for name in (*self.left_columns, *self.right_columns)}
                if judged(place, "sem_join", self.instruction, values, ask)[0] is True:
                    out.append(pair)
        return out


Op = Keep | Compute | Head | Select | Drop | Rename | Filter | Map | Join


def judged(
    place: int,
    operator: str,
    instruction: str,
    values: Row,
    ask: Asked,
    nulls: str = "null",
    min_margin: float = 0.0,
) -> tuple[bool | None, float | None]:
    """Return a predicate's verdict and its probability."""
    if nulls == "null" and None in values.values():
        return None, None
    reply = ask(place, operator, instruction, values)
    if reply.failure is not None or reply.answer is None:
        return None, None
    share = min(max(float(reply.answer), 1e-6), 1 - 1e-6)
    margin = math.log(share) - math.log(1 - share)
    if margin == 0:
        return None, None
    return None if abs(margin) < min_margin else margin > 0, 1 / (1 + math.exp(-margin))


def build(frame: pl.DataFrame, ops: tuple[Op, ...]) -> pl.LazyFrame:
    """Return the lazy frame of a chain of operators."""
    lazy = frame.lazy()
    for op in ops:
        lazy = op.build(lazy)
    return lazy


def run(frame: pl.DataFrame, ops: tuple[Op, ...], answer: AnswerFunction) -> tuple[Rows, int]:
    """Return the rows of a chain of operators, and how many calls row-by-row execution makes."""
    asked = Asked(answer)
    rows = frame.to_dicts()
    for place, op in enumerate(ops):
        rows = op.run(rows, place, asked)
    return rows, asked.calls


def scramble(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
    """Answer by a hash of the question: every kind of answer comes up, and always the same one.

    Some answers are late, so tuples overtake one another.
    """
    text = f"{operator}|{instruction}|{sorted(row.items())}"
    number = zlib.crc32(text.encode())
    kind, rest = number % 16, number >> 4
    if kind == 0:
        return Reply(failure="no luck")
    if kind == 1:
        return None
    delay_s = 0.004 if kind in {4, 5} else 0.0
    if operator != "sem_map":
        return Reply((rest % 100) / 100 if kind < 6 else rest % 3 > 0, delay_s)
    if kind == 2:
        return Reply("and so on " * 40, cut_off=True)
    words = ["sun", "Ωmega", "lila", " x ", "12", "é"]
    text = " ".join(words[(rest >> shift) % 6] for shift in range(1 + rest % 9))
    return Reply(text, delay_s)
