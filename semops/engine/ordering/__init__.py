"""Ordering policies and admission modes by name."""

from __future__ import annotations

from typing import Final

from semops.engine.ordering.fitting import MODES, Mode
from semops.engine.ordering.policies import POLICIES, Policy
from semops.errors import ConfigError

ORDERINGS: Final[dict[str, Policy]] = {policy.name: policy for policy in POLICIES}


def ordering(name: str) -> Policy:
    """Return an ordering policy.

    Raises
    ------
    ConfigError
        If there is none of that name.

    Examples
    --------
    >>> ordering("svf").lengths
    'predicted'
    """
    if name not in ORDERINGS:
        raise ConfigError(f"ordering={name!r} is not known; choose one of {_listed(ORDERINGS)}.")
    return ORDERINGS[name]


def admission_mode(name: str) -> Mode:
    """Return an admission mode.

    Raises
    ------
    ConfigError
        If there is none of that name.

    Examples
    --------
    >>> admission_mode("optimistic").share
    0.99
    """
    if name not in MODES:
        raise ConfigError(f"admission={name!r} is not known; choose one of {_listed(MODES)}.")
    return MODES[name]


def _listed(names: dict[str, Policy] | dict[str, Mode]) -> str:
    return ", ".join(map(repr, names))
