"""Ask questions about real text in SQL, on a laptop without GPU or network.

Keeps the positive ones of 40 review sentences, says what the customer likes, and counts by rating. The
default model without a GPU has 135 million parameters: enough to complete labels and single words.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

import semops

DATA = Path(__file__).parent / "data"

LIKES = """
SELECT text, rating, sem_map('{text}
In one word, the customer likes the "', text, {'stop': ['"', ' ', '.', ',', '--'], 'max_tokens': 12}) AS likes
FROM reviews
WHERE sem_filter('{text}
Sentiment:', text, answers := ['positive', 'negative'])
    AND length(text) < $longest
ORDER BY rating DESC
LIMIT 8
"""

AGREEMENT = """
SELECT label, sem_filter('{text}
Sentiment:', text, answers := ['positive', 'negative']) AS positive, count(*) AS sentences
FROM reviews
GROUP BY ALL
ORDER BY ALL
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with reviews.parquet")
    parser.add_argument("--model", help="Hugging Face id, folder or GGUF file")
    args = parser.parse_args()
    semops.configure(model=args.model, kv_tokens=8_832, prompt_style="raw")

    con = semops.attach()
    con.execute(
        "CREATE TABLE reviews AS FROM read_parquet($path) LIMIT 40",
        {"path": str(args.data / "reviews.parquet")},
    )

    print("1. What do they like? Which part of it runs where:\n")
    print(semops.explain_sql(con, LIKES, {"longest": 200}), "\n")
    con.sql(LIKES, params={"longest": 200}).show(max_col_width=60)
    print(semops.last_profile(), "\n")

    print("2. How often does the filter agree with people?\n")
    con.sql(AGREEMENT).show()

    print("3. From SQL to Polars, and back\n")
    short = (
        con.cursor()
        .sql("SELECT snippet_id, text FROM reviews WHERE length(text) < 60")
        .pl(lazy=True)
    )
    liked = short.sem_filter("{text}\nSentiment:", answers=("positive", "negative"))  # type: ignore[attr-defined]  # noqa: F841 - DuckDB reads it
    print(con.sql("SELECT count(*) AS short_and_positive FROM liked"))
    print(pl.DataFrame(con.sql("SELECT text FROM liked LIMIT 2").pl()))


if __name__ == "__main__":
    main()
