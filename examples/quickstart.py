"""Filter and map real text with a real model, on a laptop without GPU or network.

Part 1 keeps the positive ones of 240 product review sentences and says what the customer likes.
Part 2 asks three things about each of 24 contracts, once operator by operator and once pipelined.

The default model without a GPU has 135 million parameters. It completes labels and phrases well enough
to show the machine at work; for answers to rely on, pass --model with a larger instruct model.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import polars as pl

import semops

DATA = Path(__file__).parent / "data"

# Where a word or a clause ends. A small model may not stop by itself, and may repeat itself for ever.
WORD_ENDS = ('"', " ", "\n", ".", ",", ";", "!", "--", "00")
CLAUSE_ENDS = ("\n", ".", ",", ";", " and", " which", " that", " to ", " by", " in connection")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the two tables")
    parser.add_argument("--model", help="Hugging Face id, folder or GGUF file")
    args = parser.parse_args()
    semops.configure(model=args.model, kv_tokens=8_832)
    reviews(args.data)
    contracts(args.data)


def reviews(data: Path) -> None:
    """Filter, then map; compare the filter with the labels that people gave."""
    table = pl.read_parquet(data / "reviews.parquet")
    print(f"\n1. {table.height} review sentences: keep the positive ones, say what is liked\n")
    with semops.options(prompt_style="raw"):
        query = table.sem_filter("{text}\nSentiment:", answers=("positive", "negative")).sem_map(
            '{text}\nIn one word, the customer likes the "', "likes", stop=WORD_ENDS
        )
    print(semops.explain(query), "\n")
    started = time.perf_counter()
    out = query.collect()
    seconds = time.perf_counter() - started
    profile = semops.last_profile()
    # Where both answers are equally likely in bfloat16, the filter says NULL and the row is dropped.
    with pl.Config(tbl_rows=8, fmt_str_lengths=70, tbl_width_chars=110):
        print(out.select("text", "label", "likes"))
    kept = set(out["snippet_id"])
    agree = [
        (snippet in kept) == (label == "positive")
        for snippet, label in table.select("snippet_id", "label").iter_rows()
    ]
    print(f"filter accuracy {sum(agree) / len(agree):.3f} against {len(agree)} labels")
    print(f"{seconds:.1f} s with the engine's start, {out.height} rows\n")
    print(profile, "\n")


def contracts(data: Path) -> None:
    """Run one query operator by operator, then pipelined; the rows are the same."""
    table = pl.read_parquet(data / "contracts.parquet").select(
        "contract_id", pl.col("text").alias("contract")
    )
    print(
        f"2. {table.height} contracts of about 1,000 tokens, KV memory for eight: three questions\n"
    )
    with semops.options(prompt_style="raw"):
        query = (
            table.sem_filter(
                "{contract}\nThis document is a legal", answers=("agreement", "statute")
            )
            .sem_map("{contract}\nThe purpose of this agreement is to", "purpose", stop=CLAUSE_ENDS)
            .sem_map(
                "{contract}\nThis agreement is governed by the laws of", "law", stop=CLAUSE_ENDS
            )
        )
    seconds: dict[str, float] = {}
    results: dict[str, pl.DataFrame] = {}
    for executor in ("blocking", "pipelined"):
        semops.close()  # so that neither run finds the other's prefixes cached
        pl.DataFrame({"text": ["warm"]}).sem_map(
            "Say {text}", max_tokens=1, on_cutoff="keep"
        ).collect()
        started = time.perf_counter()
        with semops.options(executor=executor):
            results[executor] = query.collect()
        seconds[executor] = time.perf_counter() - started
        print(semops.last_profile(), "\n")
    with pl.Config(tbl_rows=8, fmt_str_lengths=50, tbl_width_chars=110):
        print(results["pipelined"].select("contract_id", "purpose", "law"))
    ratio = seconds["blocking"] / seconds["pipelined"]
    print(f"operator by operator  {seconds['blocking']:6.1f} s")
    print(f"pipelined             {seconds['pipelined']:6.1f} s   {ratio:.2f} times as fast")


if __name__ == "__main__":
    main()
