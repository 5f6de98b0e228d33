"""Admission controllers by name: who may take KV memory next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from semops.engine.budgets.demand import admits as demand

if TYPE_CHECKING:
    from collections.abc import Callable

    from semops.engine.ledger import Ledger
    from semops.engine.task import Task

    Controller = Callable[[Task, int, Ledger], bool]

CONTROLLERS: Final[dict[str, Controller]] = {"demand": demand}
"""A controller takes (task, need in tokens, ledger) and says whether the task may start now."""
