"""The fitted time model: right where the truth is affine, never negative, best among those."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semops.engine.calibration import MIN_STEPS, fit, relative_error
from semops.engine.time_model import TimeModel
from semops.engine.trace import StepRecord
from semops.errors import ConfigError

COEFFICIENT = st.floats(0, 1) | st.just(0.0)


def steps(model: TimeModel, seed: int, count: int = 40, noise: float = 0.0) -> list[StepRecord]:
    dice = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        p, d, k = (int(dice.integers(0, top)) for top in (512, 17, 8_000))
        seconds = model.seconds(p, d, k) * (1 + noise * float(dice.standard_normal()))
        found.append(StepRecord(p, d, k, max(seconds, 0.0)))
    return found


@given(st.tuples(COEFFICIENT, COEFFICIENT, COEFFICIENT, COEFFICIENT), st.integers(0, 99))
def test_an_affine_truth_is_found(scales: tuple[float, float, float, float], seed: int) -> None:
    units = (0.02, 1e-3, 5e-3, 1e-5)
    truth = TimeModel(*(scale * unit for scale, unit in zip(scales, units, strict=True)))
    found = fit(steps(truth, seed))
    for name, unit in zip(TimeModel.__slots__, units, strict=True):
        assert getattr(found, name) == pytest.approx(
            getattr(truth, name), rel=1e-6, abs=1e-7 * unit
        )


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=MIN_STEPS, max_size=30), st.integers(0, 99))
def test_no_coefficient_is_negative_whatever_was_measured(seconds: list[float], seed: int) -> None:
    rows = [
        StepRecord(step.prefill, step.decode, step.context, measured)
        for step, measured in zip(steps(TimeModel(), seed, len(seconds)), seconds, strict=True)
    ]
    found = fit(rows)
    assert min(found.base_s, found.prefill_s, found.decode_s, found.context_s) >= 0


def test_the_total_survives_noise() -> None:
    truth = TimeModel(0.02, 1e-3, 5e-3, 1e-6)
    found = fit(steps(truth, 1, 400, noise=0.1))
    assert found.prefill_s == pytest.approx(truth.prefill_s, rel=0.05)
    assert relative_error(found, steps(truth, 2, 400)) < 0.02


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="record 8 or more"):
        fit(steps(TimeModel(), 0, MIN_STEPS - 1))
