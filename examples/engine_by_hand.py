"""The engine without a frame, without text and without a model: a pipeline built from token ids.

Forty contracts are filtered; each that passes meets eight hypotheses, and pairs that match are mapped. The
plan runs on the simulator, once tuple by tuple and once operator by operator, in about a second.
"""

from __future__ import annotations

import random

from semops.engine.backends.simulator import SimulatorBackend, TimeModel
from semops.engine.metrics import OperatorCounts
from semops.engine.scheduler import Scheduler
from semops.engine.token_program import Row, Rows, TokenOperator, TokenProgram, answering, run

HEAD = range(40)
VALID = TokenOperator("valid", range(1_000, 1_030))
ENTAILS = TokenOperator("entails", range(2_000, 2_030))
QUOTE = TokenOperator("quote", range(3_000, 3_030), max_tokens=80)
CPU = TimeModel(base_s=0.02, prefill_s=6e-4, decode_s=3e-3, context_s=1e-6)


def main() -> None:
    dice = random.Random(0)
    contracts = [
        {"tokens": range(n * 10_000, n * 10_000 + dice.randrange(600, 1_400)), "valid": n % 10 > 0}
        for n in range(1, 41)
    ]
    hypotheses = [{"tokens": range(n * 100, n * 100 + 16), "number": n} for n in range(50, 58)]
    pipelined = tuple_by_tuple(contracts, hypotheses)
    blocking = operator_by_operator(contracts, hypotheses)
    print(
        f"the simulated machine needs {blocking / pipelined:.2f} times as long operator by operator"
    )


def answer(operator: str, rows: Rows) -> bool | int:
    """What the model would say: a verdict, or the length of an answer."""
    contract, *hypothesis = rows[0].get("sides", rows)
    if operator == "valid":
        return bool(contract["valid"])
    number = int(hypothesis[0]["number"] + contract["tokens"][0] // 10_000)
    return number % 3 == 0 if operator == "entails" else 10 + number % 40


def machine() -> tuple[SimulatorBackend, Scheduler]:
    """A small engine: KV memory for about ten contracts."""
    engine = SimulatorBackend(
        answering(answer), CPU, kv_tokens=12_000, max_running=16, chunk_tokens=512
    )
    return engine, Scheduler(engine, clock=engine.clock)


def tuple_by_tuple(contracts: list[Row], hypotheses: list[Row]) -> float:
    """Filter -> product -> filter -> map as one pipeline of two stages."""
    engine, scheduler = machine()
    program = TokenProgram([[VALID], [ENTAILS, QUOTE]], [hypotheses], HEAD)
    counts = run(program, contracts, scheduler)
    report("tuple by tuple", counts, len(program.results), engine.now_s)
    return engine.now_s


def operator_by_operator(contracts: list[Row], hypotheses: list[Row]) -> float:
    """Run each operator over all its tuples before the next one starts."""
    engine, scheduler = machine()
    valid = TokenProgram([[VALID]], head=HEAD)
    counts = run(valid, contracts, scheduler)
    pairs = [
        {"tokens": (*item.rows[0]["tokens"], *right["tokens"]), "sides": (item.rows[0], right)}
        for item in valid.results
        for right in hypotheses
    ]
    for operator in (ENTAILS, QUOTE):
        program = TokenProgram([[operator]], head=HEAD)
        counts |= run(program, pairs, scheduler)
        pairs = [dict(item.rows[0]) for item in program.results]
    report("operator by operator", counts, len(pairs), engine.now_s)
    return engine.now_s


def report(title: str, counts: dict[str, OperatorCounts], rows: int, seconds: float) -> None:
    print(f"{title}: {rows} rows, {seconds:.1f} s on the virtual clock")
    for name, done in counts.items():
        print(
            f"  {name:<8} {done.calls:>4} calls {done.prompt_tokens:>8,} prompt tokens, "
            f"{done.cached_share:>5.1%} reused, {done.computed_tokens:>7,} computed"
        )
    print()


if __name__ == "__main__":
    main()
