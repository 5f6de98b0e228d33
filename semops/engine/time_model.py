"""How long an engine step takes: an affine function of what it computes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeModel:
    """Seconds of an engine step: ``t = b0 + a*P + d*D + k*K``.

    Examples
    --------
    >>> TimeModel(0.01, 1e-4, 1e-3, 0.0).seconds(prefill=100, decode=2, context=5_000)
    0.022
    """

    base_s: float = 7e-3
    """``b0``, seconds of a step whatever it does."""
    prefill_s: float = 85e-6
    """``a``, seconds a prompt token computed (``P``)."""
    decode_s: float = 40e-6
    """``d``, seconds a token decoded (``D``)."""
    context_s: float = 15e-9
    """``k``, seconds a token of KV that running requests hold (``K``)."""

    def seconds(self, prefill: int, decode: int, context: int) -> float:
        """Return the seconds of a step."""
        return (
            self.base_s
            + self.prefill_s * prefill
            + self.decode_s * decode
            + self.context_s * context
        )
