"""The volume of a request: the KV memory that it holds, summed over the steps in which it holds it.

References
----------
Kong et al., "Geometry-Aware Online Scheduling", arXiv 2606.22327: ``v = s*o + o*(o + 1)/2``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """What an ordering policy knows of a waiting request."""

    arrival: int
    """Number in the order of arrival."""
    prompt_tokens: int
    """``s``, tokens of the prompt."""
    output_tokens: float = 1.0
    """``o``, predicted tokens of the answer."""
    cached_tokens: int = 0
    """``h``, prompt tokens whose KV others hold already."""
    sharers: int = 1
    """``k``, how many requests share them, this one included."""


def volume(prompt_tokens: float, output_tokens: float) -> float:
    """Return ``v = s*o + o*(o + 1)/2``, in tokens times steps.

    Examples
    --------
    >>> volume(prompt_tokens=3, output_tokens=2)  # holds 4 tokens, then 5
    9.0
    """
    return prompt_tokens * output_tokens + output_tokens * (output_tokens + 1) / 2


def effective_volume(job: Job) -> float:
    """Return what a request adds to the resident memory: ``(s - h)*o + o*(o + 1)/2 + (h/k)*o``.

    Examples
    --------
    >>> alone = Job(arrival=0, prompt_tokens=100, output_tokens=10)
    >>> child = Job(arrival=0, prompt_tokens=100, output_tokens=10, cached_tokens=90, sharers=9)
    >>> effective_volume(alone), effective_volume(child)
    (1055.0, 255.0)
    """
    own = job.prompt_tokens - job.cached_tokens + job.cached_tokens / max(job.sharers, 1)
    return volume(own, job.output_tokens)
