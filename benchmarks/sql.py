"""The same query in SQL and through Polars: filter, then map, on contracts of about 1,000 tokens.

Both run on the same engine with KV memory for eight contracts and an empty prefix cache, twice in turns,
and the faster run of each counts. The plain functions in DuckDB, which nobody plans, run once. A second
part measures what SQL itself costs, with instant answers and no model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import duckdb
import polars as pl

import semops
from benchmarks import harness
from semops import session
from semops.testing import replay

FILTER = "{text}\nThis document is a legal"
ANSWERS = ("agreement", "statute")
MAP = "{text}\nThe purpose of this agreement is to"
MAX_TOKENS = 16
KV_TOKENS = 8 * 1_104
"""KV memory for eight contracts with an instruction and an answer."""
SQL = f"""
SELECT contract_id, sem_map('{MAP}', text, max_tokens := {MAX_TOKENS}, on_cutoff := 'keep') AS purpose
FROM contracts
WHERE sem_filter('{FILTER}', text, answers := ['agreement', 'statute'])
"""
ROWS = 20_000


def main() -> None:
    args = harness.arguments(__doc__ or "")
    contracts = pl.read_parquet(args.data / "contracts.parquet").select("contract_id", "text")
    if not args.quick:
        contracts = pl.concat([contracts, contracts.with_columns(pl.col("text") + " ")])
    semops.configure(kv_tokens=KV_TOKENS, model=args.model, prompt_style="raw")
    con = semops.attach()
    con.register("given", contracts)
    con.execute("CREATE TABLE contracts AS FROM given")
    ways: dict[str, Callable[[], pl.DataFrame]] = {
        "sql": lambda: con.sql(SQL).pl(),
        "polars": lambda: through_polars(con.connection.table("contracts").pl()),
    }
    runs = [measured(name, ways[name]) for name in ("sql", "polars", "polars", "sql")]
    plain = con.connection.sql(without_names(SQL))
    runs.append(measured("functions", plain.pl))
    semops.close()
    best = {
        name: min((r for r in runs if r["way"] == name), key=lambda r: r["wall_s"])
        for name in (*ways, "functions")
    }
    summary = {
        "sql_over_frame_wall": best["sql"]["wall_s"] / best["polars"]["wall_s"],
        "sql_over_frame_computed": best["sql"]["computed_tokens"]
        / best["polars"]["computed_tokens"],
        "sql_over_functions_wall": best["sql"]["wall_s"] / best["functions"]["wall_s"],
        "sql_over_functions_computed": best["sql"]["computed_tokens"]
        / best["functions"]["computed_tokens"],
        **instant(),
    }
    harness.report(args, "sql", runs, summary)
    groups = ["seconds", "thousand computed tokens"]
    series = {name: [row["wall_s"], row["computed_tokens"] / 1_000] for name, row in best.items()}
    harness.bars(harness.plot_path(args), "Filter and map of contracts", groups, series, "")


def through_polars(contracts: pl.DataFrame) -> pl.DataFrame:
    chain = contracts.sem_filter(FILTER, answers=ANSWERS).sem_map(
        MAP, "purpose", max_tokens=MAX_TOKENS, on_cutoff="keep"
    )
    return chain.select("contract_id", "purpose").collect()


def without_names(sql: str) -> str:
    """Write the options as a struct, as the functions want them."""
    return sql.replace(
        f"max_tokens := {MAX_TOKENS}, on_cutoff := 'keep'",
        f"{{'max_tokens': {MAX_TOKENS}, 'on_cutoff': 'keep'}}",
    ).replace("answers := ['agreement', 'statute']", "{'answers': ['agreement', 'statute']}")


def measured(way: str, run: Callable[[], pl.DataFrame]) -> dict[str, Any]:
    """Run a query on a fresh engine and say what it did."""
    semops.close()  # a fresh engine has an empty prefix cache
    session.engine()
    warm = pl.DataFrame({"text": ["warm up"]})
    warm.sem_map("Repeat {text}", max_tokens=1, on_cutoff="keep").collect()
    with semops.profile() as profile:
        started = time.perf_counter()
        out = run()
        wall_s = time.perf_counter() - started
    operators = list(profile.operators.values())
    print(f"{way}: {out.height} rows in {wall_s:.1f} s\n{profile}", flush=True)
    return {
        "way": way,
        "rows": out.height,
        "wall_s": wall_s,
        "calls": sum(o.calls for o in operators),
        "prompt_tokens": sum(o.prompt_tokens for o in operators),
        "computed_tokens": sum(o.computed_tokens for o in operators),
        "first_row_s": profile.first_row_s,
    }


def instant() -> dict[str, float]:
    """Measure both ways over instant answers, twice in turns."""
    table = pl.DataFrame({"contract_id": range(ROWS), "text": [f"text {i}" for i in range(ROWS)]})
    con = semops.attach(duckdb.connect())
    con.register("given", table)
    con.execute("CREATE TABLE contracts AS FROM given")
    seconds: dict[str, list[float]] = {"sql": [], "polars": []}
    with replay(answer, max_running=256, kv_tokens=1_000_000):
        for way in ("sql", "polars", "polars", "sql"):
            started = time.perf_counter()
            out = con.sql(SQL).pl() if way == "sql" else through_polars(table)
            seconds[way].append(time.perf_counter() - started)
            assert out.height == ROWS, out.height
    return {
        "sql_over_frame_instant": min(seconds["sql"]) / min(seconds["polars"]),
        "sql_microseconds_per_row": min(seconds["sql"]) / ROWS * 1e6,
    }


def answer(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:  # noqa: ARG001 - as replay calls it
    return "short" if operator == "sem_map" else True


if __name__ == "__main__":
    main()
