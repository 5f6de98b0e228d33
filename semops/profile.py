"""What a run did: per operator rows, calls, tokens, cache hits, seconds, and errors by reason."""

from __future__ import annotations

import html
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from semops.engine.budgets.controller import Sample
from semops.engine.metrics import EngineEvents, OperatorCounts

if TYPE_CHECKING:
    import polars as pl

    from semops.engine.backend import Capabilities

MAX_ERRORS = 10_000
"""Rows kept for :meth:`Profile.errors`; further ones are only counted."""

WARNED = {
    "cut_off": "cut off at max_tokens",
    "undecided": "undecided",
    "over_context": "longer than the context",
    "backend": "failed in the engine",
}
"""Reasons that a run warns of, and how it puts them."""


class RowError(NamedTuple):
    """An answer that became NULL."""

    row: int
    """Number of the row in the input of the query, after cheap predicates."""
    operator: str
    reason: str
    detail: str


class QueryLog:
    """Undecided answers of one query; written by the engine's thread."""

    def __init__(self) -> None:
        self.nulls: dict[str, Counter[str]] = {}
        self.errors: list[RowError] = []
        self._lock = threading.Lock()

    def null(self, operator: str, reason: str, detail: str = "", row: int = -1) -> None:
        """Count a NULL; keep its detail where it is an error."""
        with self._lock:
            self.nulls.setdefault(operator, Counter())[reason] += 1
            if reason in WARNED and len(self.errors) < MAX_ERRORS:
                self.errors.append(RowError(row, operator, reason, detail))


@dataclass(slots=True)
class Profile:
    """What one run did.

    A run is one ``collect`` with all semantic queries in it.

    Examples
    --------
    >>> profile = Profile(operators={"sem_filter": OperatorCounts(rows=3, kept=1, calls=3)})
    >>> profile.operators["sem_filter"].calls
    3
    """

    operators: dict[str, OperatorCounts] = field(default_factory=dict)
    """Counters by operator, in plan order."""
    wall_s: float = 0.0
    """From the first pull to the end, in seconds."""
    first_row_s: float | None = None
    """Until the first row came, in seconds."""
    rows: int = 0
    """Rows given out."""
    capabilities: Capabilities | None = None
    pinning: str = ""
    """``explicit``, or ``virtual`` with the reason."""
    executor: str = "pipelined"
    events: EngineEvents = field(default_factory=EngineEvents)
    plans: list[str] = field(default_factory=list)
    """The physical plans, as text."""
    row_errors: list[RowError] = field(default_factory=list)
    trajectory: list[Sample] = field(default_factory=list, repr=False)
    """Budgets and queues of plans with a join over time; the last 10,000 changes of each pipeline."""

    def errors(self) -> pl.DataFrame:
        """Return the answers that became NULL as a frame (row, operator, reason, detail)."""
        import polars as pl

        schema = {"row": pl.Int64, "operator": pl.String, "reason": pl.String, "detail": pl.String}
        return pl.DataFrame(self.row_errors, schema=schema, orient="row")

    def merge(self, other: Profile) -> None:
        """Add another query's part of the same run."""
        for name, counts in other.operators.items():
            self.operators.setdefault(name, OperatorCounts()).add(counts)
        self.wall_s = max(self.wall_s, other.wall_s)
        if self.first_row_s is None:
            self.first_row_s = other.first_row_s
        self.rows += other.rows
        self.capabilities = other.capabilities or self.capabilities
        self.pinning = other.pinning or self.pinning
        self.executor = other.executor
        self.events = other.events
        self.plans += other.plans
        self.trajectory += other.trajectory
        self.row_errors += other.row_errors

    def warning(self) -> str | None:
        """Return one sentence on answers that became NULL by error, or None."""
        parts = []
        for name, counts in self.operators.items():
            found = [f"{counts.nulls[r]} {text}" for r, text in WARNED.items() if counts.nulls[r]]
            if found:
                parts.append(f"{name}: {', '.join(found)}")
        if not parts:
            return None
        return (
            f"some answers are NULL ({'; '.join(parts)}). semops.last_profile().errors() lists them; "
            f'on_error="raise" stops at the first.'
        )

    def __str__(self) -> str:
        header = [
            "operator", "rows", "kept", "calls", "reused", "prompt", "cached", "computed",
            "cached%", "output", "seconds", "null",
        ]  # fmt: skip
        table = [header, *(_cells(name, counts) for name, counts in self.operators.items())]
        widths = [max(len(row[i]) for row in table) for i in range(len(header))]
        lines = [
            "  ".join(
                cell.ljust(width) if column in {0, 11} else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        first = "" if self.first_row_s is None else f", first row after {self.first_row_s:.1f} s"
        lines.append(f"{self.rows} rows in {self.wall_s:.1f} s{first}; {self.executor}")
        if self.capabilities is not None:
            c = self.capabilities
            lines.append(
                f"{c.backend} {c.model}: KV for {c.kv_tokens:,} tokens in blocks of "
                f"{c.block_tokens}; pinning {self.pinning}"
            )
        e = self.events
        if e.deadlocks or e.solo:
            lines.append(f"deadlocks resolved {e.deadlocks}, tasks run alone {e.solo}")
        if e.shrunk:
            lines.append(f"prefixes went too early: the memory budget shrank {e.shrunk} times")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _cells(name: str, counts: OperatorCounts) -> list[str]:
    nulls = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.nulls.items()))
    return [
        name,
        *(
            f"{value:,}"
            for value in (
                counts.rows,
                counts.kept,
                counts.calls,
                counts.reused,
                counts.prompt_tokens,
                counts.cached_tokens,
                counts.computed_tokens,
            )
        ),
        f"{100 * counts.cached_share:.0f}%",
        f"{counts.output_tokens:,}",
        f"{counts.busy_s:.1f}",
        nulls or "-",
    ]
