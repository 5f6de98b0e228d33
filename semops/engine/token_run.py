"""A pipeline of token ids on the engine's own thread, beside whatever else runs there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from semops.engine.demand import Demand
from semops.engine.token_program import no_local
from semops.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semops.engine.answers import AnswerMemo
    from semops.engine.loop import EngineThread
    from semops.engine.metrics import OperatorCounts
    from semops.engine.scheduler import Scheduler
    from semops.engine.task import QueryState
    from semops.engine.token_program import Row, TokenProgram

POLL_S = 0.1
"""How often to look whether the engine lives and the answers are still wanted, in seconds."""


def run_on(
    engine: EngineThread,
    program: TokenProgram,
    rows: Sequence[Row],
    memo: AnswerMemo | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, OperatorCounts]:
    """Run a pipeline over rows and wait for its end; return what each operator did.

    Parameters
    ----------
    engine
        Runs it.
    program
        Gets the answers.
    rows
        Rows of the first stage.
    memo
        Answers shared with other pipelines.
    stopped
        Whether they are no longer wanted.

    Raises
    ------
    EngineError
        If the engine fails or was closed, or the answers are no longer wanted.

    Examples
    --------
    >>> from semops.engine.backends.replay import ReplayBackend
    >>> from semops.engine.loop import EngineThread
    >>> from semops.engine.token_program import TokenOperator, TokenProgram
    >>> engine = EngineThread(lambda: ReplayBackend(lambda *_: True))
    >>> program = TokenProgram([[TokenOperator("long", [7, 8])]])
    >>> run_on(engine, program, [{"tokens": [1, 2, 3]}])["long"].calls
    1
    >>> engine.close()
    """
    over = threading.Event()
    errors: list[BaseException | None] = []
    queries: list[QueryState] = []

    def end(error: BaseException | None) -> None:
        errors.append(error)
        over.set()

    def begin(scheduler: Scheduler) -> None:
        demand = Demand(clock=scheduler.clock, everything=True)
        demand.begin_pull()
        query = scheduler.add_query(program.pipeline(), program, demand, no_local, end, memo)
        for number, row in enumerate(rows):
            scheduler.add_tuple(query, program.root(row, number))
        scheduler.close_input(query)
        queries.append(query)

    def give_up(scheduler: Scheduler) -> None:
        for query in queries:
            scheduler.end_query(query, None)

    engine.post(begin)
    while not over.wait(POLL_S):
        if stopped():
            engine.post(give_up)
            raise EngineError("the query was given up")
        if not engine.alive:
            engine.join()
            if not over.is_set():
                raise engine.reason()
    if errors[0] is not None:
        raise errors[0]
    return queries[0].counts
