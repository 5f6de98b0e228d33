"""Random statements over the tables of sql_forms, from nested conditions to groups and windows."""

from __future__ import annotations

import random


class Writer:
    """Writes statements.

    Parameters
    ----------
    seed
        The same seed writes the same statements.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.texts = ["review"]
        self.number = "id"

    def statement(self) -> tuple[str, bool]:
        """Return a statement and whether its rows have an order."""
        rng = self.rng
        head, tables = self._tables()
        where = ""
        if rng.random() < 0.75:
            where = f" WHERE {' AND '.join(self._condition() for _ in range(rng.randint(1, 3)))}"
        shape, key = rng.random(), self.number
        if shape < 0.15:
            having = (
                " HAVING count(*) > 1 AND sem_filter('{m} is big', m)" if rng.random() < 0.5 else ""
            )
            call = self._call("sem_map")
            return (
                f"{head}SELECT {call} AS m, count(*) AS n FROM {tables}{where} GROUP BY m{having}",
                False,
            )
        if shape < 0.25:
            texts = f"string_agg({self.texts[0]}, ',' ORDER BY {self.texts[0]})"
            good = f"count(*) FILTER (WHERE {self._condition(1)}) AS n"
            mapped = f"sem_map('sum {{x}}', {texts}) AS s"
            return (
                f"{head}SELECT {key} % 4 AS b, {mapped}, {good} FROM {tables}{where} GROUP BY ALL",
                False,
            )
        if shape < 0.33:
            number = f"row_number() OVER (PARTITION BY {key} % 5 ORDER BY {key}, {self.texts[-1]})"
            qualify = f"QUALIFY {number} < 4 AND {self._condition(1)}"
            return (
                f"{head}SELECT {key} AS i, {self._item()} AS y FROM {tables}{where} {qualify}",
                False,
            )
        if shape < 0.4:
            return f"{head}SELECT DISTINCT {self._item()} AS y FROM {tables}{where}", False
        items = ", ".join(f"{self._item()} AS y{n}" for n in range(rng.randint(1, 3)))
        star = "*, " if rng.random() < 0.2 else ""
        sql = f"{head}SELECT {key} AS i, {star}{items} FROM {tables}{where}"
        if rng.random() < 0.6:
            return sql, False
        order = rng.choice([key, f"{key} DESC", f"y0, {key}"])
        limit = f" LIMIT {rng.randint(1, 12)}" if rng.random() < 0.6 else ""
        return f"{sql} ORDER BY {order}, {self.texts[-1]}{limit}", True

    def _tables(self) -> tuple[str, str]:
        place = self.rng.random()
        self.texts, self.number = ["review"], "id"
        if place < 0.25:
            where = f" WHERE {self._condition(1)}" if self.rng.random() < 0.6 else ""
            inner = (
                f"SELECT id AS k, review AS r, ({self._item()})::VARCHAR AS a FROM reviews{where}"
            )
            self.texts, self.number = ["r", "a"], "k"
            return (
                (f"WITH s AS ({inner}) ", "s") if self.rng.random() < 0.4 else ("", f"({inner}) s")
            )
        if place < 0.5:
            self.texts, self.number = ["r.review", "p.name"], "r.id"
            return "", self.rng.choice(
                [
                    "reviews r JOIN products p ON r.g = p.g AND p.pid < 5",
                    "(SELECT * FROM reviews WHERE id < 9) r, products p",
                    "reviews r LEFT JOIN products p ON r.id = p.pid",
                ]
            )
        return "", "reviews"

    def _call(self, operator: str) -> str:
        text = self.rng.choice(self.texts)
        argument = self.rng.choice([text, text, f"upper({text})", f"coalesce({text}, 'none')"])
        name, word = self.rng.choice(["x", "review"]), self.rng.choice(["good", "old", "odd"])
        asked = (
            f"the {{{name}}} is {word}" if operator == "sem_filter" else f"the {word} of {{{name}}}"
        )
        return f"{operator}('{asked}', {argument})"

    def _condition(self, depth: int = 2) -> str:
        rng, kind = self.rng, self.rng.random()
        if depth and kind < 0.5:
            return f"({self._condition(depth - 1)} {rng.choice(['AND', 'OR'])} {self._condition(depth - 1)})"
        if depth and kind < 0.6:
            return f"NOT {self._condition(depth - 1)}"
        if depth and kind < 0.66:
            when, then = self._condition(depth - 1), self._condition(depth - 1)
            return f"CASE WHEN {when} THEN {then} ELSE {self._condition(0)} END"
        mapped = self._call("sem_map")
        return rng.choice(
            [
                self._call("sem_filter"),
                self._call("sem_filter"),
                f"{mapped} {rng.choice(['=', '<>', '>'])} 'b2'",
                f"{mapped} LIKE 'a%'",
                f"{mapped} IS NOT NULL",
                f"sem_filter('the {{m}} fits', {mapped})",
                f"sem_filter('the {{m}} fits', lower({mapped}))",
                f"{self.number} % 3 = 0",
                f"{self.texts[0]} LIKE '%1%'",
            ]
        )

    def _item(self) -> str:
        mapped = self._call("sem_map")
        return self.rng.choice(
            [
                mapped,
                self._call("sem_filter"),
                f"CASE WHEN {self._condition(1)} THEN {mapped} ELSE {self.texts[0]} END",
                f"upper({mapped}) || 'x'",
                f"coalesce({mapped}, {self._call('sem_map')})",
                self._condition(1),
                self.number,
            ]
        )
