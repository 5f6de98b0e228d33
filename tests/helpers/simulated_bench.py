"""A scheduler on the simulator, turned by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semops.engine.backends.simulator import SimulatorBackend
from semops.engine.demand import Demand
from semops.engine.lengths import LengthBook
from semops.engine.scheduler import Scheduler
from semops.engine.task import QueryState
from semops.engine.token_program import TokenOperator, TokenProgram, answering


def row(number: int, prompt: int, answer: int) -> dict[str, Any]:
    return {"tokens": range(number * 10_000, number * 10_000 + prompt), "answer": answer}


class Bench:
    """A scheduler on the simulator, turned by hand; notes when each tuple ends."""

    def __init__(self, *, oracle: bool = False, **options: Any) -> None:
        sizes = {"kv_tokens": 2_000, "block_tokens": 1, "max_running": 64}
        sizes |= {key: options.pop(key) for key in list(options) if key in sizes}
        self.backend = SimulatorBackend(answering(lambda _, found: found[0]["answer"]), **sizes)
        book = LengthBook(oracle=lambda _, item: item.rows[0]["answer"]) if oracle else None
        self.scheduler = Scheduler(
            self.backend, clock=self.backend.clock, lengths=book, max_wait_s=1e9, **options
        )
        self.ended: list[Any] = []
        self.order: list[int] = []

    def add(self, data: Sequence[dict[str, Any]], cap: int = 200, **options: Any) -> QueryState:
        program = TokenProgram([[TokenOperator("map", [1] * 4, max_tokens=cap)]])
        emit = program.emit

        def noted(item: Any) -> None:
            emit(item)
            self.order.append(item.rows[0]["tokens"][0] // 10_000)

        program.emit = noted  # type: ignore[method-assign]
        demand = Demand(clock=self.scheduler.clock, everything=True)
        demand.begin_pull()
        query = self.scheduler.add_query(
            program.pipeline(), program, demand, self.ended.append, self.ended.append, **options
        )
        for number, item in enumerate(data):
            self.scheduler.add_tuple(query, program.root(item, number))
        self.scheduler.close_input(query)
        return query

    def run(self) -> list[int]:
        for _ in range(20_000):
            if not self.scheduler.queries:
                break
            self.scheduler.turn()
        assert not self.scheduler.queries
        assert self.scheduler.ledger.used == 0
        assert all(error is None for error in self.ended)
        return self.order
