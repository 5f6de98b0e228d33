"""Pipelines built by hand from token ids: rows are dicts, prompts are ids, no frame and no text.

For whoever uses the engine without a front end, and for running a plan on the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semops.engine.backends.simulator import Simulated
from semops.engine.demand import Demand
from semops.engine.plan import (
    Answer,
    Call,
    CartesianProduct,
    Decoding,
    Pipeline,
    Request,
    Skip,
    Stage,
    Step,
    Verdict,
)

if TYPE_CHECKING:
    from semops.engine.answers import AnswerMemo
    from semops.engine.metrics import OperatorCounts
    from semops.engine.scheduler import Scheduler
    from semops.engine.task import Task

Row = Mapping[str, Any]
"""``row["tokens"]`` holds the ids of its part of the prompt, ``row["call"]`` may say what they ask in the
user's terms; anything else is the caller's."""
Rows = tuple[Row, ...]
"""A row of each side that a tuple is made of, the leftmost first."""
Ids = Sequence[int]

YES, NO = 1, 2
"""Choices of a predicate where none are given."""


@dataclass(frozen=True, slots=True)
class TokenOperator:
    """A predicate, or a map where ``max_tokens`` is given."""

    name: str
    instruction: Ids | Callable[[Rows], Ids]
    """Ids that follow the tuple's own in the prompt."""
    max_tokens: int = 0
    """Longest answer of a map, in tokens; 0 for a predicate."""
    choices: tuple[int, int] = (YES, NO)
    """Tokens of a predicate's yes and no."""
    exact: Callable[[Rows], int] | None = None
    """Gives the length of each answer of a map, where it is to have just that one, in tokens."""

    def asks(self, rows: Rows) -> Ids:
        """Return the ids of the instruction for a tuple."""
        return self.instruction(rows) if callable(self.instruction) else self.instruction


@dataclass(slots=True, eq=False)
class TokenTuple:
    """A tuple on its way, and what it got."""

    rows: Rows
    place: tuple[int, ...]
    """Place in row order."""
    prompt: tuple[int, ...]
    """Ids that all its steps share."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """By operator."""


class TokenProgram:
    """The :class:`~semops.engine.plan.Program` of a pipeline over rows of token ids.

    Parameters
    ----------
    stages
        Operators of each stage.
    rights
        Rows that the tuples of each stage but the last meet.
    head
        Ids that every prompt begins with.

    Examples
    --------
    >>> from semops.engine.backends.simulator import SimulatorBackend
    >>> from semops.engine.scheduler import Scheduler
    >>> program = TokenProgram(
    ...     [[TokenOperator("long", [7] * 8)], [TokenOperator("match", [8] * 8)]],
    ...     rights=[[{"tokens": [5] * 10}, {"tokens": [6] * 10}]],
    ... )
    >>> engine = SimulatorBackend(answering(lambda operator, rows: operator == "long"))
    >>> counts = run(program, [{"tokens": range(320)}], Scheduler(engine, clock=engine.clock))
    >>> counts["match"].calls, counts["match"].cached_tokens, len(program.results)
    (2, 640, 0)
    """

    def __init__(
        self,
        stages: Sequence[Sequence[TokenOperator]],
        rights: Sequence[Sequence[Row]] = (),
        head: Ids = (),
    ) -> None:
        self.stages = stages
        self.rights = rights
        self.head = tuple(head)
        self.out: list[TokenTuple] = []

    @property
    def results(self) -> list[TokenTuple]:
        """Tuples that passed, in row order."""
        return sorted(self.out, key=lambda item: item.place)

    def pipeline(self) -> Pipeline:
        """Return what the scheduler runs."""
        stages = tuple(
            Stage(
                tuple(
                    Step(op.name, max_tokens=op.max_tokens or 1, one_token=not op.max_tokens)
                    for op in operators
                )
            )
            for operators in self.stages
        )
        return Pipeline(stages, tuple(CartesianProduct(len(rows)) for rows in self.rights))

    def root(self, row: Row, number: int) -> TokenTuple:
        """Return the tuple of a row."""
        return TokenTuple((row,), (number,), (*self.head, *row["tokens"]))

    def ready_before(self, item: TokenTuple) -> int:  # noqa: ARG002 - part of the protocol
        """Return 0: every result is taken at once."""
        return 0

    def sizes(self, item: TokenTuple, stage: int) -> list[int]:
        """Return the prompt tokens of each step, without what the parent retains."""
        own = len(item.rows[-1]["tokens"]) if stage else len(item.prompt)
        return [own + len(op.asks(item.rows)) for op in self.stages[stage]]

    def floor(self, stage: int) -> int:
        """Return the most tokens that a child of a stage needs, answers excluded."""
        longest = max((len(row["tokens"]) for row in self.rights[stage - 1]), default=0)
        fixed = [len(op.instruction) for op in self.stages[stage] if not callable(op.instruction)]
        return longest + max(fixed, default=0) + 1

    def prefix(self, item: TokenTuple, stage: int) -> Ids:  # noqa: ARG002
        """Return the ids that all children of a tuple share."""
        return item.prompt

    def request(self, item: TokenTuple, stage: int, step: int) -> Request | Skip:
        """Return the prompt of a step."""
        operator = self.stages[stage][step]
        if operator.exact is not None:
            decoding = Decoding(operator.exact(item.rows), ignore_eos=True)
        elif operator.max_tokens:
            decoding = Decoding(operator.max_tokens)
        else:
            decoding = Decoding(1, choices=operator.choices)
        ids = (*item.prompt, *operator.asks(item.rows))
        return Request(
            ids,
            len(item.prompt),
            decoding,
            item.rows[-1].get("call") or Call(operator.name, "", {"rows": item.rows}),
        )

    def accept(self, item: TokenTuple, stage: int, step: int, answer: Answer) -> Verdict:
        """Keep an answer; a predicate's decides."""
        operator = self.stages[stage][step]
        item.answers[operator.name] = answer
        if operator.max_tokens:
            return Verdict.KEEP
        yes, no = (answer.logprobs.get(token, 0.0) for token in operator.choices)
        return Verdict.KEEP if yes > no else Verdict.DROP

    def local(self, item: TokenTuple, stage: int, step: int) -> Verdict:
        """Raise: there are no local steps."""
        raise NotImplementedError

    def child(self, item: TokenTuple, stage: int, index: int) -> TokenTuple:
        """Return a tuple with one more row."""
        row = self.rights[stage][index]
        prompt = (*item.prompt, *row["tokens"])
        return TokenTuple((*item.rows, row), (*item.place, index), prompt, dict(item.answers))

    def emit(self, item: TokenTuple) -> None:
        """Keep a result."""
        self.out.append(item)

    def dropped(self, item: TokenTuple, stage: int) -> None:
        """Forget a tuple."""


def answering(answer: Callable[[str, Rows], bool | int]) -> Callable[[Request], Simulated]:
    """Return what :class:`SimulatorBackend` asks, from a function of operator and rows.

    Parameters
    ----------
    answer
        Gives the verdict of a predicate, or the length of a map's answer in tokens.
    """

    def simulated(request: Request) -> Simulated:
        call = request.call
        assert call is not None  # noqa: S101 - set by TokenProgram
        found = answer(call.operator, call.row["rows"])
        return Simulated(yes=found) if isinstance(found, bool) else Simulated(found)

    return simulated


def run(
    program: TokenProgram,
    rows: Sequence[Row],
    scheduler: Scheduler,
    memo: AnswerMemo | None = None,
) -> dict[str, OperatorCounts]:
    """Run a pipeline over rows to its end; return what each operator did.

    Parameters
    ----------
    program
        Gets the results.
    rows
        Rows of the first stage.
    scheduler
        On any backend; give the simulator's clock with the simulator.
    memo
        Answers shared with other pipelines.

    Raises
    ------
    Exception
        Whatever ended the query.
    """
    demand = Demand(clock=scheduler.clock, everything=True)
    demand.begin_pull()
    ended: list[BaseException | None] = []
    query = scheduler.add_query(program.pipeline(), program, demand, no_local, ended.append, memo)
    for number, row in enumerate(rows):
        scheduler.add_tuple(query, program.root(row, number))
    scheduler.close_input(query)
    while not ended:
        scheduler.turn()
    if ended[0] is not None:
        raise ended[0]
    return query.counts


def no_local(task: Task) -> None:
    """Raise: a pipeline of token ids has no relational steps, so the scheduler hands none out."""
    raise NotImplementedError(f"step {task.step} of a pipeline of token ids is no request")
