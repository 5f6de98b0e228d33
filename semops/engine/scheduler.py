"""The scheduler: rebalance, launch, step, complete.

One tuple goes through all steps of its stage while its prefix is cached. The ledger decides how many
tuples may be in flight, so that no prefix is evicted before its last reader; later stages go first,
since their prefix is already paid for. Single-threaded: whoever owns it calls :meth:`Scheduler.turn`.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from semops.engine import admission, completion, deadlock
from semops.engine.answer_cache import AnswerCache
from semops.engine.bounds import CapBound
from semops.engine.budgets import new_controller
from semops.engine.capacity import Shape
from semops.engine.feedback import HitFeedback
from semops.engine.ledger import Ledger
from semops.engine.lengths import LengthBook
from semops.engine.load import LoadMonitor, size_of
from semops.engine.metrics import EngineEvents
from semops.engine.ordering import admission_mode, ordering
from semops.engine.pinning import Pins
from semops.engine.step_time import StepMeter
from semops.engine.task import QueryState, State, Task
from semops.engine.turns import Patience
from semops.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semops.engine.answers import AnswerMemo
    from semops.engine.backend import Backend
    from semops.engine.demand import Demand
    from semops.engine.plan import Answer, Pipeline, Program, Step, Verdict

PARK_AFTER_S = 1.0
"""A query that nobody has pulled for so long starts nothing new, in seconds."""
ABORT_AFTER_S = 1.4
"""After so long its running requests are taken back too, in seconds."""


class StepError(Exception):
    """A step of the backend failed; the cause says why."""


class CacheFile(NamedTuple):
    """Where answers are kept between runs."""

    path: Path
    limit_bytes: int


class Scheduler:
    """Runs the tasks of all queries of the process on one backend.

    Parameters
    ----------
    backend
        Where requests go.
    controller
        Name of the admission controller.
    pinning
        ``auto`` pins prefixes explicitly where the backend can; ``virtual`` relies on admission.
    clock
        Returns seconds.
    policy
        Name of the ordering policy, for heads of several queries and for tuples of an unordered one.
    mode
        Name of the admission mode. A look ahead counts a step for each :meth:`turn`.
    max_wait_s
        After so long a request goes first, in seconds; None for 20 median latencies.
    lengths
        What is known of answer lengths; by default nothing yet.

    Raises
    ------
    ConfigError
        If there is no such policy or mode.
    """

    def __init__(
        self,
        backend: Backend,
        controller: str = "demand",
        pinning: str = "auto",
        clock: Callable[[], float] = time.monotonic,
        *,
        policy: str = "svf",
        mode: str = "ledger",
        max_wait_s: float | None = None,
        lengths: LengthBook | None = None,
    ) -> None:
        capabilities = backend.capabilities
        self.backend = backend
        self.capabilities = capabilities
        self.controller = controller
        self.clock = clock
        self.ledger = Ledger(capabilities.kv_tokens, capabilities.block_tokens)
        self.pins = Pins(backend, enabled=pinning == "auto" and capabilities.pinning)
        self.feedback = HitFeedback(self.ledger)
        self.events = EngineEvents()
        self.monitor = deadlock.Monitor()
        self.ordering = ordering(policy)
        self.admission = admission_mode(mode)
        self.patience = Patience(max_wait_s)
        self.lengths = LengthBook() if lengths is None else lengths
        self.meter = StepMeter()
        self.load = LoadMonitor(size_of(capabilities, self.ledger.budget), mode)
        self.mean_prompt = 0.0
        """Running mean of the prompt tokens that a task brings along."""
        self.steps = 0
        """Engine steps so far."""
        self.queries: dict[int, QueryState] = {}
        self.running: dict[int, Task] = {}
        """Tasks by the key under which their request is in the backend."""
        self.caches: dict[CacheFile, AnswerCache] = {}
        """Answer caches that a query used."""
        self._keys = 0
        self._weights: float | None = None
        """Of the queries that want memory; None until it is asked for again."""
        self._abort_failure: Exception | None = None

    def next_key(self) -> int:
        """Return a key that no task, request or query had before."""
        self._keys += 1
        return self._keys

    def weights(self) -> float:
        """Return the weight of all queries that want memory; fair shares are parts of it."""
        if self._weights is None:
            self._weights = sum(query.weight for query in self.queries.values() if not query.parked)
        return self._weights

    def add_query(
        self,
        pipeline: Pipeline,
        program: Program,
        demand: Demand,
        post_local: Callable[[Task], None],
        on_end: Callable[[BaseException | None], None],
        memo: AnswerMemo | None = None,
        weight: float = 1.0,
        cache: CacheFile | None = None,
        *,
        ordered: bool = True,
    ) -> QueryState:
        """Register a query; tuples come by :meth:`add_tuple`.

        Raises
        ------
        ConfigError
            If the answer cache can't be used.
        """
        query = QueryState(
            self.next_key(), pipeline, program, demand, post_local, on_end, weight, ordered
        )
        if self.admission.name in {"peak", "optimistic"}:
            query.bounds = {k: CapBound(b.cap, b.one_token) for k, b in query.bounds.items()}
        if memo is not None:
            query.memo = memo
        if cache is not None:
            query.cache = self.open_cache(cache)
        for stage in range(1, len(pipeline.stages)):
            query.child_need[stage] = float(program.floor(stage))
        query.controller = new_controller(self.controller, query, self.ledger)
        self.queries[query.key] = query
        self._weights = None
        now_s, unfinished = self.clock(), len(self.queries)
        self.events.overloaded += self.load.arrived(now_s, unfinished, self.meter)
        return query

    def add_tuple(self, query: QueryState, item: object) -> None:
        """Queue a tuple of the first stage."""
        if not query.ended:
            key = self.next_key()
            task = Task(key, query, item, stage=0, place=(key,))
            task.arrived_s = self.clock()
            if query.ordered:
                query.enqueue(task)
            else:
                query.arrivals.append(task)

    def close_input(self, query: QueryState) -> None:
        """Note that no further tuple will come."""
        query.exhausted = True

    def local_done(self, task: Task, verdict: Verdict) -> None:
        """Take a tuple back whose relational work is done."""
        if task.state is State.HELD:
            with self.guard(task.query):
                completion.advance(self, task, verdict)

    def turn(self) -> bool:
        """Do one round; return whether anything happened or is in the backend.

        Raises
        ------
        StepError
            If the backend failed in a step, or did not take back what it was told to.
        """
        failure = self._abort_failure or self.pins.failure
        if failure is not None:
            raise StepError from failure
        self.feedback.apply()
        for query in list(self.queries.values()):
            self._park_if_abandoned(query)
            if not query.parked:
                query.controller.rebalance(int(admission.fair_share(self, query)))
        admitted = admission.launch(self)
        for query in self.queries.values():
            query.sample(self.clock())
        answers = self._step()
        for key, answer in answers:
            task = self.running.pop(key, None)
            if task is not None:
                with self.guard(task.query):
                    completion.complete(self, task, answer)
        for cache in self.caches.values():
            cache.flush()  # now: whatever ends the process, finished answers are kept
        self.lengths.learn()
        deadlock.check(self, progressed=bool(answers or admitted))
        for query in list(self.queries.values()):
            if query.idle:
                self.end_query(query, None)
        return bool(admitted or answers or self.running)

    def _step(self) -> list[tuple[int, Answer]]:
        """Let the backend step, and time it."""
        if not self.running:
            return []
        used = self.ledger.used / self.ledger.budget
        seats = len(self.running) / self.capabilities.max_running
        started_s = self.clock()
        try:
            answers = self.backend.step()
        except Exception as error:
            raise StepError from error
        self.steps += 1
        self.meter.observe(self.clock() - started_s, max(used, seats), self.backend.last_step())
        return answers

    def open_cache(self, file: CacheFile) -> AnswerCache:
        """Return an answer cache, opening it if no query did yet.

        Raises
        ------
        ConfigError
            If it can't be used.
        """
        known = self.caches.get(file)
        if known is not None and not known.usable:
            known.close()
            known = None
        if known is None:
            known = AnswerCache(file.path, self.capabilities.identity, file.limit_bytes)
            self.caches[file] = known
        return known

    def replace_backend(self, backend: Backend) -> None:
        """Go on with another backend, of the same model and size, after one failed.

        What was running is asked again. Prefixes and pins went with the old one.

        Raises
        ------
        EngineError
            If it is smaller than the old one.
        """
        found, before = backend.capabilities, self.capabilities
        if found.kv_tokens < before.kv_tokens or found.context_tokens < before.context_tokens:
            raise EngineError(
                f"the engine came back with KV memory for {found.kv_tokens:,} tokens instead of "
                f"{before.kv_tokens:,}. Call semops.close(), and run the query again."
            )
        self.backend = backend
        self.capabilities = found
        self.pins = Pins(backend, enabled=self.pins.enabled)
        self._abort_failure = None
        self.events.rebuilt += 1
        for query in list(self.queries.values()):
            self._take_back(query)
            for task in query.live:  # RETAINED and HELD: the prefix is paid for again
                self.ledger.set_reserved(task, 0)
                task.warm = False

    def observe(self, task: Task, step: Step, answer: Answer) -> None:
        """Learn from the answer to a task's request."""
        if not step.one_token:
            self.lengths.observe(
                step.name, step.max_tokens, answer.prompt_tokens, answer.output_tokens
            )
        self.load.answered(
            Shape(
                answer.prompt_tokens,
                answer.output_tokens,
                answer.cached_tokens,
                bound_tokens=max(task.bound, answer.output_tokens),
            )
        )

    @contextmanager
    def guard(self, query: QueryState) -> Iterator[None]:
        """End only this query if its program raises."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - handed to the query's consumer
            self.end_query(query, error)

    def end_query(self, query: QueryState, error: BaseException | None) -> None:
        """Forget a query and give back all that it holds; a second call does nothing."""
        if query.ended:
            return
        query.ended = True
        self._take_back(query)
        self.load.ended(sum(counts.calls for counts in query.counts.values()))
        for queue in (*query.waiting, *query.parents, query.arrivals, query.oldest):
            queue.clear()
        for task in list(query.live):
            self.ledger.set_reserved(task, 0)
            self.pins.drop(task)
            task.state = State.DONE
        query.live.clear()
        query.retained = 0
        self.queries.pop(query.key, None)
        self._weights = None
        query.on_end(error)

    def _park_if_abandoned(self, query: QueryState) -> None:
        idle_s = query.demand.idle_s()
        if idle_s < PARK_AFTER_S:
            if query.parked:
                query.parked, self._weights = False, None
            return
        if not query.parked:
            query.parked, self._weights = True, None
            self.events.parked += 1
        if idle_s >= ABORT_AFTER_S and query.used:
            self._take_back(query)
            for task in query.live:  # RETAINED and HELD: the prefix is paid for again later
                self.ledger.set_reserved(task, 0)
                self.pins.drop(task)

    def _take_back(self, query: QueryState) -> None:
        """Abort the running requests of a query; their tasks wait again, in their order."""
        tasks = [task for task in query.live if task.state is State.RUNNING]
        keys = [key for key, task in self.running.items() if task.query is query]
        for key in keys:
            del self.running[key]
        if keys:
            try:
                self.backend.abort(keys)
            except Exception as error:  # noqa: BLE001 - raised by the next turn; the books come first
                self._abort_failure = error
        now = self.clock()
        for task in sorted(tasks, key=lambda task: task.key, reverse=True):
            if task.submitted_s is not None:
                query.counts[query.pipeline.stages[task.stage].steps[task.step].name].leave(now)
            if task.leader is not None:
                task.leader.followers.remove(task)
                task.leader = None
            elif query.memo.leaders.get(task.request_key) is task:
                del query.memo.leaders[task.request_key]
            # Followers of other queries ask for themselves.
            for follower in completion.released_followers(task):
                if follower.query is not query:
                    completion.requeue(self, follower)
            completion.requeue(self, task)
