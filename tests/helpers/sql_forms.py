"""Statements of every form, with whether they are planned, for tests and by-hand comparisons."""

from __future__ import annotations

import zlib
from typing import Any

import polars as pl

PLANNED, FUNCTION = True, False


def tables() -> dict[str, pl.DataFrame]:
    """Return two tables; some texts come twice, some are NULL."""
    count = 150
    review = [None if i % 31 == 5 else f"review {i % 97}" for i in range(count)]
    reviews = pl.DataFrame(
        {
            "id": range(count),
            "g": [i % 4 for i in range(count)],
            "year": [1990 + i * 7 % 40 for i in range(count)],
            "review": review,
        }
    )
    products = pl.DataFrame(
        {
            "pid": range(12),
            "g": [i % 4 for i in range(12)],
            "name": [f"product {i}" for i in range(12)],
        }
    )
    return {"reviews": reviews, "products": products}


def loaded(con: Any) -> Any:
    """Return a connection of DuckDB's or semops' with the tables in it."""
    for name, frame in tables().items():
        con.register("given", frame)
        con.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        con.unregister("given")
    return con


def answer(operator, instruction, row):
    """Answer by the instruction's and the values' checksum, whatever the operator is called."""
    code = zlib.crc32(repr((instruction, sorted(map(str, row.values())))).encode())
    if operator == "sem_map":
        return f"{'abc'[code % 3]}{code % 5}"
    return code % 3 > 0


F = "sem_filter('the {review} is good', review)"
M = "sem_map('topic of {review}', review)"

FORMS: list[tuple[str, str, bool]] = [
    ("where", f"SELECT id, review FROM reviews WHERE {F}", PLANNED),
    ("where and cheap", f"SELECT id FROM reviews WHERE {F} AND id % 7 = 0", PLANNED),
    (
        "two filters",
        f"SELECT id FROM reviews WHERE {F} AND sem_filter('{{r}} is old {{y}}', review, year)",
        PLANNED,
    ),
    ("select", f"SELECT id, {M} FROM reviews", PLANNED),
    ("select alias", f"SELECT id, {M} AS topic, upper(topic) AS loud FROM reviews", PLANNED),
    ("verdict column", f"SELECT id, {F} AS good FROM reviews", PLANNED),
    ("filter and map", f"SELECT id, {M} AS topic FROM reviews WHERE {F}", PLANNED),
    ("where and select", f"SELECT id, {F} AS again FROM reviews WHERE {F}", PLANNED),
    ("filter on a map", f"SELECT id FROM reviews WHERE sem_filter('{{t}} is nice', {M})", PLANNED),
    ("map compared", f"SELECT id FROM reviews WHERE {M} = 'a1' OR {M} IN ('b2', 'c3')", PLANNED),
    (
        "map like, then map",
        f"SELECT id, sem_map('again {{t}}', {M}) AS x FROM reviews WHERE {M} LIKE 'a%'",
        PLANNED,
    ),
    (
        "expression over a map",
        f"SELECT id FROM reviews WHERE sem_filter('{{t}} is loud', upper({M}))",
        PLANNED,
    ),
    (
        "derived table",
        f"SELECT x.topic, x.id FROM (SELECT id, {M} AS topic FROM reviews WHERE id < 60) x WHERE sem_filter('{{topic}} fits', topic)",
        PLANNED,
    ),
    (
        "two levels",
        f"SELECT * FROM (SELECT * FROM (SELECT id, review FROM reviews WHERE {F}) a WHERE id > 10) b WHERE sem_filter('{{review}} is short', b.review)",
        PLANNED,
    ),
    (
        "cte",
        f"WITH c AS (SELECT id, {M} AS topic FROM reviews) SELECT topic, id FROM c WHERE topic LIKE 'b%' AND id < 90",
        PLANNED,
    ),
    (
        "cte used twice",
        f"WITH c AS (SELECT id, {M} AS topic FROM reviews WHERE id < 40) SELECT a.id, b.id FROM c a JOIN c b ON a.topic = b.topic AND a.id < b.id",
        PLANNED,
    ),
    (
        "materialized cte",
        f"WITH c AS MATERIALIZED (SELECT * FROM reviews WHERE id % 7 = 0) SELECT id FROM c WHERE {F}",
        PLANNED,
    ),
    (
        "group by the map",
        f"SELECT {M} AS topic, count(*) AS n FROM reviews GROUP BY topic",
        PLANNED,
    ),
    (
        "group by, map above",
        "SELECT g, sem_map('sum up {texts}', string_agg(review, ';' ORDER BY id)) AS s FROM reviews GROUP BY g",
        PLANNED,
    ),
    (
        "count of a filter",
        f"SELECT g, count(*) FILTER (WHERE {F}) AS good, count(*) FROM reviews GROUP BY ALL",
        PLANNED,
    ),
    (
        "having",
        "SELECT g, count(*) AS n FROM reviews GROUP BY g HAVING count(*) > 3 AND sem_filter('{texts} agree', string_agg(review, ';' ORDER BY id))",
        PLANNED,
    ),
    (
        "qualify",
        f"SELECT id, g FROM reviews QUALIFY row_number() OVER (PARTITION BY g ORDER BY id) <= 9 AND {F}",
        PLANNED,
    ),
    (
        "window over a map",
        f"SELECT id, row_number() OVER (PARTITION BY {M} ORDER BY id) AS n FROM reviews",
        PLANNED,
    ),
    (
        "case",
        f"SELECT id, CASE WHEN year > 2010 THEN {M} WHEN {F} THEN 'good' ELSE 'old' END AS c FROM reviews",
        PLANNED,
    ),
    (
        "coalesce",
        f"SELECT id, coalesce(review, 'none') AS r, coalesce(nullif(g, 2)::VARCHAR, {M}) AS c FROM reviews",
        PLANNED,
    ),
    ("or", f"SELECT id FROM reviews WHERE year > 2015 OR {F}", PLANNED),
    (
        "or of filters, map",
        f"SELECT id, {M} AS topic FROM reviews WHERE {F} OR sem_filter('{{review}} is old', review) OR year = 1990",
        PLANNED,
    ),
    (
        "not",
        f"SELECT id FROM reviews WHERE NOT {F} AND (g = 1 OR NOT sem_filter('{{review}} is old', review))",
        PLANNED,
    ),
    ("distinct", f"SELECT DISTINCT {M} AS topic FROM reviews", PLANNED),
    ("distinct on", f"SELECT DISTINCT ON (g) g, id FROM reviews WHERE {F} ORDER BY g, id", PLANNED),
    ("order by", f"SELECT id, {M} AS topic FROM reviews WHERE {F} ORDER BY year DESC, id", PLANNED),
    ("order by the map", f"SELECT id FROM reviews ORDER BY {M}, id LIMIT 9", PLANNED),
    (
        "order and limit",
        f"SELECT id, {M} AS topic FROM reviews WHERE {F} ORDER BY year, id LIMIT 7 OFFSET 2",
        PLANNED,
    ),
    ("limit", f"SELECT id FROM reviews WHERE {F} LIMIT 5", PLANNED),
    (
        "union",
        f"SELECT id FROM reviews WHERE {F} AND g = 1 UNION ALL SELECT pid FROM products WHERE sem_filter('{{name}} sells', name)",
        PLANNED,
    ),
    (
        "in",
        f"SELECT pid FROM products WHERE g IN (SELECT g FROM reviews WHERE id < 3 AND {F})",
        PLANNED,
    ),
    (
        "exists",
        f"SELECT pid FROM products WHERE EXISTS (SELECT 1 FROM reviews WHERE {F}) AND pid > 2",
        PLANNED,
    ),
    (
        "correlated exists",
        "SELECT pid FROM products p WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.g = p.g AND sem_filter('{review} is good', r.review))",
        FUNCTION,
    ),
    (
        "correlated in, cheap",
        f"SELECT id FROM reviews r WHERE {F} AND g IN (SELECT p.g FROM products p WHERE p.pid = r.id)",
        PLANNED,
    ),
    ("star", f"SELECT *, {M} AS topic FROM reviews WHERE {F}", PLANNED),
    ("star exclude", f"SELECT * EXCLUDE (year), {M} FROM reviews WHERE g = 1", PLANNED),
    ("star replace", f"SELECT * REPLACE ({M} AS review) FROM reviews", PLANNED),
    (
        "star of a join",
        f"SELECT * FROM reviews r JOIN products p ON r.id = p.pid WHERE {F}",
        PLANNED,
    ),
    (
        "join, filter on one side",
        "SELECT r.id, p.name FROM reviews r JOIN products p ON r.g = p.g AND p.pid < 8 WHERE sem_filter('{review} is good', r.review)",
        PLANNED,
    ),
    (
        "left join",
        "SELECT r.id, p.name FROM reviews r LEFT JOIN products p ON r.id = p.pid WHERE sem_filter('{r} or {p}', r.review, coalesce(p.name, '-'))",
        PLANNED,
    ),
    (
        "semantic join",
        "SELECT r.id, p.pid FROM reviews r JOIN products p ON sem_filter('{review} is about {name}', r.review, p.name) WHERE r.id < 12",
        PLANNED,
    ),
    (
        "semantic join, equality",
        "SELECT r.id, p.pid FROM reviews r JOIN products p ON r.g = p.g AND sem_filter('{review} is about {name}', r.review, p.name) WHERE r.id < 40",
        PLANNED,
    ),
    (
        "semantic join, then map",
        "SELECT r.id, sem_map('compare {review} {name}', r.review, p.name) AS c FROM reviews r, products p WHERE r.id < 9 AND sem_filter('{review} is about {name}', r.review, p.name) AND sem_filter('{review} is good', r.review) AND sem_filter('{name} sells', p.name)",
        PLANNED,
    ),
    (
        "semantic left join",
        "SELECT p.pid, r.id FROM products p LEFT JOIN (SELECT * FROM reviews WHERE id < 5) r ON sem_filter('{review} is about {name}', r.review, p.name)",
        FUNCTION,
    ),
    (
        "semantic semi join",
        "SELECT p.pid FROM products p SEMI JOIN (SELECT * FROM reviews WHERE id < 5) r ON sem_filter('{review} is about {name}', r.review, p.name)",
        FUNCTION,
    ),
    (
        "instruction by row",
        "SELECT pid, sem_filter(CASE WHEN g = 1 THEN 'is {x} one' ELSE 'is {x} other' END, name) AS v FROM products",
        FUNCTION,
    ),
    (
        "options",
        "SELECT id FROM reviews WHERE sem_filter('the {review} is good', review, {'answers': ['yes', 'no'], 'on_error': 'null'})",
        PLANNED,
    ),
    (
        "scalar subquery",
        f"SELECT id, (SELECT max(pid) FROM products) AS top FROM reviews WHERE {F} AND id < (SELECT avg(id) FROM reviews)",
        PLANNED,
    ),
    ("no table", "SELECT sem_map('say {x}', 'hello') AS said", FUNCTION),
    (
        "constant argument",
        "SELECT id FROM reviews WHERE sem_filter('{x} is good', 'sugar') AND id < 4",
        PLANNED,
    ),
    (
        "case in where",
        f"SELECT id FROM reviews WHERE CASE WHEN g = 1 THEN {F} WHEN g = 2 THEN TRUE END",
        PLANNED,
    ),
    (
        "lambda",
        "SELECT pid, list_transform([name], lambda x: sem_map('say {x}', x)) AS said FROM products",
        FUNCTION,
    ),
    (
        "quoted and upper case",
        "SELECT R.\"ID\" FROM Reviews AS R WHERE SEM_FILTER('the {review} is good', R.REVIEW) /* yes -- */",
        PLANNED,
    ),
    (
        "same names",
        f"SELECT r.id, p.pid AS id FROM reviews r JOIN products p ON r.id = p.pid WHERE {F}",
        PLANNED,
    ),
    (
        "lateral",
        "SELECT r.id, l.s FROM reviews r, LATERAL (SELECT sem_map('topic of {review}', r.review) AS s) l WHERE r.id < 5",
        FUNCTION,
    ),
    (
        "values",
        "SELECT v.a FROM (VALUES ('x'), ('y'), ('z')) v(a) WHERE sem_filter('{a} is good', a)",
        PLANNED,
    ),
    (
        "intersect",
        f"SELECT id FROM reviews WHERE {F} INTERSECT SELECT id FROM reviews WHERE year > 2000",
        PLANNED,
    ),
]

# What people write besides: DuckDB's own spellings, names, odd places.
FORMS += [
    ("FROM reviews WHERE F", f"FROM reviews WHERE {F}", PLANNED),
    (
        "FROM reviews SELECT id, M m WHERE F LIMIT",
        f"FROM reviews SELECT id, {M} m WHERE {F} LIMIT 3;",
        PLANNED,
    ),
    (
        "SELECT main.reviews.id FROM main.reviews WHERE s",
        "SELECT main.reviews.id FROM main.reviews WHERE sem_filter('{x} ok', main.reviews.review)",
        PLANNED,
    ),
    (
        "SELECT memory.main.reviews.id FROM memory.main.r",
        "SELECT memory.main.reviews.id FROM memory.main.reviews WHERE sem_filter('{x} ok', reviews.review)",
        PLANNED,
    ),
    (
        "SELECT g, M m FROM reviews ORDER BY ALL",
        f"SELECT g, {M} m FROM reviews ORDER BY ALL",
        PLANNED,
    ),
    (
        "SELECT M, count(*) FROM reviews GROUP BY 1 ORDER",
        f"SELECT {M}, count(*) FROM reviews GROUP BY 1 ORDER BY 2 DESC, 1",
        PLANNED,
    ),
    (
        "SELECT count(DISTINCT M), sum(CASE WHEN F THEN 1",
        f"SELECT count(DISTINCT {M}), sum(CASE WHEN {F} THEN 1 ELSE 0 END), bool_or({F}), list({M} ORDER BY id) FROM reviews",
        PLANNED,
    ),
    (
        "SELECT avg(length(M)) a FROM reviews GROUP BY g ",
        f"SELECT avg(length({M})) a FROM reviews GROUP BY g HAVING avg(length({M})) > 1",
        PLANNED,
    ),
    (
        "SELECT g, max(M) m, sem_filter('{m} big', max(M)",
        f"SELECT g, max({M}) m, sem_filter('{{m}} big', max({M})) v FROM reviews GROUP BY g ORDER BY g",
        PLANNED,
    ),
    (
        "SELECT id, lag(M) OVER (ORDER BY id) l FROM",
        f"SELECT id, lag({M}) OVER (ORDER BY id) l FROM reviews QUALIFY {F}",
        PLANNED,
    ),
    (
        "SELECT id, sem_map('x {l}', lag(review) OVER (OR",
        "SELECT id, sem_map('x {l}', lag(review) OVER (ORDER BY id)) l FROM reviews",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews WHERE F ORDER BY id",
        f"SELECT id FROM reviews WHERE {F} ORDER BY id LIMIT 10 PERCENT",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews WHERE F ORDER BY id",
        f"SELECT id FROM reviews WHERE {F} ORDER BY id LIMIT (SELECT 3)",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews WHERE id IN (SELECT id",
        f"SELECT id FROM reviews WHERE id IN (SELECT id FROM reviews WHERE {F}) AND NOT EXISTS (SELECT 1 FROM products WHERE sem_filter('{{n}} never', name) AND pid > 100)",
        PLANNED,
    ),
    (
        "SELECT (SELECT count(*) FROM reviews WHERE F) AS",
        f"SELECT (SELECT count(*) FROM reviews WHERE {F}) AS n, pid FROM products",
        PLANNED,
    ),
    (
        "WITH a AS (SELECT *, F v FROM reviews),",
        f"WITH a AS (SELECT *, {F} v FROM reviews), b AS (SELECT g, count(*) n FROM a WHERE v GROUP BY g) SELECT a.id, b.n FROM a JOIN b USING (g) WHERE a.v ORDER BY a.id",
        PLANNED,
    ),
    (
        "SELECT * FROM reviews r NATURAL JOIN products p",
        "SELECT * FROM reviews r NATURAL JOIN products p WHERE sem_filter('{x} ok', r.review)",
        PLANNED,
    ),
    (
        "SELECT r.*, p.name FROM reviews r JOIN products ",
        "SELECT r.*, p.name FROM reviews r JOIN products p USING (g) WHERE sem_filter('{x} ok {y}', r.review, p.name)",
        PLANNED,
    ),
    (
        "SELECT * FROM (SELECT id, M FROM reviews) WHERE",
        f"SELECT * FROM (SELECT id, {M} FROM reviews) WHERE id < 5",
        PLANNED,
    ),
    (
        "SELECT x FROM (SELECT M AS x FROM reviews",
        f"SELECT x FROM (SELECT {M} AS x FROM reviews UNION SELECT name FROM products) WHERE sem_filter('{{x}} ok', x)",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews WHERE F UNION SELECT id",
        f"SELECT id FROM reviews WHERE {F} UNION SELECT id FROM reviews WHERE sem_filter('bad {{r}}', review) ORDER BY id LIMIT 5",
        PLANNED,
    ),
    (
        "SELECT id, [M, 'z'] AS l, {'a': M} AS",
        f"SELECT id, [{M}, 'z'] AS l, {{'a': {M}}} AS s, {M} || id AS c, length({M}) AS n FROM reviews WHERE id < 20",
        PLANNED,
    ),
    (
        "SELECT s.a FROM (SELECT {'a': review} AS s FROM",
        "SELECT s.a FROM (SELECT {'a': review} AS s FROM reviews) WHERE sem_filter('{x} ok', s.a)",
        PLANNED,
    ),
    (
        'SELECT "Weird Col" FROM (SELECT review AS "Weird',
        'SELECT "Weird Col" FROM (SELECT review AS "Weird Col", id FROM reviews) t WHERE sem_filter(\'{Weird Col} ok\', "weird col")',
        PLANNED,
    ),
    (
        'SELECT id FROM reviews AS "R x" WHERE sem_filter',
        'SELECT id FROM reviews AS "R x" WHERE sem_filter(\'{x} ok\', "R x".review)',
        PLANNED,
    ),
    (
        "SELECT CASE g WHEN 1 THEN M WHEN 2",
        f"SELECT CASE g WHEN 1 THEN {M} WHEN 2 THEN 'two' ELSE NULL END c, IF({F}, 'y', 'n') i, ifnull({M}, 'q') q, nullif({M}, 'a1') z FROM reviews",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews WHERE (F) IS TRUE AND",
        f"SELECT id FROM reviews WHERE ({F}) IS TRUE AND ({F} = true) AND {F} IS NOT NULL",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews WHERE M BETWEEN 'a' AND",
        f"SELECT id FROM reviews WHERE {M} BETWEEN 'a' AND 'b' AND {M} NOT IN ('a1')",
        PLANNED,
    ),
    (
        "SELECT unnest([1,2]) u, M m FROM reviews WHERE i",
        f"SELECT unnest([1,2]) u, {M} m FROM reviews WHERE id < 3",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews, range(3) r(i) WHERE F AN",
        f"SELECT id FROM reviews, range(3) r(i) WHERE {F} AND id = i",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews WHERE F AND id =",
        f"SELECT id FROM reviews WHERE {F} AND id = ANY(SELECT pid FROM products)",
        PLANNED,
    ),
    (
        "SELECT * FROM reviews POSITIONAL JOIN products W",
        f"SELECT * FROM reviews POSITIONAL JOIN products WHERE {F}",
        PLANNED,
    ),
    (
        "SELECT DISTINCT g, F FROM reviews ORDER BY g,",
        f"SELECT DISTINCT g, {F} FROM reviews ORDER BY g, 2 LIMIT 3",
        PLANNED,
    ),
    (
        "SELECT rowid, id FROM reviews WHERE F AND rowid",
        f"SELECT rowid, id FROM reviews WHERE {F} AND rowid < 9",
        PLANNED,
    ),
    (
        "SELECT t.id FROM (SELECT * FROM reviews ORDER BY",
        "SELECT t.id FROM (SELECT * FROM reviews ORDER BY id DESC LIMIT 20) t WHERE sem_filter('{x} ok', t.review) ORDER BY t.id",
        PLANNED,
    ),
    (
        "SELECT id, sem_map('a {x} b {y} c {x}', review,",
        "SELECT id, sem_map('a {x} b {y} c {x}', review, g) m FROM reviews WHERE g IS NOT NULL",
        PLANNED,
    ),
    (
        "SELECT a.id, b.id FROM reviews a, reviews b, pro",
        "SELECT a.id, b.id FROM reviews a, reviews b, products c WHERE a.id<5 AND b.id<5 AND c.pid=a.id AND sem_filter('{p} {q}', a.review, b.review)",
        PLANNED,
    ),
    (
        "SELECT a.id, c.pid FROM reviews a JOIN products ",
        "SELECT a.id, c.pid FROM reviews a JOIN products c ON sem_filter('{p} {q}', a.review, c.name) LEFT JOIN products d ON d.pid = a.id WHERE a.id < 6",
        PLANNED,
    ),
    (
        "SELECT a.id, count(*) FROM reviews a JOIN produc",
        "SELECT a.id, count(*) FROM reviews a JOIN products c ON sem_filter('{p} {q}', a.review, c.name) AND a.id < 6 GROUP BY a.id ORDER BY a.id",
        PLANNED,
    ),
    (
        "SELECT a.id FROM reviews a JOIN products c ON",
        "SELECT a.id FROM reviews a JOIN products c ON sem_filter('{p} {q}', a.review, c.name) WHERE a.id < 9 ORDER BY a.id, c.pid LIMIT 4",
        PLANNED,
    ),
    (
        "SELECT *, upper(name) u FROM reviews a CROSS JOI",
        "SELECT *, upper(name) u FROM reviews a CROSS JOIN products c WHERE sem_filter('{p} {q}', a.review, c.name) AND a.id < 3 AND pid < 4",
        PLANNED,
    ),
    (
        "SELECT id, $$dollar$$ d FROM reviews WHERE sem_f",
        "SELECT id, $$dollar$$ d FROM reviews WHERE sem_filter('it''s {x}', review)",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews WHERE sem_filter(E'line\\n",
        "SELECT id FROM reviews WHERE sem_filter(E'line\\n{x}', review)",
        PLANNED,
    ),
    (
        "SELECT id FROM reviews WHERE sem_filter('{x}' ||",
        "SELECT id FROM reviews WHERE sem_filter('{x}' || ' ok', review)",
        PLANNED,
    ),
    (
        "PIVOT (SELECT g, M m FROM reviews) ON m",
        f"PIVOT (SELECT g, {M} m FROM reviews) ON m USING count(*)",
        FUNCTION,
    ),
    (
        "SELECT columns('i.*'), M FROM reviews WHERE id <",
        f"SELECT columns('i.*'), {M} FROM reviews WHERE id < 4",
        FUNCTION,
    ),
    (
        "SELECT id FROM reviews WHERE F GROUP BY ROLLUP(i",
        f"SELECT id FROM reviews WHERE {F} GROUP BY ROLLUP(id) ORDER BY id",
        PLANNED,
    ),
    (
        "SELECT g, M m FROM reviews GROUP BY ROLLUP(g,",
        f"SELECT g, {M} m FROM reviews GROUP BY ROLLUP(g, m)",
        FUNCTION,
    ),
]
