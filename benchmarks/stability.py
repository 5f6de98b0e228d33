"""Capacity: whether it predicts what an engine sustains, and whether the queue grows above it, not below.

A time model is fitted on line, by the scheduler, while an engine serves requests with as many answer as
prompt tokens. From it the rates of other loads are predicted: twice as long prompts, twice as long answers,
and a cut of a trace; then they are measured. Requests come as fast as they are taken, then one after the
other at 0.8 and 1.25 of the predicted rate. On the simulator, with eight replicas too, and on vLLM at small
scale, there with
one thread and in seconds of its CPU time unless told otherwise.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Two threads that wait for each other burn a time slice in each step as soon as somebody else uses a core;
# then step times tell more about him than about the load. One thread's CPU time is the same whoever else runs.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks import engine_load, harness, traces
from semops.engine.capacity import Capacity, Shape, capacity
from semops.engine.scheduler import Scheduler
from semops.engine.time_model import TimeModel

Lengths = list[tuple[int, int]]
GPU_LIKE = TimeModel(7e-3, 85e-6, 40e-6, 15e-9)
REPLICAS = 8
LOADS = (0.8, 1.25)
ROUNDS = 2
"""Of the loads on the real engine."""
CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.monotonic}
"""CPU time, since others on the machine would change the step time from one load to the next."""


class Scale(NamedTuple):
    """How large the loads are."""

    unit: int
    """Tokens of the shorter part of a request."""
    requests: int
    """Requests of a run in which they come as fast as they are taken."""
    arrivals: int
    """Requests of a run in which they come one after the other."""
    trace_divisor: int
    """What the trace's lengths are divided by."""


SIMULATED = Scale(200, 1_500, 1_500, 1)
REAL = Scale(48, 36, 90, 14)
REAL_KV, REAL_CONTEXT = 2_048, 512


def main() -> None:
    args = harness.arguments(
        __doc__ or "",
        seed={"type": int, "default": 0, "help": "of lengths, prompts and arrivals"},
        clock={
            "choices": sorted(CLOCKS),
            "default": "cpu",
            "help": "seconds on the real engine: of this process's CPU time, or of the wall",
        },
        skip_engine={"action": "store_true", "help": "leave the real engine out"},
    )
    rows, summary = simulated(args.seed)
    if not args.skip_engine:
        scale = REAL if args.quick else REAL._replace(requests=160, arrivals=240)
        real_rows, real_summary = on_vllm(args, scale)
        rows += real_rows
        summary |= real_summary
    harness.report(args, "stability", rows, summary)
    draw(args, rows)


def simulated(seed: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Run all on the simulator."""
    size = {"kv_tokens": 24_000, "block_tokens": 16, "max_running": 512, "chunk_tokens": 2_048}

    def fresh() -> Scheduler:
        return engine_load.scheduler_on(engine_load.simulator(GPU_LIKE, **size), "fcfs")

    rows, errors, one = predictions(fresh, SIMULATED, seed, "simulator")
    slopes = open_loop(fresh, SIMULATED, one, seed, "simulator", regular=False)
    rows += slopes
    # Requests are dealt out in turn; each replica serves its own as fast as it can.
    dealt = mixed(SIMULATED._replace(requests=REPLICAS * 500), seed + 1)
    bounds = engine_load.longest_answers(dealt)
    data = engine_load.rows(dealt, seed)
    single = engine_load.rate(engine_load.serve(fresh(), data, bounds=bounds).at_s.values())
    together = 0.0
    for replica in range(REPLICAS):
        data = engine_load.rows(dealt[replica::REPLICAS], seed + replica)
        together += engine_load.rate(engine_load.serve(fresh(), data, bounds=bounds).at_s.values())
    return rows, {
        "mu_error_simulator": max(errors.values()),
        "replicas_error": abs(together - REPLICAS * single) / together,
        **{f"sim_slope_at_{row['load']:g}": row["slope_share"] for row in slopes},
    }


def on_vllm(
    args: argparse.Namespace, scale: Scale
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Run all on the real engine."""
    from semops.engine.backends import vllm
    from semops.engine.models import resolve

    model = resolve(args.model, Path.home() / ".cache" / "semops")
    backend = vllm.start(
        model.path,
        name=model.name,
        kv_tokens=REAL_KV,
        context_tokens=REAL_CONTEXT,
        max_running=64,
    )

    def fresh() -> Scheduler:
        backend._engine.reset_prefix_cache()  # noqa: SLF001 - every load starts alike
        return engine_load.scheduler_on(backend, "fcfs", clock=CLOCKS[args.clock])

    try:
        warm = engine_load.rows([(64, 4)] * 8, 99)
        engine_load.serve(fresh(), warm)
        rows, errors, one = predictions(fresh, scale, args.seed, "vllm", ROUNDS)
        slopes = open_loop(fresh, scale, one, args.seed, "vllm", regular=True)
    finally:
        backend.close()
    summary = {"mu_error_real": max(errors.values())}
    summary |= {f"mu_error_real_{name}": error for name, error in errors.items()}
    summary["a_step_error_real"] = max(
        abs(statistics.median(r["ratio_a_step"] for r in rows if r["load"] == name) - 1)
        for name in errors
    )
    summary["constant_b_error_real"] = max(
        abs(statistics.median(r["ratio_constant_b"] for r in rows if r["load"] == name) - 1)
        for name in errors
    )
    summary |= {f"real_slope_at_{row['load']:g}": row["slope_share"] for row in slopes}
    return [*rows, *slopes], summary


def loads(scale: Scale, seed: int) -> dict[str, Lengths]:
    """Return the loads, the one that the time model is fitted to first."""
    dice = random.Random(seed)

    def around(prompt: int, answer: int) -> Lengths:
        return [
            (int(prompt * dice.uniform(0.7, 1.3)), int(answer * dice.uniform(0.7, 1.3)))
            for _ in range(scale.requests)
        ]

    return {
        "1:1": around(scale.unit, scale.unit),
        "2:1": around(2 * scale.unit, scale.unit),
        "1:2": around(scale.unit, 2 * scale.unit),
        # Its answers are shorter and differ more.
        "trace": mixed(scale._replace(requests=2 * scale.requests), seed),
    }


def mixed(scale: Scale, seed: int) -> Lengths:
    """Return a cut of a trace, scaled down."""
    drawn = random.Random(seed).sample(traces.lengths("azure2023_conv"), scale.requests)
    longest = 6 * scale.unit
    return [
        (
            min(max(prompt // scale.trace_divisor, 8), longest),
            min(max(answer // scale.trace_divisor, 4), longest // 2),
        )
        for prompt, answer in drawn
    ]


def predictions(
    fresh: Callable[[], Scheduler], scale: Scale, seed: int, engine: str, rounds: int = 1
) -> tuple[list[dict[str, Any]], dict[str, float], Capacity]:
    """Serve the loads one after the other; predict each from what the first of the round taught.

    Each round teaches anew, and the medians of the rounds count.
    """
    rows: list[dict[str, Any]] = []
    ratios: dict[str, list[float]] = {}
    first: Capacity | None = None
    for round_ in range(rounds):
        model: TimeModel | None = None
        constant_s = 0.0
        for number, (name, lengths) in enumerate(loads(scale, seed + round_).items()):
            scheduler = fresh()
            bounds = engine_load.longest_answers(lengths)
            shapes = [Shape(s, o, bound_tokens=bounds[s]) for s, o in lengths]
            predicted: Capacity | None = None
            if model is not None:  # before it is measured
                predicted = capacity(shapes, scheduler.load.size, model)
            data = engine_load.rows(lengths, seed + 10 * number + 100 * round_)
            found = engine_load.serve(scheduler, data)
            measured = engine_load.rate(found.at_s.values())
            if model is None:
                model, estimate = scheduler.meter.model(), scheduler.meter.estimate()
                assert model is not None
                assert estimate is not None
                constant_s = estimate.mean
                predicted = first = capacity(shapes, scheduler.load.size, model)
            assert predicted is not None
            ratios.setdefault(name, []).append(predicted.rate / measured)
            a_step = predicted.rate * predicted.step_s
            rows.append(
                {
                    "run": "closed loop",
                    "engine": engine,
                    "load": name,
                    "measured_per_s": measured,
                    "predicted_per_s": predicted.rate,
                    "ratio": predicted.rate / measured,
                    # Whatever the speed of the machine.
                    "ratio_a_step": a_step / engine_load.rate(found.at_step.values()),
                    # With the step time of the first load, as if it were the same for all.
                    "ratio_constant_b": a_step / constant_s / measured,
                    "eta": predicted.efficiency,
                    "delta": predicted.delta,
                    "step_s": predicted.step_s,
                    "binding": predicted.limits.binding,
                    "seconds": found.seconds,
                }
            )
    assert first is not None
    errors = {
        name: abs(statistics.median(found) - 1) for name, found in ratios.items() if name != "1:1"
    }
    return rows, errors, first


def open_loop(
    fresh: Callable[[], Scheduler],
    scale: Scale,
    one: Capacity,
    seed: int,
    engine: str,
    *,
    regular: bool,
) -> list[dict[str, Any]]:
    """Let requests come at shares of the predicted rate; return how fast the queue grew.

    ``regular`` lets them come evenly, by a clock that passes the predicted step time a step: so the speed of
    a machine that others use changes nothing.
    """
    rows = []
    for load in LOADS:
        rate = load * one.rate
        dice = random.Random(seed)
        lengths = loads(scale._replace(requests=scale.arrivals), seed + 1)["1:1"]
        times, now = [], 0.0
        for _ in lengths:
            now += 1 / rate if regular else dice.expovariate(rate)
            times.append(now)
        started = time.perf_counter()
        found = engine_load.serve(
            fresh(),
            engine_load.rows(lengths, seed + 77),
            times=times,
            until_s=now,
            step_s=one.step_s if regular else None,
        )
        grows = slope([entry for entry in found.queue if entry[0] <= now])
        rows.append(
            {
                "run": "open loop",
                "engine": engine,
                "load": load,
                "rate_per_s": rate,
                "slope_per_s": grows,
                # Above capacity what is too much stays: 1 - 1/load of the rate.
                "slope_share": grows / rate,
                "longest_queue": max(length for _, length in found.queue),
                "seconds": time.perf_counter() - started,
                "queue": [length for _, length in found.queue][:: max(len(found.queue) // 200, 1)],
            }
        )
    return rows


def slope(queue: Sequence[tuple[float, int]]) -> float:
    """Return the growth over the second half, by least squares, in requests a second."""
    half = [entry for entry in queue if entry[0] >= queue[-1][0] / 2]
    middle = statistics.mean(t for t, _ in half)
    mean = statistics.mean(length for _, length in half)
    spread = sum((t - middle) ** 2 for t, _ in half)
    return sum((t - middle) * (length - mean) for t, length in half) / spread if spread else 0.0


def draw(args: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> None:
    """Plot the queues under and over the limit."""
    path = harness.plot_path(args)
    if path is None:
        return
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError:
        print("no plot: pip install 'kalypso-semops[bench]' brings matplotlib")
        return
    shown = [row for row in rows if row["run"] == "open loop"]
    engines = list(dict.fromkeys(row["engine"] for row in shown))
    figure, all_axes = plt.subplots(1, len(engines), figsize=(5 * len(engines), 4), squeeze=False)
    for axes, engine in zip(all_axes[0], engines, strict=True):
        for row in (row for row in shown if row["engine"] == engine):
            axes.plot(row["queue"], label=f"{row['load']:g} x predicted rate")
        axes.set_title(engine)
        axes.set_xlabel("time, in 1/200 of the run")
        axes.set_ylabel("requests that wait")
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
