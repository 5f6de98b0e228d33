"""A filter and a join under a controller, its budgets checked at every turn, its trajectory as text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from row_program import Driver, Op, RowProgram, Run, doc, rows

from semops.engine.backends.replay import Reply

GOLDEN = Path(__file__).parents[1] / "golden" / "trajectories"
FILTER, JOIN, MAP = Op("F"), Op("J"), Op("M", "map", max_tokens=16)


def slow(**seconds: float) -> Any:
    """Return an answer function in which operators take so long, in seconds."""

    def answer(operator: str, instruction: str, row: Mapping[str, Any]) -> Reply:
        delay_s = seconds.get(operator, 0.0)
        if operator == "M":
            return Reply(" ".join(["word"] * (1 + sum(row.values()) % 12)), delay_s)
        return Reply(sum(row.values()) % 5 != 0, delay_s)

    return answer


def two_stages(fan_out: int, *, tuples: int = 24, tokens: int = 96) -> tuple[RowProgram, list[Any]]:
    """Return filter, product, join predicate and map, and the rows."""
    program = RowProgram([[FILTER], [JOIN, MAP]], [rows(fan_out, 16, 500)])
    return program, rows(tuples, tokens, 1)


def run_checked(driver: Driver, run: Run, least: bool = False) -> None:
    """Turn until the end and check at each turn what must hold of budgets.

    They add up to the share, hold what is used, and, with ``least``, leave each stage what its largest
    task needs.
    """

    def check() -> None:
        controller, query = run.query.controller, run.query
        if run.ended or driver.scheduler.events.solo:
            return
        assert sum(controller.budgets) == driver.scheduler.ledger.budget
        for used, budget in zip(query.stage_used, controller.budgets, strict=True):
            assert 0 <= used <= budget, (query.stage_used, controller.budgets)
        if least:
            assert all(
                budget >= floor > 0
                for budget, floor in zip(controller.budgets, controller.least, strict=True)
            )

    driver.before_step = check
    driver.finish()


def as_text(run: Run) -> str:
    """Return a trajectory, one change a line."""
    lines = ["seconds | budgets | used | waiting"]
    for sample in run.query.trajectory:
        parts = (sample.budgets, sample.used, sample.waiting)
        columns = (" ".join(map(str, part)) or "-" for part in parts)
        lines.append(" | ".join([f"{sample.time_s:.3f}", *columns]))
    return "\n".join(lines) + "\n"


def check_golden(run: Run, name: str) -> None:
    """Compare with the golden text; ``SEMOPS_UPDATE_GOLDEN=1`` writes it anew."""
    golden = GOLDEN / f"{name}.txt"
    text = as_text(run)
    if os.environ.get("SEMOPS_UPDATE_GOLDEN"):
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


def documents(sizes: list[int]) -> list[dict[str, Any]]:
    """Return rows with documents of these sizes, in tokens."""
    return [{"id": i, "doc": doc(i, size)} for i, size in enumerate(sizes)]
