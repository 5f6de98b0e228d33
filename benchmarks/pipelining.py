"""Tuple-at-a-time against operator-at-a-time, on contracts of about 1,000 tokens with KV for eight.

``blocking`` lowers the same plan with a cut after every operator and runs it on the same scheduler and
engine; ``bare`` is vLLM's own ``LLM.generate`` called once an operator with the same KV memory.
Each run starts with an empty prefix cache. The steps of both runs of two maps are recorded and run once
more on the simulator, calibrated on the blocking run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import polars as pl

import semops
from benchmarks import harness, resimulated
from semops import session
from semops.config import load as load_settings
from semops.engine.backends.vllm import VllmBackend
from semops.engine.models import resolve
from semops.operators import SemMap
from semops.prompts import SYSTEM, Prompter
from semops.template import parse

MAPS = (
    "What is the purpose of {text}? Answer in a few words.",
    "Which law governs {text}? Answer in a few words.",
    "Who are the parties of {text}? Answer in a few words.",
    "How long does {text} last? Answer in a few words.",
)
FILTER = "{text} mentions a governing law"
MAX_TOKENS = 8
CONTRACT_TOKENS = 1_000
IN_KV = 8
"""Contracts that the KV memory holds at once."""
OVERHEAD_TOKENS = 104
"""System prompt, chat template, instruction and answer of one request, in tokens."""


def main() -> None:
    args = harness.arguments(
        __doc__ or "",
        bare={
            "action": "store_true",
            "help": "run only bare vLLM and print JSON (used internally)",
        },
        contracts={"type": int, "default": None, "help": "how many contracts"},
    )
    contracts = load(args)
    kv_tokens = IN_KV * (CONTRACT_TOKENS + OVERHEAD_TOKENS)
    if args.bare:
        print(json.dumps(bare(contracts, args.model, kv_tokens)))
        return
    semops.configure(kv_tokens=kv_tokens, model=args.model)
    executors = ("blocking", "pipelined")
    # Twice, one after the other, and the faster counts: a shared machine's speed drifts.
    twice = [run(contracts, "map-map", executor, maps=2) for executor in executors * 2]
    faster = [
        min((r for r in twice if r[1].executor == executor), key=lambda r: r[1].wall_s)
        for executor in executors
    ]
    results = [row for row, _ in faster]
    results += [run(contracts, "map x 4", executor, maps=4)[0] for executor in executors]
    results.append(run(contracts, "filter-map", "pipelined", maps=1, with_filter=True)[0])
    semops.close()
    results.append(bare_in_subprocess(args))
    summary = summarise(results)
    recordings = [recording for _, recording in faster]
    simulated, token_error, time_error = resimulated.compare(recordings)
    summary |= {"sim_token_error": token_error, "sim_time_error": time_error}
    harness.report(args, "pipelining", results + simulated, summary)
    draw(args, results)


def load(args: argparse.Namespace) -> pl.DataFrame:
    """Return the contracts: 24, or with more data and time 48."""
    table = pl.read_parquet(args.data / "contracts.parquet")
    wanted = args.contracts or (24 if args.quick else 48)
    return table.select("contract_id", "text").head(wanted)


def run(
    contracts: pl.DataFrame, query: str, executor: str, *, maps: int, with_filter: bool = False
) -> tuple[dict[str, Any], resimulated.Recording]:
    """Run one query on a fresh engine; return what its profile says, and its steps."""
    semops.close()  # a fresh engine has an empty prefix cache
    backend = session.engine().scheduler.backend
    assert isinstance(backend, VllmBackend)
    warm = pl.DataFrame({"text": ["warm up"]}).sem_map(
        "Repeat {text}", max_tokens=1, on_cutoff="keep"
    )
    with backend.record() as before:
        warm.collect()
    frame = contracts.lazy()
    if with_filter:
        frame = frame.sem_filter(FILTER)
    for number, instruction in enumerate(MAPS[:maps], 1):
        frame = frame.sem_map(
            instruction, f"answer_{number}", max_tokens=MAX_TOKENS, on_cutoff="keep"
        )
    with semops.options(executor=executor), backend.record() as recorder:
        started = time.perf_counter()
        out = frame.collect()
        wall_s = time.perf_counter() - started
    recording = resimulated.Recording(executor, wall_s, before.trace(), recorder.trace())
    profile = semops.last_profile()
    assert profile is not None
    operators = list(profile.operators.values())
    print(f"{query}, {executor}: {out.height} rows in {wall_s:.1f} s", flush=True)
    print(profile, flush=True)
    row = {
        "query": query,
        "executor": executor,
        "rows": out.height,
        "wall_s": wall_s,
        "prompt_tokens": sum(o.prompt_tokens for o in operators),
        "computed_tokens": sum(o.computed_tokens for o in operators),
        "second_cached_share": operators[1].cached_share if len(operators) > 1 else 0.0,
        "first_prompt_tokens": operators[0].prompt_tokens,
        "rows_in": operators[0].rows,
        "passed": operators[0].kept,
        "map_suffix_tokens": map_suffix_tokens(),
    }
    return row, recording


def map_suffix_tokens() -> int:
    """Return the tokens of the map's prompt after the row, which even an ideal cache computes."""
    operator = SemMap(parse(MAPS[0]), "answer_1")
    return len(Prompter(session.engine().tokenizer).suffix(operator))


def bare(contracts: pl.DataFrame, model: str | None, kv_tokens: int) -> dict[str, Any]:
    """Run the two maps through ``LLM.generate``, one operator after the other."""
    from vllm import LLM, SamplingParams

    path = resolve(model, load_settings().cache_dir).path
    llm = LLM(
        model=path,
        dtype="bfloat16",
        max_model_len=min(kv_tokens, 8_192),
        num_gpu_blocks_override=kv_tokens // 32 + 1,
        block_size=32,
        max_num_seqs=16,
        max_num_batched_tokens=512,
        gpu_memory_utilization=0.5,  # of RAM; the KV size is given above
        enforce_eager=True,
        seed=0,
    )
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS)
    chat = [{"role": "user", "content": "warm up"}]
    llm.chat([chat], SamplingParams(temperature=0, max_tokens=1), use_tqdm=False)
    system = {"role": "system", "content": SYSTEM}
    walls = []
    for _ in range(2):  # as often as the others, and the faster counts
        llm.reset_prefix_cache()
        started = time.perf_counter()
        for instruction in MAPS[:2]:
            asked = instruction.replace("{text}", '"text"')
            chats = [
                [system, {"role": "user", "content": f"text: {text}\n\n{asked}"}]
                for text in contracts["text"]
            ]
            llm.chat(chats, params, use_tqdm=False)
        walls.append(time.perf_counter() - started)
    return {"query": "map-map", "executor": "bare", "wall_s": min(walls)}


def bare_in_subprocess(args: argparse.Namespace) -> dict[str, Any]:
    """Run bare vLLM in a process of its own: two engines in one process disturb each other."""
    command = [sys.executable, "-m", "benchmarks.pipelining", "--bare", "--data", str(args.data)]
    command += ["--quick"] * args.quick
    command += ["--model", args.model] if args.model else []
    command += ["--contracts", str(args.contracts)] if args.contracts else []
    environment = {
        **os.environ,
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    root = Path(__file__).parent.parent
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=root, check=False
    )
    if done.returncode:
        raise RuntimeError(f"bare vLLM failed:\n{done.stderr[-4000:]}")
    row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"map-map, bare vLLM: {row['wall_s']:.1f} s", flush=True)
    return row


def summarise(results: list[dict[str, Any]]) -> dict[str, float]:
    """Return the ratios that the README quotes."""
    by = {(row["query"], row["executor"]): row for row in results}
    blocking, pipelined = by["map-map", "blocking"], by["map-map", "pipelined"]
    filtered = by["filter-map", "pipelined"]
    ideal = filtered["first_prompt_tokens"] + filtered["passed"] * filtered["map_suffix_tokens"]
    four = {executor: by["map x 4", executor]["wall_s"] for executor in ("blocking", "pipelined")}
    return {
        "computed_prefill_ratio": pipelined["computed_tokens"] / blocking["computed_tokens"],
        "second_operator_cached_share_pipelined": pipelined["second_cached_share"],
        "second_operator_cached_share_blocking": blocking["second_cached_share"],
        "wall_ratio": blocking["wall_s"] / pipelined["wall_s"],
        "wall_ratio_4": four["blocking"] / four["pipelined"],
        "filter_pass_rate": filtered["passed"] / filtered["rows_in"],
        "computed_prefill_over_ideal": filtered["computed_tokens"] / ideal,
        "blocking_over_bare_vllm": blocking["wall_s"] / by["map-map", "bare"]["wall_s"],
    }


def draw(args: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """Plot wall times."""
    by = {(row["query"], row["executor"]): row["wall_s"] for row in results}
    queries = ["map-map", "map x 4"]
    series = {e: [by[query, e] for query in queries] for e in ("blocking", "pipelined")}
    harness.bars(harness.plot_path(args), "Two and four maps over contracts", queries, series, "s")


if __name__ == "__main__":
    main()
