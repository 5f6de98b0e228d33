"""Step times and load: what is estimated while an engine runs, and when it warns."""

from __future__ import annotations

import logging

import pytest

from semops.engine.backends.simulator import SimulatorBackend
from semops.engine.capacity import EngineSize, Shape
from semops.engine.demand import Demand
from semops.engine.load import LoadMonitor, size_of
from semops.engine.scheduler import Scheduler
from semops.engine.step_time import RECENT, StepMeter
from semops.engine.time_model import TimeModel
from semops.engine.token_program import TokenOperator, TokenProgram, answering

TRUTH = TimeModel(0.02, 1e-3, 2e-3, 0.0)


def test_only_saturated_steps_count() -> None:
    meter = StepMeter()
    assert meter.estimate() is None
    for _ in range(10):
        meter.observe(5.0, used=0.2)
        meter.observe(1.0, used=0.95)
    assert meter.estimate().mean == 1.0
    assert meter.estimate().steps == 10
    assert not meter.estimate().certain


def test_trimmed_means_leave_outliers_out() -> None:
    meter = StepMeter()
    for number in range(100):
        meter.observe(60.0 if number == 7 else 1.0, used=1.0)
    found = meter.estimate()
    assert found.mean > 1.5
    assert found.median == found.trimmed_5 == found.trimmed_10 == 1.0


def test_older_steps_are_forgotten_when_the_engine_gets_slower() -> None:
    meter = StepMeter()
    for _ in range(3 * RECENT):
        meter.observe(1.0, used=1.0)
    for _ in range(RECENT):
        meter.observe(2.0, used=1.0)
    assert meter.estimate().mean == 2.0
    assert meter.estimate().steps == RECENT


def test_the_time_model_is_found_while_the_engine_runs() -> None:
    backend = SimulatorBackend(answering(lambda _, rows: rows[0]["answer"]), TRUTH, kv_tokens=4_000)
    scheduler = Scheduler(backend, clock=backend.clock)
    program = TokenProgram([[TokenOperator("map", [1] * 4, max_tokens=60)]])
    demand = Demand(clock=scheduler.clock, everything=True)
    demand.begin_pull()
    query = scheduler.add_query(program.pipeline(), program, demand, lambda _: None, lambda _: None)
    for number in range(60):
        row = {"tokens": range(number * 1_000, number * 1_000 + 50 + number), "answer": number % 40}
        scheduler.add_tuple(query, program.root(row, number))
    scheduler.close_input(query)
    assert scheduler.meter.model() is None
    while scheduler.queries:
        scheduler.turn()
    found = scheduler.meter.model()
    assert found is not None
    assert found.base_s == pytest.approx(TRUTH.base_s, rel=1e-6)
    assert found.prefill_s == pytest.approx(TRUTH.prefill_s, rel=1e-6)
    assert found.decode_s == pytest.approx(TRUTH.decode_s, rel=1e-6)
    can = scheduler.load.found(scheduler.meter)
    assert can is not None
    assert can.rate > 0
    assert size_of(backend.capabilities).chunk_tokens == backend.capabilities.chunk_tokens


def monitored(rate_share: float, caplog: pytest.LogCaptureFixture) -> tuple[int, str]:
    """Queries of ten requests come at a share of what is sustained; return the warnings."""
    monitor = LoadMonitor(EngineSize(6_000, 64), "lookahead")
    meter = StepMeter()
    for _ in range(20):
        meter.observe(0.02, used=1.0)
        monitor.answered(Shape(128, 10))
        monitor.ended(10)
    can = monitor.found(meter)
    assert can is not None
    every_s = 10 / (rate_share * can.stable_rate)
    warned = 0
    with caplog.at_level(logging.WARNING, "semops.engine.load"):
        for number in range(200):
            warned += monitor.arrived(number * every_s, unfinished=9, meter=meter)
    return warned, caplog.text


def test_more_queries_than_are_sustained_are_warned_of_once(caplog) -> None:
    warned, text = monitored(1.3, caplog)
    assert warned == 1
    assert "memory-bound" in text
    assert "engines" in text


def test_fewer_are_not(caplog) -> None:
    assert monitored(0.8, caplog) == (0, "")


def test_a_few_queries_are_no_load_however_large(caplog) -> None:
    monitor = LoadMonitor(EngineSize(6_000, 64), "lookahead")
    meter = StepMeter()
    meter.observe(0.02, used=1.0)
    monitor.answered(Shape(128, 10))
    monitor.ended(100_000)
    assert not any(monitor.arrived(n * 0.001, 7, meter) for n in range(7))
    assert not any(monitor.arrived(n * 0.001, 1, meter) for n in range(50))
