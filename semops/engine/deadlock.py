"""The deadlock monitor: an engine that can neither run nor evict says nothing, so we must look.

With all blocks pinned the engine's ``step`` returns nothing forever. The monitor sees requests that
wait while none runs; it then drops all pins, and eviction goes on as with virtual pinning.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semops.engine import completion
from semops.errors import CapacityError

if TYPE_CHECKING:
    from semops.engine.scheduler import Scheduler

PATIENCE_S = 1.0
"""How long nothing may run while requests wait, in seconds."""

logger = logging.getLogger("semops.engine.deadlock")


@dataclass(slots=True)
class Monitor:
    """Since when nothing has moved."""

    stuck_since_s: float | None = None
    recoveries: int = 0
    """Recoveries since anything moved."""


def check(scheduler: Scheduler, *, progressed: bool) -> None:
    """Look whether the backend is stuck, and free it.

    Raises
    ------
    CapacityError
        If requests wait although nothing is pinned any more.
    """
    monitor = scheduler.monitor
    running, waiting = scheduler.backend.progress() if scheduler.running else (0, 0)
    if progressed or running or not waiting or scheduler.backend.busy_waiting():
        monitor.stuck_since_s = None
        if progressed:
            monitor.recoveries = 0
        return
    now = scheduler.clock()
    if monitor.stuck_since_s is None:
        monitor.stuck_since_s = now
        return
    if now - monitor.stuck_since_s < PATIENCE_S:
        return
    monitor.stuck_since_s = None
    monitor.recoveries += 1
    if monitor.recoveries > 2:
        error = CapacityError(
            f"{waiting} requests wait and none can run although nothing is pinned. The KV memory "
            f"holds {scheduler.capabilities.kv_tokens} tokens. Raise kv_tokens= or kv_memory= in "
            f"semops.configure, or shorten the rows."
        )
        completion.fail_all(list(scheduler.queries.values()), scheduler, error)
        return
    dropped = scheduler.pins.drop_all()
    scheduler.events.deadlocks += 1
    scheduler.pins.enabled = False
    logger.warning(
        "nothing ran for %.0f s: dropped %d pins, going on with virtual pinning",
        PATIENCE_S,
        dropped,
    )
