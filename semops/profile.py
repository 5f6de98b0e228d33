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
    "low_margin": "under min_margin",
    "low_mass": "under min_mass",
    "invalid": "not of the schema",
    "over_context": "longer than the context",
    "backend": "failed in the engine",
}
"""Reasons that a run warns of, and how it puts them."""


LISTED = {*WARNED, "truncated", "kept_cut_off"}
"""Reasons that :meth:`Profile.errors` lists: also those where row or answer are not whole, as wanted."""


@dataclass(slots=True)
class Decisions:
    """How a predicate decided.

    Examples
    --------
    >>> decisions = Decisions(verdicts=4, yes=1, yes_before=3, shift=0.8)
    >>> print(decisions)
    4 verdicts, 1 yes; mean margin 0.00 nats, both answers 0.00 of the mass; calibrated by -0.80 nats, 3 yes before
    """

    verdicts: int = 0
    yes: int = 0
    """Verdicts that were yes, before ``min_margin`` and ``min_mass``."""
    yes_before: int = 0
    """The same without calibration."""
    margins: float = 0.0
    """Sum of the absolute log odds, in nats."""
    masses: float = 0.0
    """Sum of the probabilities of the two answers together."""
    shift: float = 0.0
    """Log odds that calibration takes off, in nats."""
    calibration_calls: int = 0
    """Requests that calibration took; they count nowhere else."""
    calibrated: bool = False

    def add(self, other: Decisions) -> None:
        """Add what the same operator decided elsewhere."""
        for key in ("verdicts", "yes", "yes_before", "margins", "masses", "calibration_calls"):
            setattr(self, key, getattr(self, key) + getattr(other, key))
        self.calibrated |= other.calibrated
        self.shift = other.shift or self.shift

    def __str__(self) -> str:
        count = max(self.verdicts, 1)
        text = (
            f"{self.verdicts:,} verdicts, {self.yes:,} yes; mean margin "
            f"{self.margins / count:.2f} nats, both answers {self.masses / count:.2f} of the mass"
        )
        if self.calibrated or self.shift:
            text += f"; calibrated by {-self.shift:+.2f} nats, {self.yes_before:,} yes before"
        return text


class RowError(NamedTuple):
    """An answer that became NULL, or is not whole."""

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
        self.decisions: dict[str, Decisions] = {}
        self._lock = threading.Lock()

    def null(self, operator: str, reason: str, detail: str = "", row: int = -1) -> None:
        """Count a NULL; keep its detail where it is an error."""
        with self._lock:
            self.nulls.setdefault(operator, Counter())[reason] += 1
            if reason in LISTED and len(self.errors) < MAX_ERRORS:
                self.errors.append(RowError(row, operator, reason, detail))

    def verdict(self, operator: str, margin: float, shift: float, mass: float) -> None:
        """Note the log odds of a verdict, before calibration."""
        found = self.decisions.setdefault(operator, Decisions())
        found.verdicts += 1
        found.yes += margin > shift
        found.yes_before += margin > 0
        found.margins += abs(margin - shift)
        found.masses += mass

    def calibrated(self, operator: str, shift: float, calls: int) -> None:
        """Note the calibration of a predicate."""
        found = self.decisions.setdefault(operator, Decisions())
        found.shift, found.calibrated = shift, True
        found.calibration_calls += calls


@dataclass(slots=True, repr=False)
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
    decisions: dict[str, Decisions] = field(default_factory=dict)
    """Margins and calibration of the predicates, by operator."""
    row_errors: list[RowError] = field(default_factory=list)
    trajectory: list[Sample] = field(default_factory=list, repr=False)
    """Budgets and queues of plans with a join over time; the last 10,000 changes of each pipeline."""

    def errors(self) -> pl.DataFrame:
        """Return the answers that became NULL, or are not whole, as a frame (row, operator, reason, detail)."""
        import polars as pl

        schema = {"row": pl.Int64, "operator": pl.String, "reason": pl.String, "detail": pl.String}
        return pl.DataFrame(self.row_errors, schema=schema, orient="row")

    def merge(self, other: Profile) -> None:
        """Add another query's part of the same run."""
        for name, counts in other.operators.items():
            self.operators.setdefault(name, OperatorCounts()).add(counts)
        for name, decisions in other.decisions.items():
            self.decisions.setdefault(name, Decisions()).add(decisions)
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
        restored = [f"{name} {c.restored:,}" for name, c in self.operators.items() if c.restored]
        if restored:
            lines.append(f"answers kept by earlier runs: {', '.join(restored)}")
        lines += [f"{name}: {made}" for name, made in self.decisions.items()]
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
        if e.rebuilt:
            lines.append(f"the engine failed and was started again {e.rebuilt} times")
        if e.shrunk:
            lines.append(f"prefixes went too early: the memory budget shrank {e.shrunk} times")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

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
