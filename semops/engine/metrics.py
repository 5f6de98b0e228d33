"""Counters of a run, per operator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class OperatorCounts:
    """What one operator did.

    Examples
    --------
    >>> counts = OperatorCounts(calls=2, prompt_tokens=100, cached_tokens=64)
    >>> counts.computed_tokens, counts.cached_share
    (36, 0.64)
    """

    rows: int = 0
    """Tuples that reached the operator."""
    kept: int = 0
    """Tuples that went on after it."""
    calls: int = 0
    """Requests that the model answered, retries excluded."""
    retries: int = 0
    """Requests that were cut off at an estimated bound and sent again."""
    reused: int = 0
    """Tuples that got the answer of an equal request."""
    restored: int = 0
    """Tuples that got an answer kept by an earlier run."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose KV came from the prefix cache."""
    output_tokens: int = 0
    busy_s: float = 0.0
    """Wall time during which at least one of its requests was in the engine, in seconds."""
    nulls: Counter[str] = field(default_factory=Counter)
    """Undecided or failed answers by reason."""
    in_flight: int = 0
    since_s: float = 0.0

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that had to be prefilled."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def cached_share(self) -> float:
        """Cached over all prompt tokens, 0 without calls."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def add(self, other: OperatorCounts) -> None:
        """Add what the same operator did elsewhere: in another query of a run, or twice in a plan."""
        for key in (
            "rows", "kept", "calls", "retries", "reused", "restored", "prompt_tokens", "cached_tokens",
            "output_tokens", "busy_s",
        ):  # fmt: skip
            setattr(self, key, getattr(self, key) + getattr(other, key))
        self.nulls.update(other.nulls)

    def enter(self, now_s: float) -> None:
        """Note that a request went to the engine."""
        if self.in_flight == 0:
            self.since_s = now_s
        self.in_flight += 1

    def leave(self, now_s: float) -> None:
        """Note that a request left the engine."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self.busy_s += now_s - self.since_s


@dataclass(slots=True)
class EngineEvents:
    """Rare events of a run."""

    deadlocks: int = 0
    """Times the deadlock monitor had to drop pins."""
    solo: int = 0
    """Tasks that ran alone since they need more than the budget."""
    shrunk: int = 0
    """Times the budget shrank, since children missed prefixes that nobody had pinned."""
    rebuilt: int = 0
    """Times the engine was started again after a failed step."""
    overloaded: int = 0
    """Times the rate of queries rose above what the engine sustains."""
    parked: int = 0
    """Times the consumer stopped pulling and the query gave its memory back."""
