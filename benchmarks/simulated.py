"""Queries shaped like ContractNLI through the real scheduler, on the simulator's virtual clock.

Filter the contracts; pair each with the hypotheses and ask whether it entails them; map the pairs that
it does. Lengths and labels are those of the data set, answers are seeded; only the model is simulated.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from semops.engine.backends.simulator import Simulated, SimulatorBackend, TimeModel
from semops.engine.bounds import BoundEstimator
from semops.engine.budgets.controller import Sample
from semops.engine.demand import Demand
from semops.engine.plan import (
    Answer,
    Call,
    CartesianProduct,
    Decoding,
    Pipeline,
    Request,
    Stage,
    Step,
    Verdict,
)
from semops.engine.scheduler import Scheduler
from semops.engine.task import Task

LENGTHS = Path(__file__).parent / "data" / "contractnli_lengths.json"
SYSTEM_TOKENS = 40
INSTRUCTION_TOKENS = 30
MAP_CAP = 1_024
"""``max_tokens`` of the map."""
YES, NO = 1, 2
GPU_LIKE = TimeModel(7e-3, 85e-6, 40e-6, 15e-9)
"""Steps of a model of 8 billion parameters on an A100, roughly."""
STUCK_TURNS = 10_000
"""Turns without an answer or progress of the clock after which a run has failed."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked, and what the model will say."""

    contracts: tuple[int, ...]
    """Length of each contract, in tokens."""
    hypotheses: tuple[int, ...]
    """Length of each hypothesis, in tokens."""
    passes: tuple[bool, ...]
    """Whether a contract passes the filter."""
    entails: tuple[tuple[bool, ...], ...]
    """By contract and hypothesis, whether the pair passes the join."""
    answers: tuple[tuple[int, ...], ...]
    """By contract and hypothesis, length of the map's answer, in tokens."""


def workload(
    *,
    fan_out: int = 17,
    pass_rate: float = 0.95,
    answer_tokens: int = 60,
    contracts: int | None = None,
    seed: int = 0,
) -> Workload:
    """Return a workload with the data set's lengths and labels and seeded answers.

    Parameters
    ----------
    fan_out
        Hypotheses that each contract meets.
    pass_rate
        Share of the contracts that pass the filter.
    answer_tokens
        Median length of a map's answer; the lengths are log-normal, sigma 0.5.
    contracts
        How many; None for all 184.
    seed
        Of order, verdicts and lengths.
    """
    data = json.loads(LENGTHS.read_text())
    dice = random.Random(seed)
    order = list(range(len(data["contract_tokens"])))
    dice.shuffle(order)
    order = order[:contracts]
    return Workload(
        tuple(data["contract_tokens"][i] for i in order),
        tuple(data["hypothesis_tokens"][:fan_out]),
        tuple(dice.random() < pass_rate for _ in order),
        tuple(tuple(label == "E" for label in data["labels"][i][:fan_out]) for i in order),
        tuple(
            tuple(
                max(8, int(dice.lognormvariate(math.log(answer_tokens), 0.5)))
                for _ in range(fan_out)
            )
            for _ in order
        ),
    )


@dataclass(slots=True)
class Outcome:
    """What a run did."""

    seconds: float = 0.0
    """On the virtual clock."""
    prefill_tokens: int = 0
    """Prompt tokens computed."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    steps: int = 0
    retries: int = 0
    preemptions: int = 0
    solo: int = 0
    deadlocks: int = 0
    rows: int = 0
    trajectory: list[Sample] = field(default_factory=list, repr=False)

    def row(self) -> dict[str, Any]:
        """Return the figures without the trajectory."""
        return {
            key: value
            for key, value in asdict(replace(self, trajectory=[])).items()
            if key != "trajectory"
        }


@dataclass(frozen=True, slots=True)
class Tuple:
    """A contract, or a pair."""

    contract: int
    hypothesis: int | None = None


class Query:
    """The :class:`~semops.engine.plan.Program` of one pipeline over a workload.

    Parameters
    ----------
    load
        The workload.
    stages
        Operators by stage: ``filter``, ``join``, ``map``; a second stage pairs each contract with all
        hypotheses.
    """

    def __init__(self, load: Workload, stages: Sequence[Sequence[str]]) -> None:
        self.load = load
        self.stages = stages
        self.out: list[Tuple] = []
        self._system = range(SYSTEM_TOKENS)
        self._prefixes: dict[int, tuple[int, ...]] = {}
        self._texts = [
            tuple(range(100_000 + 1_000 * number, 100_000 + 1_000 * number + tokens))
            for number, tokens in enumerate(load.hypotheses)
        ]
        self._instructions = {
            name: tuple(range(first, first + INSTRUCTION_TOKENS))
            for name, first in (("filter", 1_000), ("join", 2_000), ("map", 3_000))
        }

    def pipeline(self) -> Pipeline:
        """Return the engine's view."""
        stages = tuple(
            Stage(tuple(Step(name, max_tokens=_cap(name), one_token=name != "map") for name in ops))
            for ops in self.stages
        )
        products = (CartesianProduct(len(self.load.hypotheses)),) * (len(stages) - 1)
        return Pipeline(stages, products)

    def ready_before(self, item: Tuple) -> int:  # noqa: ARG002 - part of the protocol
        """Every row is taken at once."""
        return 0

    def sizes(self, item: Tuple, stage: int) -> list[int]:
        """Return the prompt tokens of each step."""
        own = 0 if stage else SYSTEM_TOKENS + self.load.contracts[item.contract]
        if item.hypothesis is not None:
            own += self.load.hypotheses[item.hypothesis]
        return [own + INSTRUCTION_TOKENS for _ in self.stages[stage]]

    def floor(self, stage: int) -> int:  # noqa: ARG002 - there is one product at most
        """Return the most tokens that a pair needs without its answer."""
        return max(self.load.hypotheses) + INSTRUCTION_TOKENS + 1

    def prefix(self, item: Tuple, stage: int) -> tuple[int, ...]:  # noqa: ARG002
        """Return the ids that all pairs of a contract share."""
        known = self._prefixes.get(item.contract)
        if known is None:
            first = 1_000_000 + 10_000 * item.contract
            text = range(first, first + self.load.contracts[item.contract])
            known = self._prefixes[item.contract] = (*self._system, *text)
        return known

    def request(self, item: Tuple, stage: int, step: int) -> Request:
        """Return a prompt."""
        name = self.stages[stage][step]
        ids = self.prefix(item, stage)
        if item.hypothesis is not None:
            ids += self._texts[item.hypothesis]
        shared = len(ids)
        choices = () if name == "map" else (YES, NO)
        row = {"contract": item.contract, "hypothesis": item.hypothesis}
        ids += self._instructions[name]
        return Request(ids, shared, Decoding(_cap(name), choices), Call(name, "", row))

    def accept(self, item: Tuple, stage: int, step: int, answer: Answer) -> Verdict:  # noqa: ARG002
        """Read the verdict of a predicate."""
        if not answer.logprobs:
            return Verdict.KEEP
        return Verdict.KEEP if answer.logprobs[YES] > answer.logprobs[NO] else Verdict.DROP

    def local(self, item: Tuple, stage: int, step: int) -> Verdict:
        """Fail: there are no local steps."""
        raise NotImplementedError

    def child(self, item: Tuple, stage: int, index: int) -> Tuple:  # noqa: ARG002
        """Return a pair."""
        return Tuple(item.contract, index)

    def emit(self, item: Tuple) -> None:
        """Keep a result."""
        self.out.append(item)

    def dropped(self, item: Tuple, stage: int) -> None:
        """Forget a tuple, and after its last child its contract's ids."""
        if stage == 0 and len(self.stages) > 1:
            self._prefixes.pop(item.contract, None)


def _cap(name: str) -> int:
    return MAP_CAP if name == "map" else 1


class FixedBound(BoundEstimator):
    """A first bound that never learns."""

    __slots__ = ("fixed",)

    def __init__(self, cap: int, fixed: int) -> None:
        super().__init__(cap)
        self.fixed = fixed

    def first(self, prompt_tokens: int) -> int:  # noqa: ARG002 - as the class that it replaces
        """Return the fixed bound."""
        return min(self.fixed, self.cap)


def backend_for(load: Workload, kv_tokens: int, **options: Any) -> SimulatorBackend:
    """Return a simulator that answers a workload's requests."""

    def answer(request: Request) -> Simulated:
        call = request.call
        assert call is not None
        contract, hypothesis = call.row["contract"], call.row["hypothesis"]
        match call.operator:
            case "filter":
                return Simulated(yes=load.passes[contract])
            case "join":
                return Simulated(yes=load.entails[contract][hypothesis])
            case _:
                return Simulated(load.answers[contract][hypothesis])

    settings = {"kv_tokens": kv_tokens, "max_running": 128, "pinning": True, **options}
    return SimulatorBackend(answer, GPU_LIKE, **settings)


def run(
    scheduler: Scheduler,
    query: Query,
    tuples: Sequence[Tuple],
    outcome: Outcome,
    fixed_bound: int | None = None,
) -> list[Tuple]:
    """Run one pipeline to its end; return its results in row order."""
    clock = scheduler.clock
    demand = Demand(clock=clock, everything=True)
    demand.begin_pull()
    ended: list[BaseException | None] = []
    state = scheduler.add_query(query.pipeline(), query, demand, _no_local, ended.append)
    if fixed_bound is not None:
        for key, estimator in state.bounds.items():
            if not estimator.one_token:
                state.bounds[key] = FixedBound(estimator.cap, fixed_bound)
    for item in tuples:
        scheduler.add_tuple(state, item)
    scheduler.close_input(state)
    stuck, before = 0, -1.0
    while not ended:
        scheduler.turn()
        stuck = stuck + 1 if clock() == before else 0
        before = clock()
        if stuck > STUCK_TURNS:
            raise RuntimeError("the simulated engine is stuck")
    if ended[0] is not None:
        raise ended[0]
    counts = state.counts.values()
    outcome.retries += sum(c.retries for c in counts)
    outcome.prompt_tokens += sum(c.prompt_tokens for c in counts)
    outcome.cached_tokens += sum(c.cached_tokens for c in counts)
    outcome.trajectory += state.trajectory
    return sorted(query.out, key=lambda item: (item.contract, item.hypothesis or 0))


def _no_local(task: Task) -> None:
    raise NotImplementedError


def pipelined(
    load: Workload,
    kv_tokens: int,
    controller: str = "demand",
    *,
    fixed_bound: int | None = None,
    pinning: str = "auto",
    watch: Callable[[Scheduler], None] | None = None,
    **options: Any,
) -> Outcome:
    """Run the query tuple at a time."""
    backend = backend_for(load, kv_tokens, **options)
    scheduler = Scheduler(backend, controller, pinning, backend.clock)
    if watch is not None:
        watch(scheduler)
    outcome = Outcome()
    query = Query(load, (("filter",), ("join", "map")))
    outcome.rows = len(run(scheduler, query, _contracts(load), outcome, fixed_bound))
    return _finished(outcome, scheduler, backend)


def blocking(load: Workload, kv_tokens: int, **options: Any) -> Outcome:
    """Run the query operator at a time, on one engine: filter, then join, then map."""
    backend = backend_for(load, kv_tokens, **options)
    scheduler = Scheduler(backend, "demand", "auto", backend.clock)
    outcome = Outcome()
    tuples = _contracts(load)
    for stages in ((("filter",),), ((), ("join",)), (("map",),)):
        tuples = run(scheduler, Query(load, stages), tuples, outcome)
    outcome.rows = len(tuples)
    outcome.trajectory.clear()
    return _finished(outcome, scheduler, backend)


def bare(load: Workload, kv_tokens: int, **options: Any) -> Outcome:
    """Run the query operator at a time as an engine alone would: all requests queued at once."""
    backend = backend_for(load, kv_tokens, **options)
    outcome = Outcome()
    tuples = _contracts(load)
    for name in ("filter", "join", "map"):
        query = Query(load, ((name,),))
        if name == "join":
            tuples = [Tuple(t.contract, h) for t in tuples for h in range(len(load.hypotheses))]
        for number, item in enumerate(tuples):
            backend.submit(number, query.request(item, 0, 0), MAP_CAP, 0)
        kept = []
        while any(backend.progress()):
            kept += [
                key
                for key, answer in backend.step()
                if query.accept(tuples[key], 0, 0, answer) is Verdict.KEEP
            ]
        tuples = [tuples[key] for key in sorted(kept)]
    outcome.rows = len(tuples)
    outcome.prompt_tokens = backend.totals.prompt_tokens
    outcome.cached_tokens = backend.totals.cached_tokens
    return _finished(outcome, None, backend)


def _contracts(load: Workload) -> list[Tuple]:
    return [Tuple(number) for number in range(len(load.contracts))]


def _finished(outcome: Outcome, scheduler: Scheduler | None, backend: SimulatorBackend) -> Outcome:
    outcome.seconds = backend.now_s
    outcome.prefill_tokens = backend.totals.prefill_tokens
    outcome.preemptions = backend.totals.preemptions
    outcome.steps = backend.totals.steps
    if scheduler is not None:
        assert scheduler.ledger.used == 0
        outcome.solo = scheduler.events.solo
        outcome.deadlocks = scheduler.events.deadlocks
    return outcome
