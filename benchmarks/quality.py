"""How right a predicate is, with and without few-shot examples and calibration, against people's labels.

Product, film and tweet sentences with sentiment labels, and clinical notes with an error put in or not. For
each set and variant: accuracy of the verdicts (a NULL is wrong), AUC of the probabilities, the accuracy
that the best threshold would give, and NULLs. The best threshold is found on the labels themselves, so no
method can beat it.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import semops
from benchmarks import harness

HERE = Path(__file__).parent / "data"
SHOTS = 4
"""Rows of each set that serve as examples, in equal parts, and are not asked about in any variant."""
QUICK_NOTES = 100
"""Notes are long; the sentences are asked about in full even when it is to be quick."""
VARIANTS: dict[str, dict[str, bool]] = {
    "plain": {},
    "calibrated": {"calibrate": True},
    "examples": {"shots": True},
    "examples, calibrated": {"shots": True, "calibrate": True},
}
CLOSE = 0.02


@dataclass(frozen=True)
class LabelledSet:
    """Texts, what is asked of them, and what people say."""

    name: str
    path: Path
    instruction: str
    answers: tuple[str, str]
    truth: pl.Expr
    """Whether the first answer is right."""

    def frame(self, *, quick: bool) -> pl.DataFrame:
        frame = pl.read_parquet(self.path).with_columns(truth=self.truth)
        return frame.head(QUICK_NOTES + SHOTS) if quick and self.name == "notes" else frame


def sets(data: Path) -> list[LabelledSet]:
    """Return the labelled sets."""
    sentiment = "{text}\nSentiment:", ("positive", "negative"), pl.col("label") == "positive"
    return [
        LabelledSet("products", data / "reviews.parquet", *sentiment),
        LabelledSet("films", HERE / "films.parquet", *sentiment),
        LabelledSet("tweets", HERE / "tweets.parquet", *sentiment),
        LabelledSet(
            "notes",
            HERE / "notes.parquet",
            "{text}\nDoes this note hold a medical error, yes or no? Answer:",
            ("yes", "no"),
            pl.col("error_flag") == 1,
        ),
    ]


def main() -> None:
    args = harness.arguments(
        __doc__ or "", style={"default": "raw", "help": "prompt style: raw or chat"}
    )
    semops.configure(model=args.model, prompt_style=args.style)
    results = [row for labelled in sets(args.data) for row in measure(args, labelled)]
    semops.close()
    harness.report(args, "quality", results, summarise(results))
    draw(args, results)


def measure(args: argparse.Namespace, labelled: LabelledSet) -> list[dict[str, Any]]:
    """Ask about one set in every variant."""
    frame = labelled.frame(quick=args.quick)
    half = SHOTS // 2
    shots = pl.concat([frame.filter("truth").head(half), frame.filter(~pl.col("truth")).head(half)])
    asked = frame.join(shots, on="text", how="anti", maintain_order="left")
    # One of each in turn: the last example pulls hardest.
    order = [
        number for pair in zip(range(half), range(half, SHOTS), strict=True) for number in pair
    ]
    examples = shots[order].select("text", answer="truth")
    rows = []
    for variant, options in VARIANTS.items():
        query = asked.sem_filter(
            labelled.instruction,
            answers=labelled.answers,
            name="verdict",
            probability="probability",
            calibrate=options.get("calibrate", False),
            examples=examples if options.get("shots") else None,
        )
        out = query.collect()
        profile = semops.last_profile()
        assert profile is not None
        decisions = profile.decisions["sem_filter:verdict"]
        print(f"{labelled.name}, {variant}: {decisions}", flush=True)
        rows.append(
            {"set": labelled.name, "variant": variant, **scores(out), "wall_s": profile.wall_s}
        )
    return rows


def scores(out: pl.DataFrame) -> dict[str, Any]:
    """Return how verdicts and probabilities agree with the truth."""
    truth = out["truth"].to_list()
    margins = [
        0.0 if p is None else math.log(max(p, 1e-9)) - math.log(max(1 - p, 1e-9))
        for p in out["probability"]
    ]
    right = [verdict is label for verdict, label in zip(out["verdict"], truth, strict=True)]
    return {
        "rows": out.height,
        "accuracy": sum(right) / len(right),
        "auc": auc(margins, truth),
        "best_threshold": best_threshold(margins, truth),
        "nulls": out["verdict"].null_count(),
    }


def auc(margins: list[float], truth: list[bool]) -> float:
    """Return the probability that a true row scores above a false one, ties counting half."""
    yes = [m for m, label in zip(margins, truth, strict=True) if label]
    no = [m for m, label in zip(margins, truth, strict=True) if not label]
    wins = sum((a > b) + 0.5 * (a == b) for a in yes for b in no)
    return wins / (len(yes) * len(no)) if yes and no else math.nan


def best_threshold(margins: list[float], truth: list[bool]) -> float:
    """Return the accuracy of the best threshold on the margins."""
    cuts = [-math.inf, *margins]
    return max(
        sum((m > cut) is label for m, label in zip(margins, truth, strict=True)) / len(truth)
        for cut in cuts
    )


def summarise(results: list[dict[str, Any]]) -> dict[str, float]:
    """Return how far calibration stays under the best threshold, and what examples bring."""
    by = {(r["set"], r["variant"]): r for r in results}
    names = list(dict.fromkeys(r["set"] for r in results))
    summary: dict[str, float] = {}
    close = 0
    for name in names:
        ways = [by[name, variant] for variant in ("calibrated", "examples, calibrated")]
        missed = min(way["best_threshold"] - way["accuracy"] for way in ways)
        summary[f"calibrated_below_best_{name}"] = missed
        close += missed <= CLOSE
    summary["sets_within_0.02"] = float(close)
    for variant in VARIANTS:
        found = [by[name, variant]["accuracy"] for name in names]
        summary[f"mean_accuracy_{variant.replace(', ', '_')}"] = sum(found) / len(found)
    return summary


def draw(args: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """Draw the accuracies."""
    names = list(dict.fromkeys(r["set"] for r in results))
    series = {
        variant: [r["accuracy"] for r in results if r["variant"] == variant] for variant in VARIANTS
    }
    best = [max(r["best_threshold"] for r in results if r["set"] == name) for name in names]
    series["best threshold"] = best
    harness.bars(harness.plot_path(args), "accuracy of a predicate", names, series, "accuracy")


if __name__ == "__main__":
    main()
