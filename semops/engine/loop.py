"""The engine thread: the only one that touches the scheduler and the backend.

Other threads hand it closures through a queue; everything they do to a query happens between two
engine steps, so nothing is evicted in between.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from semops.engine.answers import AnswerMemo
from semops.engine.scheduler import Scheduler, StepError
from semops.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semops.engine.backend import Backend, Capabilities, Tokenizer

IDLE_POLL_S = 0.05
"""How often an idle engine looks for abandoned queries while memory is reserved, in seconds."""

logger = logging.getLogger("semops.engine.loop")


class EngineThread:
    """Owns a backend and a scheduler.

    Parameters
    ----------
    start_backend
        Builds the backend; called on the engine thread, since some engines may only be used by the
        thread that made them.
    controller
        Name of the admission controller.
    pinning
        ``auto`` or ``virtual``.
    policy, mode, max_wait_s
        As in :class:`~semops.engine.scheduler.Scheduler`.

    Raises
    ------
    Exception
        Whatever ``start_backend`` raises.
    """

    def __init__(
        self,
        start_backend: Callable[[], Backend],
        controller: str = "demand",
        pinning: str = "auto",
        *,
        policy: str = "svf",
        mode: str = "ledger",
        max_wait_s: float | None = None,
    ) -> None:
        self._commands: deque[Callable[[Scheduler], None]] = deque()
        self._wake = threading.Condition()
        self._started = threading.Event()
        self._stop = False
        self._start_error: BaseException | None = None
        self.failure: BaseException | None = None
        """Why the thread ended, where it did so by itself."""
        self.scheduler: Scheduler
        self.content_free = AnswerMemo()
        """What calibration asked already."""
        self._start_backend = start_backend
        self._rebuilt = False
        self._thread = threading.Thread(
            target=self._main,
            args=(partial(_scheduler, controller, pinning, policy, mode, max_wait_s),),
            name="semops-engine",
            daemon=True,
        )
        self._thread.start()
        self._started.wait()
        if self._start_error is not None:
            raise self._start_error

    @property
    def capabilities(self) -> Capabilities:
        """What the backend can do."""
        return self.scheduler.capabilities

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.scheduler.backend.tokenizer

    @property
    def alive(self) -> bool:
        """Whether the engine still takes work."""
        return self._thread.is_alive() and not self._stop and self.failure is None

    def post(self, command: Callable[[Scheduler], None]) -> None:
        """Have a closure run on the engine thread between two steps.

        Raises
        ------
        EngineError
            If the engine has stopped.
        """
        with self._wake:
            if self._stop or self.failure is not None:
                raise self.reason() from self.failure
            self._commands.append(command)
            self._wake.notify()

    def wake(self) -> None:
        """Have an idle engine look again, for example since the consumer wants more."""
        with self._wake:
            self._wake.notify()

    def close(self, timeout_s: float = 30.0) -> None:
        """End all queries and stop; safe to call twice."""
        with self._wake:
            self._stop = True
            self._wake.notify()
        self.join(timeout_s)

    def join(self, timeout_s: float = 30.0) -> None:
        """Wait until a stopping engine has told its queries."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _main(self, scheduler_on: Callable[[Backend], Scheduler]) -> None:
        try:
            self.scheduler = scheduler_on(self._start_backend())
        except BaseException as error:  # noqa: BLE001 - raised again by the constructor
            self._start_error = error
            self._started.set()
            return
        self._started.set()
        try:
            while not self._stop:
                self._round()
        except BaseException as error:
            logger.exception("the engine thread failed")
            self.failure = error
        finally:
            with self._wake:
                self._stop = True
            try:
                while self._commands:  # so that a query posted last is told too
                    self._commands.popleft()(self.scheduler)
                for query in list(self.scheduler.queries.values()):
                    _end_quietly(self.scheduler, query.key, self.reason())
            finally:
                caches = self.scheduler.caches.values()
                _close_quietly([*(c.close for c in caches), self.scheduler.backend.close])

    def reason(self) -> EngineError:
        """Return why a query can't go on."""
        if self.failure is None:
            return EngineError("the engine was closed while the query ran")
        reason = EngineError(f"the engine failed: {type(self.failure).__name__}: {self.failure}")
        reason.__cause__ = self.failure
        return reason

    def _round(self) -> None:
        scheduler = self.scheduler
        while self._commands:
            self._commands.popleft()(scheduler)
        try:
            busy = scheduler.turn()
        except StepError as failure:
            self._start_again(failure.__cause__ or failure)
            return
        if busy:
            return
        with self._wake:
            if not self._commands and not self._stop:
                self._wake.wait(IDLE_POLL_S if scheduler.queries else None)

    def _start_again(self, error: BaseException) -> None:
        """Go on with a new backend after a failed step, once in the life of the engine.

        Raises
        ------
        Exception
            The failure itself, where it is the second one or the device is lost with it.
        """
        if self._rebuilt or lost_device(error):
            raise error
        self._rebuilt = True
        logger.warning(
            "an engine step failed (%s); the engine is started again and unfinished requests are "
            "asked again",
            type(error).__name__,
        )
        _close_quietly([self.scheduler.backend.close])
        self.scheduler.replace_backend(self._start_backend())


def lost_device(error: BaseException) -> bool:
    """Return whether a failure leaves the process without a usable GPU.

    After an error on the device CUDA refuses all further work of the process.

    Examples
    --------
    >>> lost_device(RuntimeError("CUDA error: an illegal memory access was encountered"))
    True
    """
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__name__ == "AcceleratorError" or "CUDA error" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _scheduler(
    controller: str,
    pinning: str,
    policy: str,
    mode: str,
    max_wait_s: float | None,
    backend: Backend,
) -> Scheduler:
    # A simulated engine has a clock of its own.
    clock = getattr(backend, "clock", time.monotonic)
    return Scheduler(
        backend, controller, pinning, clock, policy=policy, mode=mode, max_wait_s=max_wait_s
    )


def _end_quietly(scheduler: Scheduler, key: int, reason: BaseException) -> None:
    """End a query although the backend may be broken, so that its consumer is told."""
    query = scheduler.queries.get(key)
    if query is None:
        return
    scheduler.running.clear()  # a broken backend need not be asked to abort or to unpin
    scheduler.pins.forget()
    scheduler.end_query(query, reason)


def _close_quietly(closings: Sequence[Callable[[], None]]) -> None:
    """Close what may be broken; whoever waits for the thread needs no second error."""
    for close in closings:
        try:
            close()
        except Exception:
            logger.exception("closing the engine failed")
