"""Read 50 review sentences into a typed column, keep the answers, and go on from them.

The model's answer is held to a pydantic model while it is decoded, so every value is of it, or NULL with a
reason. The second run asks nothing: it finds the answers of the first.

The default model without a GPU has 135 million parameters. It fills the form, and what it writes into it is mostly
wrong; pass --model with a larger instruct model for answers to rely on.
"""

from __future__ import annotations

import argparse
import enum
import tempfile
from pathlib import Path

import polars as pl
from pydantic import BaseModel, Field

import semops

DATA = Path(__file__).parent / "data"


class Tone(enum.Enum):
    PRAISE = "praise"
    COMPLAINT = "complaint"
    NEITHER = "neither"


class Aspect(BaseModel):
    name: str = Field(max_length=20, description="a part or property of the product")
    stars: int = Field(ge=1, le=5)


class Review(BaseModel):
    product: str = Field(max_length=30)
    tone: Tone
    recommendation: int = Field(ge=0, le=10, description="10: the customer would buy it again")
    aspects: list[Aspect] = Field(max_length=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with reviews.parquet")
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--model", help="Hugging Face id, folder or GGUF file")
    args = parser.parse_args()
    semops.configure(model=args.model)
    table = pl.read_parquet(args.data / "reviews.parquet").select("snippet_id", "text")
    query = table.head(args.rows).sem_map("Read what {text} says", "review", schema=Review)
    print("known without running:", query.collect_schema()["review"], "\n")
    with tempfile.TemporaryDirectory() as folder, semops.options(cache=f"{folder}/answers.sqlite"):
        out = query.collect()
        print(semops.last_profile(), "\n")
        errors = semops.last_profile().errors()
        again = query.collect()
        restored = semops.last_profile().operators["sem_map:review"].restored
    values = [value for value in out["review"].to_list() if value is not None]
    for value in values:
        Review.model_validate(value)
    print(out.unnest("review").head(5))
    print(f"{len(values)} of {out.height} values fit the model; NULL by reason:")
    print(errors["reason"].value_counts() if errors.height else "none")
    print(f"second run: {restored} answers kept by the first, same rows: {again.equals(out)}")


if __name__ == "__main__":
    main()
