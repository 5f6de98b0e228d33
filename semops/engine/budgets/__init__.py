"""Admission controllers by name: who may take KV memory next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from semops.engine.budgets.demand import Demanded
from semops.engine.budgets.kalypso import Kalypso
from semops.engine.budgets.static import Static
from semops.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from semops.engine.budgets.controller import Controller
    from semops.engine.ledger import Ledger
    from semops.engine.task import QueryState

    Factory = Callable[[QueryState, Ledger, str], Controller]

CONTROLLERS: Final[dict[str, Factory]] = {
    "demand": Demanded,
    "kalypso": Kalypso,
    "static": Static,
}
"""A factory takes the query, the ledger, and what follows a colon in the controller's name."""


def new_controller(name: str, query: QueryState, ledger: Ledger) -> Controller:
    """Return a new controller for a query.

    Parameters
    ----------
    name
        ``demand``, ``kalypso`` or ``static``; ``kalypso:ALPHA:BETA`` and ``static:1:9`` set their
        parameters.

    Raises
    ------
    ConfigError
        If there is none of that name, or a parameter is not a positive number.
    """
    kind, _, parameters = name.partition(":")
    if kind not in CONTROLLERS:
        listed = ", ".join(map(repr, CONTROLLERS))
        raise ConfigError(f"controller={name!r} is not known; choose one of {listed}.")
    return CONTROLLERS[kind](query, ledger, parameters)
