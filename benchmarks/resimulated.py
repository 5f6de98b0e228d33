"""A recorded run once more on the simulator: what it computes there, and how long that takes.

The simulator gets the same prompts (as hashes of blocks), answers of the same lengths and an engine of the
same size; which request starts when is decided anew by the same scheduler. Its time model is fitted to
the steps of all recorded runs together: the steps of one don't tell prompts from answers well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from semops.engine import calibration
from semops.engine.answers import AnswerMemo
from semops.engine.backends.simulator import Simulated, SimulatorBackend
from semops.engine.plan import Decoding, Finish, Request
from semops.engine.scheduler import Scheduler
from semops.engine.time_model import TimeModel
from semops.engine.token_program import Rows, TokenOperator, TokenProgram, answering, run
from semops.engine.trace import RequestRecord, StepTrace, stand_in


@dataclass(frozen=True, slots=True)
class Recording:
    """A run of maps over rows on the real engine."""

    executor: str
    wall_s: float
    warm_up: StepTrace
    """What the engine had done before."""
    trace: StepTrace


def compare(recordings: Sequence[Recording]) -> tuple[list[dict[str, Any]], float, float]:
    """Run recordings again; return a row for each, and the largest errors of tokens and of time.

    Parameters
    ----------
    recordings
        One for each executor.
    """
    steps = [step for recording in recordings for step in recording.trace.steps]
    model = calibration.fit(steps)
    print(f"time model fitted to {len(steps)} steps: {model}")
    rows = []
    token_error = time_error = 0.0
    for recording in recordings:
        trace = recording.trace
        cached, computed, seconds = again(recording, model)
        pairs = ((cached, trace.cached_tokens), (computed, trace.computed_tokens))
        token_error = max(token_error, *(_error(*pair) for pair in pairs))
        time_error = max(time_error, _error(seconds, recording.wall_s))
        rows.append(
            {
                "query": "map-map",
                "executor": f"{recording.executor}, simulated",
                "wall_s": seconds,
                "measured_s": recording.wall_s,
                "measured_steps_s": trace.seconds,
                "cached_tokens": cached,
                "measured_cached_tokens": trace.cached_tokens,
                "computed_tokens": computed,
                "measured_computed_tokens": trace.computed_tokens,
            }
        )
    return rows, token_error, time_error


def again(recording: Recording, model: TimeModel) -> tuple[int, int, float]:
    """Return cached tokens, computed tokens and seconds of a recording on the simulator."""
    trace = recording.trace
    tuples = _tuples(trace)
    engine = SimulatorBackend(
        _answer,
        model,
        kv_tokens=trace.kv_tokens,
        block_tokens=trace.block_tokens,
        context_tokens=trace.context_tokens,
        max_running=trace.max_running,
        chunk_tokens=trace.chunk_tokens,
    )
    for number, record in enumerate(recording.warm_up.requests):
        ids = stand_in(record, trace.block_tokens)
        engine.submit(number, Request(ids, 0, Decoding(1)), 1, 0)
    while any(engine.progress()):
        engine.step()
    started_s = engine.now_s
    operators = [_operator(number, tuples) for number in range(len(tuples[0]))]
    stages = [operators] if recording.executor == "pipelined" else [[op] for op in operators]
    rows = [_row(records, trace.block_tokens) for records in tuples]
    scheduler = Scheduler(engine, clock=engine.clock)
    memo = AnswerMemo()
    cached = computed = 0
    for stage in stages:
        for counts in run(TokenProgram([stage]), rows, scheduler, memo).values():
            cached += counts.cached_tokens
            computed += counts.computed_tokens
    return cached, computed, engine.now_s - started_s


def _tuples(trace: StepTrace) -> list[list[RequestRecord]]:
    """Return the requests of each tuple, by operator; of one that was sent again, the last."""
    tuples: dict[int, dict[int, RequestRecord]] = {}
    for record in trace.requests:
        tuples.setdefault(record.shared, {})[record.prompt] = record
    return [list(records.values()) for records in tuples.values()]


def _row(records: Sequence[RequestRecord], block_tokens: int) -> dict[str, Any]:
    """Return a row: the whole blocks that its requests share, and what each asks after them."""
    shared = records[0].shared_tokens // block_tokens * block_tokens
    prompts = [stand_in(record, block_tokens) for record in records]
    return {
        "tokens": prompts[0][:shared],
        "asks": [prompt[shared:] for prompt in prompts],
        # A longer answer than the cap is cut off there, as the recorded one was.
        "answers": [r.output_tokens + (r.finish is Finish.LENGTH) for r in records],
    }


def _operator(number: int, tuples: Sequence[Sequence[RequestRecord]]) -> TokenOperator:
    cap = max(records[number].max_tokens for records in tuples)
    return TokenOperator(f"{number}", lambda rows: rows[0]["asks"][number], max_tokens=cap)


def _length(operator: str, rows: Rows) -> int:
    return int(rows[0]["answers"][int(operator)])


_by_call = answering(_length)


def _answer(request: Request) -> Simulated:
    return Simulated() if request.call is None else _by_call(request)


def _error(found: float, expected: float) -> float:
    return abs(found - expected) / expected
