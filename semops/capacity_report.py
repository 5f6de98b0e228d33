"""What an engine sustains, in the user's terms: requests a second, engines needed, seconds of a plan."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from semops import session
from semops.engine import capacity as model
from semops.engine.capacity import Capacity, EngineSize, Shape, replicas_for
from semops.engine.ordering import admission_mode, ordering
from semops.engine.ordering.queueing import Arrival, serve
from semops.engine.probe import time_steps
from semops.engine.time_model import TimeModel
from semops.errors import CapacityError, ConfigError, MissingExtraError
from semops.polars_source import start_engine
from semops.runtime.estimate import estimate

if TYPE_CHECKING:
    import os

    from semops.planner.lower import PhysicalPlan

QUEUE_LOADS = (0.8, 1.25)
"""Shares of the sustained rate that a plot shows."""
QUEUE_REQUESTS = 1_500
LONGEST = 10**9
"""Most tokens of a request."""
BATCH = 256
"""Prompt tokens of a request computed in a step, where no engine says so."""

Lengths = pl.DataFrame | Iterable[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """What one engine sustains of a load, and how many are needed.

    Examples
    --------
    >>> import semops
    >>> print(semops.capacity([(512, 64), (2_048, 16)], kv_tokens=100_000, step_s=0.03, rate=200.0))
    sustained: 75.5 requests/s, memory-bound
    mu 85.8, eta 0.88; stable below 73.9
    step 0.03 s, KV for 100,000 tokens
    a request takes 38,868 tokens x steps
    engines for 200 requests/s: 3
    """

    capacity: Capacity
    size: EngineSize
    mode: str
    """Admission mode."""
    shapes: tuple[Shape, ...]
    rate: float | None = None
    """Requests a second that are asked for."""
    slo: bool = False
    """Whether latency matters."""

    @property
    def engines(self) -> int | None:
        """How many engines like this one sustain the rate."""
        if self.rate is None:
            return None
        return replicas_for(self.rate, self.capacity, slo=self.slo)

    def __str__(self) -> str:
        found = self.capacity
        lines = [
            f"sustained: {found.rate:.3g} requests/s, {found.limits.binding}-bound",
            f"mu {found.mu:.3g}, eta {found.efficiency:.2f}; stable below {found.stable_rate:.3g}",
            f"step {found.step_s:.3g} s, KV for {self.size.kv_tokens:,.0f} tokens",
            f"a request takes {found.area:,.0f} tokens x steps",
        ]
        if self.rate is not None:
            lines.append(f"engines for {self.rate:g} requests/s: {self.engines}")
        return "\n".join(lines)

    def queue(self, load: float, seed: int = 0) -> list[int]:
        """Return how many requests wait, step by step, if they come at a share of the sustained rate.

        Parameters
        ----------
        load
            Rate of arrivals over the sustained rate.
        seed
            Of their times.
        """
        # The model has one token a step and no limit on the tokens of a step.
        size = replace(self.size, overlap=False, block_tokens=1, step_tokens=float("inf"))
        a_step = model.capacity(self.shapes, size, 1.0, self.mode).rate
        dice = random.Random(seed)
        weights = [shape.share for shape in self.shapes]
        arrivals, step = [], 0.0
        for shape in dice.choices(self.shapes, weights, k=QUEUE_REQUESTS):
            step += dice.expovariate(load * a_step)
            bound = None if shape.bound_tokens is None else int(shape.bound_tokens)
            arrivals.append(
                Arrival(
                    round(shape.prompt_tokens),
                    max(round(shape.output_tokens), 1),
                    int(step),
                    bound_tokens=bound,
                )
            )
        outcome = serve(
            arrivals,
            int(size.kv_tokens),
            ordering("fcfs"),
            admission_mode(self.mode),
            chunk=size.chunk_tokens,
            seats=size.max_running,
            steps=arrivals[-1].at_step,
        )
        return outcome.queue

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the length of the queue under and over the limit.

        Raises
        ------
        MissingExtraError
            If matplotlib isn't installed.
        """
        try:
            import matplotlib as mpl

            mpl.use("Agg")
            from matplotlib import pyplot as plt
        except ImportError as error:
            raise MissingExtraError(
                "a plot needs matplotlib. Install it with: pip install 'kalypso-semops[bench]'"
            ) from error
        figure, axes = plt.subplots(figsize=(7, 4))
        for load in QUEUE_LOADS:
            axes.plot(self.queue(load), label=f"{load:g} x {self.capacity.rate:.3g} requests/s")
        axes.set_xlabel(f"engine steps of {self.capacity.step_s:.3g} s")
        axes.set_ylabel("requests that wait")
        axes.legend()
        figure.tight_layout()
        figure.savefig(path, dpi=120)
        plt.close(figure)


def capacity(
    lengths: Lengths,
    *,
    kv_tokens: int | None = None,
    step_s: float | TimeModel | None = None,
    chunk_tokens: int | None = None,
    max_running: int | None = None,
    admission: str | None = None,
    rate: float | None = None,
    slo: bool = False,
    plot: str | os.PathLike[str] | None = None,
) -> CapacityReport:
    """Return how many requests a second an engine sustains, and how many engines a rate needs.

    With ``kv_tokens`` and ``step_s`` it is worked out for an engine that need not be here. Else the
    process's own engine is started, and timed for some seconds if it has run nothing yet.

    Parameters
    ----------
    lengths
        Prompt and answer tokens of requests like those to come: pairs, or a frame with the columns
        ``prompt_tokens`` and ``output_tokens``.
    kv_tokens
        KV memory, in tokens.
    step_s
        Seconds of an engine step under this load, or a time model.
    chunk_tokens
        Prompt tokens of a request computed in a step; 256 where no engine says so.
    max_running
        Most requests in a batch; no limit where no engine says so.
    admission
        Admission mode; default that of the settings.
    rate
        Requests a second to be sustained.
    slo
        Whether latency matters: then engines are planned with 70 % load at most, else with 90 %.
    plot
        Where to draw the length of the queue at 0.8 and 1.25 of the sustained rate.

    Raises
    ------
    ConfigError
        If there are no lengths, or one is not positive, or an argument is not allowed.
    CapacityError
        If a request alone needs more than the memory.
    MissingExtraError
        With ``plot``, if matplotlib isn't installed.

    Examples
    --------
    >>> import semops
    >>> found = semops.capacity([(1_000, 100)], kv_tokens=50_000, step_s=0.02, rate=100.0)
    >>> found.engines
    6
    """
    shapes = tuple(_shapes(lengths))
    mode = session.settings().admission if admission is None else admission
    admission_mode(mode)
    _check_positive(
        kv_tokens=kv_tokens,
        rate=rate,
        chunk_tokens=chunk_tokens,
        max_running=max_running,
        step_s=step_s if not isinstance(step_s, TimeModel) else None,
    )
    size: EngineSize
    if kv_tokens is None or step_s is None:
        engine = session.engine()
        time_steps(engine)
        scheduler = engine.scheduler
        size = scheduler.load.size
        if kv_tokens is not None:
            size = replace(size, kv_tokens=kv_tokens)
        if step_s is None:
            step_s = scheduler.meter.model()
        if step_s is None:
            raise ConfigError(
                f"the backend {engine.capabilities.backend!r} doesn't say what its steps compute. Give "
                f"step_s=, the seconds of an engine step."
            )
    else:
        size = EngineSize(kv_tokens, BATCH)
    changes: dict[str, Any] = {"chunk_tokens": chunk_tokens, "max_running": max_running}
    size = replace(size, **{key: value for key, value in changes.items() if value is not None})
    largest = max(shapes, key=lambda shape: shape.prompt_tokens + shape.output_tokens)
    if largest.prompt_tokens + largest.output_tokens > size.kv_tokens:
        raise CapacityError(
            f"a request of {largest.prompt_tokens:g} and {largest.output_tokens:g} tokens can't run in KV "
            f"memory for {size.kv_tokens:,.0f}. Leave such requests out, or give more kv_tokens."
        )
    report = CapacityReport(
        model.capacity(shapes, size, step_s, mode), size, mode, shapes, rate, slo
    )
    if plot is not None:
        report.plot(plot)
    return report


def estimate_lines(plan: PhysicalPlan, within_s: float | None = None) -> Iterator[str]:
    """Yield what a plan will ask and how long that takes, as text.

    Raises
    ------
    ConfigError
        If ``within_s`` is not positive.
    """
    _check_positive(within_s=within_s)
    engine, prompter = start_engine()
    time_steps(engine)
    yield from estimate(plan, engine, prompter).lines(within_s)


def _check_positive(**values: Any) -> None:
    for name, value in values.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (number and math.isfinite(value) and value > 0):
            raise ConfigError(f"{name}={value!r} must be a number above 0.")


def _shapes(lengths: Lengths) -> Iterator[Shape]:
    if isinstance(lengths, pl.DataFrame):
        missing = [c for c in ("prompt_tokens", "output_tokens") if c not in lengths.columns]
        if missing:
            listed = ", ".join(map(repr, lengths.columns)) or "none"
            raise ConfigError(
                f"lengths has no column {missing[0]!r}; it needs 'prompt_tokens' and 'output_tokens'. "
                f"Columns here: {listed}."
            )
        pairs: list[tuple[Any, Any]] = lengths.select("prompt_tokens", "output_tokens").rows()
    else:
        pairs = _pairs(lengths)
    if not pairs:
        raise ConfigError(
            "lengths is empty; give prompt and answer tokens of at least one request."
        )
    for prompt, output in pairs:
        for value in (prompt, output):
            known = isinstance(value, (int, float)) and math.isfinite(value)
            if not known or not 0 < value <= LONGEST:
                raise ConfigError(
                    f"lengths holds ({prompt!r}, {output!r}); both must be tokens, more than 0 and at most "
                    f"{LONGEST:,}."
                )
        yield Shape(float(prompt), float(output))


def _pairs(lengths: Any) -> list[tuple[Any, Any]]:
    try:
        return [(prompt, output) for prompt, output in lengths]
    except (TypeError, ValueError):
        raise ConfigError(
            f"lengths={type(lengths).__name__} must be pairs (prompt tokens, answer tokens), or a frame with "
            f"the columns 'prompt_tokens' and 'output_tokens'."
        ) from None
