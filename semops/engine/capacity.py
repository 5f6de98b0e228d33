"""Capacity: how many requests a second an engine sustains, from its memory, its step time and their lengths.

A request holds KV memory for some steps; the sum over them is its *area* ``g``. An engine with ``M`` tokens
that steps every ``b`` seconds can't end more than ``mu = M / (b * E[g])`` requests a second, and admission
reaches the share ``eta`` of it. Seats and the tokens of one step are further limits; the least one binds.

References
----------
Nie, Si, Zhou, "A Queueing-Theoretic Framework for LLM Inference", arXiv 2605.04595: ``g``, ``mu``, mixtures,
replicas, and stability below ``1 - delta``. Cached prefixes, blocks, seats, tokens of a step and ``eta`` are
ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from semops.engine.time_model import TimeModel
from semops.errors import ConfigError

EFFICIENCY: Final = {"lookahead": 0.987, "optimistic": 0.994}
"""Share of ``mu`` that these modes reach, measured in the queue model; reservations have a formula."""
UTILISATION = 0.9
"""Most load per unit of capacity that :func:`replicas_for` plans with."""
SLO_UTILISATION = 0.7
"""The same where latency matters."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The lengths of a request, or of a class of requests."""

    prompt_tokens: float
    """``s``."""
    output_tokens: float
    """``o``."""
    cached_tokens: float = 0.0
    """``h``, prompt tokens found in the prefix cache."""
    sharers: float = 1.0
    """Requests that hold the cached tokens together."""
    bound_tokens: float | None = None
    """What a ledger reserves for the answer; None: ``o``."""
    share: float = 1.0
    """Weight among the shapes of a load."""


@dataclass(frozen=True, slots=True)
class EngineSize:
    """What an engine can hold and do."""

    kv_tokens: float
    """``M``, in tokens."""
    chunk_tokens: int
    """Prompt tokens of a request computed in one step."""
    max_running: int = 1 << 30
    """Seats: most requests in a batch."""
    block_tokens: int = 1
    """KV is taken in blocks of so many tokens."""
    overlap: bool = False
    """Whether the step that ends a prompt decodes the first token, as in vLLM; the paper has one more."""
    step_tokens: float = math.inf
    """Most tokens of one step, of all requests together."""


class Limits(NamedTuple):
    """Requests that can end in a step, by what limits them."""

    memory: float
    seats: float
    tokens: float

    @property
    def binding(self) -> str:
        """The name of the least."""
        return min(zip(self, self._fields, strict=True))[1]


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an engine sustains of a load."""

    mu: float
    """Service rate if admission were perfect, in requests a second."""
    efficiency: float
    """``eta``: the share of ``mu`` that the admission mode reaches."""
    delta: float
    """The largest request's share of the memory."""
    step_s: float
    """``b``, seconds of a step under this load."""
    area: float
    """``E[g]``, tokens times steps of a request."""
    limits: Limits
    """At the admission mode's efficiency."""

    @property
    def rate(self) -> float:
        """What is sustained with this admission, in requests a second: ``mu * eta``."""
        return self.mu * self.efficiency

    @property
    def stable_rate(self) -> float:
        """Below this rate the queue stays bounded, in requests a second: ``mu * eta * (1 - delta)``."""
        return self.rate * (1 - self.delta)


def chunks(shape: Shape, chunk_tokens: int) -> int:
    """Return ``n``, the steps in which the prompt is computed.

    Examples
    --------
    >>> chunks(Shape(100, 1), 64), chunks(Shape(100, 1, cached_tokens=64), 64)
    (2, 1)
    """
    return max(math.ceil((shape.prompt_tokens - shape.cached_tokens) / chunk_tokens), 1)


def residence(shape: Shape, size: EngineSize) -> float:
    """Return for how many steps a request stays.

    Examples
    --------
    >>> residence(Shape(128, 10), EngineSize(kv_tokens=6_000, chunk_tokens=64))
    12.0
    """
    return float(chunks(shape, size.chunk_tokens) + shape.output_tokens - size.overlap)


def area(shape: Shape, size: EngineSize) -> float:
    """Return ``g = sum_k min(k*c + h, s) + s*o + o*(o + 1)/2``, in tokens times steps.

    Cached tokens count once among their sharers; each step's tokens are rounded up to blocks, on average
    by half a block.

    Examples
    --------
    >>> area(Shape(128, 10), EngineSize(kv_tokens=6_000, chunk_tokens=64))  # 64 + 128 + 1280 + 55
    1527.0
    """
    s, o, h = shape.prompt_tokens, shape.output_tokens, shape.cached_tokens
    n = chunks(shape, size.chunk_tokens)
    full = n - 1  # chunks before the last one, which ends the prompt
    prefill = full * h + size.chunk_tokens * full * (full + 1) / 2 + s
    decoded = o - size.overlap  # steps after those of the prompt
    held = prefill + s * decoded + decoded * (decoded + 1) / 2
    steps = n + decoded
    rounding = (size.block_tokens - 1) / 2 * steps
    shared = h * (1 - 1 / max(shape.sharers, 1)) * steps
    return held + rounding - shared


def reserved(shape: Shape, size: EngineSize, *, bounded: bool = False) -> float:
    """Return what a reservation takes, in tokens: prompt and answer (``bounded``: its bound) in blocks.

    Examples
    --------
    >>> reserved(Shape(100, 20), EngineSize(6_000, 64, block_tokens=32))
    128.0
    """
    answer = shape.output_tokens
    if bounded and shape.bound_tokens is not None:
        answer = shape.bound_tokens
    own = shape.prompt_tokens - shape.cached_tokens * (1 - 1 / max(shape.sharers, 1)) + answer
    return float(math.ceil(own / size.block_tokens) * size.block_tokens)


def efficiency(shapes: Sequence[Shape], size: EngineSize, mode: str) -> float:
    """Return ``eta``, the share of ``mu`` that an admission mode reaches.

    A reservation is held from the first step to the last, so ``eta = E[g] / E[(s + o)*(n + o)]`` for
    ``peak``, with the bound in place of ``o`` for ``ledger``; and less of the memory is used, since the
    next request doesn't fit into the last bit.

    Raises
    ------
    ConfigError
        If there is no such mode.

    Examples
    --------
    >>> load = [Shape(s, o) for s in range(20, 201, 20) for o in range(20, 201, 20)]
    >>> round(efficiency(load, EngineSize(6_000, 64), "peak"), 2)
    0.7
    """
    if mode in EFFICIENCY:
        return EFFICIENCY[mode]
    if mode not in {"peak", "ledger"}:
        names = ", ".join(map(repr, ("ledger", "peak", *EFFICIENCY)))
        raise ConfigError(f"admission={mode!r} is not known; choose one of {names}.")
    bounded = mode == "ledger"
    sizes = [reserved(shape, size, bounded=bounded) for shape in shapes]
    held = _mean(
        [r * residence(shape, size) for r, shape in zip(sizes, shapes, strict=True)], shapes
    )
    usable = size.kv_tokens - _left_over(sizes, shapes, size.kv_tokens)
    return _mean([area(shape, size) for shape in shapes], shapes) / held * usable / size.kv_tokens


def capacity(
    shapes: Sequence[Shape],
    size: EngineSize,
    step: float | TimeModel,
    mode: str = "ledger",
    largest: Shape | None = None,
) -> Capacity:
    """Return what an engine sustains of a load.

    Parameters
    ----------
    shapes
        Requests of the load, or its classes with their shares.
    size
        The engine.
    step
        ``b`` in seconds, or a time model: then ``b`` follows from what a step computes at this load.
    mode
        Admission mode.
    largest
        For ``delta``; None: the largest of ``shapes``.

    Raises
    ------
    ConfigError
        If there are no shapes, or the mode is not known.

    Examples
    --------
    >>> load = [Shape(prompt_tokens=128, output_tokens=10)]
    >>> found = capacity(
    ...     load, EngineSize(kv_tokens=6_000, chunk_tokens=64), step=0.02, mode="lookahead"
    ... )
    >>> round(found.mu, 1), round(found.rate, 1), found.limits.binding
    (196.5, 193.9, 'memory')
    """
    if not shapes:
        raise ConfigError("a load needs at least one request; give its prompt and output lengths.")
    held = _mean([area(shape, size) for shape in shapes], shapes)
    stay = _mean([residence(shape, size) for shape in shapes], shapes)
    prompt = _mean([s.prompt_tokens - s.cached_tokens for s in shapes], shapes)
    decoded = _mean([s.output_tokens - size.overlap for s in shapes], shapes)
    eta = efficiency(shapes, size, mode)
    fixed = Limits(math.inf, size.max_running / stay, size.step_tokens / (prompt + decoded))
    limits = fixed._replace(memory=size.kv_tokens / held * eta)
    a_step = min(limits)
    step_s = step if isinstance(step, int | float) else _step_s(step, a_step, prompt, decoded, held)
    ideal = min(fixed._replace(memory=size.kv_tokens / held))
    top = largest or max(shapes, key=lambda s: s.prompt_tokens + s.output_tokens)
    delta = min((top.prompt_tokens + top.output_tokens) / size.kv_tokens, 1.0)
    return Capacity(ideal / step_s, a_step / ideal, delta, step_s, held, limits)


def mixture(rates: Sequence[float], shares: Sequence[float]) -> float:
    """Return the rate of a mixture of classes: ``mu = 1 / sum(q_l / mu_l)``.

    Examples
    --------
    >>> round(mixture([10.0, 2.0], [0.5, 0.5]), 3)
    3.333
    """
    return sum(shares) / sum(q / mu for q, mu in zip(shares, rates, strict=True))


def replicas_for(rate: float, found: Capacity, *, slo: bool = False) -> int:
    """Return how many engines sustain a rate: ``ceil(lambda / (mu * eta * rho))``.

    ``rho = min(0.9, 1 - delta)``, and 0.7 at most where latency matters.

    Parameters
    ----------
    rate
        ``lambda``, requests a second.
    found
        Of one engine.
    slo
        Whether latency matters.

    Examples
    --------
    >>> one = capacity([Shape(128, 10)], EngineSize(6_000, 64), step=0.02, mode="lookahead")
    >>> replicas_for(1_000.0, one)
    6
    """
    rho = min(UTILISATION, 1 - found.delta)
    if slo:
        rho = min(rho, SLO_UTILISATION)
    # One request that fills the memory is served alone, whatever the stability bound says.
    return max(math.ceil(rate / (found.rate * (rho or UTILISATION))), 1)


def _step_s(model: TimeModel, a_step: float, prompt: float, decoded: float, held: float) -> float:
    """Return the mean seconds of a step in which so many requests end and as many start."""
    return (
        model.base_s
        + model.prefill_s * a_step * prompt
        + model.decode_s * a_step * decoded
        + model.context_s * a_step * held
    )


def _mean(values: Sequence[float], shapes: Sequence[Shape]) -> float:
    weights = [shape.share for shape in shapes]
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)


def _left_over(sizes: Sequence[float], shapes: Sequence[Shape], memory: float) -> float:
    """Return how much memory the next reservation doesn't fit into, on average, in tokens."""
    if min(sizes) == max(sizes):
        return memory % sizes[0] if sizes[0] <= memory else 0.0
    # The mean residual of a size, as for the waiting time at a bus stop.
    mean = _mean(sizes, shapes)
    return min(_mean([size * size for size in sizes], shapes) / (2 * mean), memory / 2)
