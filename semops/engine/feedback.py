"""Hit feedback: without pins, children that miss their parent's prefix shrink the budget.

Virtual pinning relies on the ledger's figure of the memory being right. Where somebody else takes memory,
or blocks go sooner than thought, children find less in the cache than their parent left there; then fewer
tuples may be in flight, until children hit again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semops.engine.ledger import Ledger
    from semops.engine.plan import Answer
    from semops.engine.scheduler import Scheduler
    from semops.engine.task import Task

WEIGHT = 0.05
"""Weight of a new child in the running hit ratio."""
LEAST_HIT = 0.9
"""Below this running hit ratio the budget shrinks."""
SHRINK = 0.95
"""What is left of the budget each time."""
FLOOR = 0.5
"""The budget never falls below this share of what the memory allows."""
GROW = 0.01
"""Share of the memory that comes back after :data:`GOOD_CHILDREN` hits."""
GOOD_CHILDREN = 100


class HitFeedback:
    """Keeps the ledger's budget at what the prefix cache really holds.

    Parameters
    ----------
    ledger
        Its budget follows.

    Examples
    --------
    >>> from semops.engine.ledger import Ledger
    >>> feedback = HitFeedback(Ledger(kv_tokens=3_200, block_tokens=32))
    >>> shrunk = [feedback.observe(cached=0, expected=64) for _ in range(3)]
    >>> shrunk, feedback.share
    ([False, False, True], 0.95)
    """

    __slots__ = ("_full", "_good", "_ledger", "ratio", "share")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._full = ledger.budget
        self._good = 0
        self.ratio = 1.0
        """Running share of the expected tokens that children found in the cache."""
        self.share = 1.0
        """Share of the budget that may be given out."""

    def observe(self, cached: int, expected: int) -> bool:
        """Take what a child found of the tokens it should have found; return whether that shrinks."""
        hit = min(cached / expected, 1.0)
        self.ratio += WEIGHT * (hit - self.ratio)
        if hit >= LEAST_HIT:
            self._good += 1
            if self._good >= GOOD_CHILDREN:
                self._good = 0
                self.share = min(self.share + GROW, 1.0)
        if self.ratio >= LEAST_HIT:
            return False
        # What was just seen came of the larger budget: the smaller one starts with a clean slate.
        self.ratio = 1.0
        self.share = max(self.share * SHRINK, FLOOR)
        return True

    def apply(self) -> None:
        """Set the ledger's budget; what is reserved already is never cut into."""
        ledger = self._ledger
        block = ledger.block_tokens
        target = max(int(self._full * self.share) // block * block, block)
        ledger.budget = max(target, min(ledger.used, self._full))


def expect(scheduler: Scheduler, task: Task) -> None:
    """Note what a task's first request should find of its parent's prefix, if that is computed."""
    task.expected = 0
    parent = task.parent
    if parent is None or not parent.warm or task.step or task.attempt or scheduler.pins.enabled:
        return
    assert task.request is not None  # noqa: S101 - set before it is sent
    block = scheduler.capabilities.block_tokens
    prefix = len(parent.query.program.prefix(parent.item, parent.stage))
    task.expected = min(prefix, task.request.prompt_tokens - 1) // block * block


def observe(scheduler: Scheduler, task: Task, answer: Answer) -> None:
    """Compare what a task's request found with what was expected."""
    if task.expected and scheduler.capabilities.prefix_reuse and answer.prompt_tokens:
        shrunk = scheduler.feedback.observe(answer.cached_tokens, task.expected)
        scheduler.events.shrunk += shrunk
    task.expected = 0


def keeps_warm(task: Task) -> bool:
    """Return whether a task's last request computed what its children share."""
    if not task.warm or task.request is None:
        return False
    prefix = task.query.program.prefix(task.item, task.stage)
    return tuple(task.request.token_ids[: len(prefix)]) == tuple(prefix)
