"""Names in SQL: what a SELECT reads of its tables, stars written out, aliases resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from semops.planner.sql_calls import Unplanned, is_call, sql_of
from semops.planner.sql_conditions import mine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from semops.planner.sql_calls import Catalog, Column

CLAUSES = ("where", "group", "having", "qualify", "distinct", "order")
FROM = ("from_", "joins", "laterals")


def key_of(node: exp.Expr) -> str:
    """Return a text that is equal for expressions that differ only in the case of names.

    Examples
    --------
    >>> import sqlglot
    >>> key_of(sqlglot.parse_one("T.Text")) == key_of(sqlglot.parse_one('t."text"'))
    True
    """
    copied = node.copy()
    for name in copied.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", bool(name.name))
    return sql_of(copied)


def quoted(name: str) -> exp.Column:
    """Return a reference to a column of exactly this name."""
    return exp.column(exp.to_identifier(name, quoted=True))


def renamed(node: exp.Expr, name: str) -> exp.Alias:
    """Return an expression under an alias."""
    return exp.Alias(this=node, alias=exp.to_identifier(name, quoted=True))


def visible_ctes(select: exp.Expr) -> exp.With | None:
    """Return the common table expressions that a SELECT may name, its own ones included."""
    found: list[exp.Expr] = []
    recursive = False
    inner: exp.Expr | None = None
    node: exp.Expr | None = select
    while node is not None:
        clause = node.args.get("with_")
        if clause is not None:
            recursive = recursive or bool(clause.args.get("recursive"))
            before = []
            for cte in clause.expressions:
                if cte is inner:
                    break
                before.append(cte)
            found = [*before, *found]
        if isinstance(node, exp.CTE):
            inner = node
        node = node.parent
    if not found:
        return None
    return exp.With(expressions=[cte.copy() for cte in found], recursive=recursive)


def from_query(select: exp.Select, items: list[exp.Expr]) -> exp.Select:
    """Return a query over the tables of a SELECT, which sees the same common table expressions."""
    query = exp.Select(expressions=[item.copy() for item in items])
    for part in FROM:
        value = select.args.get(part)
        if value:
            copied = [v.copy() for v in value] if isinstance(value, list) else value.copy()
            query.set(part, copied)
    query.set("with_", visible_ctes(select))
    return query


class Reads:
    """What an upper SELECT reads of a lower one: expressions, each under a name of ours.

    Parameters
    ----------
    prefix
        Begins the names.
    """

    def __init__(self, prefix: str) -> None:
        self.items: dict[str, tuple[exp.Expr, str]] = {}
        self._prefix = prefix

    def name_of(self, node: exp.Expr) -> str:
        """Return the name under which the lower SELECT gives an expression."""
        key = key_of(node)
        if key not in self.items:
            self.items[key] = (node.copy(), f"{self._prefix}{len(self.items)}")
        return self.items[key][1]

    def select_list(self) -> list[exp.Expr]:
        """Return the lower SELECT's list."""
        return [renamed(node.copy(), name) for node, name in self.items.values()]


def rewritten(
    node: exp.Expr,
    reads: Callable[[exp.Expr], exp.Expr],
    known: Mapping[str, exp.Expr],
    aliases: Collection[str] = (),
) -> exp.Expr:
    """Return an expression over the columns of a lower SELECT.

    Parameters
    ----------
    node
        An expression over the tables of a SELECT.
    reads
        Gives what an expression is called above.
    known
        What stands for whole expressions, by :func:`key_of`.
    aliases
        Lower-case names that an unqualified column may mean instead.
    """

    def choose(part: exp.Expr) -> exp.Expr:
        if known and isinstance(part, (exp.Condition, exp.Func, exp.Filter, exp.WithinGroup)):
            found = known.get(key_of(part))
            if found is not None:
                return found.copy()
        if isinstance(part, exp.Column):
            if part.meta.get("output"):
                return part
            if not part.table and part.name.lower() in aliases:
                return part
            return reads(part)
        if isinstance(part, exp.Query) or (_has_scope(part) and _liftable(part)):
            return reads(part)
        return part

    return node.copy().transform(choose, copy=False)


def _has_scope(node: exp.Expr) -> bool:
    """Return whether an expression has names of its own inside: a subquery, a lambda."""
    return isinstance(node, (exp.Condition, exp.Func)) and any(
        isinstance(part, (exp.Query, exp.Lambda, exp.Comprehension)) for part in node.walk()
    )


def _liftable(node: exp.Expr) -> bool:
    return not mine(node) and not any(
        isinstance(part, exp.AggFunc)
        or is_window(part)
        or part.meta.get("effects", frozenset()) & {"aggregate", "rows"}
        for part in node.walk(prune=lambda n: isinstance(n, exp.Query))
    )


def described(select: exp.Select, items: list[exp.Expr], catalog: Catalog) -> list[Column]:
    """Return what DuckDB calls expressions over the tables of a SELECT."""
    return catalog.describe(sql_of(from_query(select, items)))


def expand_stars(select: exp.Select, catalog: Catalog) -> None:
    """Write ``*`` and ``t.*`` out.

    Raises
    ------
    Unplanned
        For a star whose columns can't be told apart by name.
    """
    items: list[exp.Expr] = []
    for item in select.expressions:
        star = _star_of(item)
        items += [item] if star is None else _expanded(select, item, star, catalog)
    select.set("expressions", items)


def _star_of(item: exp.Expr) -> exp.Star | None:
    if isinstance(item, exp.Star):
        return item
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        return item.this
    if any(isinstance(part, exp.Columns) for part in item.walk()):
        raise Unplanned("COLUMNS(...) beside a semantic call")
    return None


def _expanded(
    select: exp.Select, item: exp.Expr, star: exp.Star, catalog: Catalog
) -> list[exp.Expr]:
    if star.args.get("rename"):
        raise Unplanned("* RENAME beside a semantic call")
    replaced = {part.alias.lower(): part.this for part in star.args.get("replace") or []}
    bare = item.copy()
    (bare if isinstance(bare, exp.Star) else bare.this).set("replace", None)
    table = item.args.get("table") if isinstance(item, exp.Column) else None
    columns = described(select, [bare], catalog)
    qualified: list[exp.Expr] = [
        exp.Column(
            this=exp.to_identifier(column.name, quoted=True),
            table=table.copy() if table is not None else None,
        )
        for column in columns
    ]
    names = [column.name.lower() for column in columns]
    if len(set(names)) < len(names):
        qualified = _by_table(select, [column.name for column in columns], star, catalog)
    return [
        renamed(replaced.get(column.name.lower(), node).copy(), column.name)
        for column, node in zip(columns, qualified, strict=True)
    ]


def _by_table(
    select: exp.Select, names: list[str], star: exp.Star, catalog: Catalog
) -> list[exp.Expr]:
    """Write a star over tables with equal column names out as ``a.x, b.x``."""
    found: list[exp.Expr] = []
    tables = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or [])]
    usable = not star.args.get("except_") and all(table.alias_or_name for table in tables)
    for table in tables if usable else []:
        alias = exp.to_identifier(table.alias_or_name, quoted=True)
        every = exp.Column(this=exp.Star(), table=alias)
        found += [
            exp.Column(this=exp.to_identifier(column.name, quoted=True), table=alias.copy())
            for column in described(select, [every], catalog)
        ]
    if [node.name for node in found] != names:
        raise Unplanned("a star over tables with columns of one name")
    return found


def resolve_aliases(select: exp.Select, catalog: Catalog) -> None:
    """Put an alias's expression in its place, where DuckDB lets other clauses use the alias.

    ORDER BY keeps them: there an alias goes before a column, and stays one.
    """
    aliases = {
        item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)
    }
    if not aliases:
        return
    columns: set[str] | None = None
    for _ in range(len(aliases) + 1):
        uses = [node for node in _unqualified(select) if node.name.lower() in aliases]
        if not uses:
            return
        if columns is None:
            columns = {c.name.lower() for c in described(select, [exp.Star()], catalog)}
        uses = [node for node in uses if node.name.lower() not in columns]
        if not uses:
            return
        for use in uses:
            use.replace(exp.paren(aliases[use.name.lower()].copy()))
    raise Unplanned("aliases that refer to one another")


def _unqualified(select: exp.Select) -> list[exp.Column]:
    places = [*select.expressions, *(select.args.get(c) for c in CLAUSES if c != "order")]
    return [
        node
        for place in places
        if isinstance(place, exp.Expr)
        for node in place.find_all(exp.Column)
        if not node.table and node.find_ancestor(exp.Select) is select
    ]


def mark_effects(tree: exp.Expr, catalog: Catalog) -> None:
    """Note in the nodes what functions do, for those who don't know the catalog."""
    for node in tree.find_all(exp.Anonymous):
        found = effects_of(node, catalog)
        if found:
            node.meta["effects"] = found


def is_window(node: exp.Expr) -> bool:
    """Return whether a node is a window function's call, or a macro's that has one."""
    return isinstance(node, exp.Window) or "window" in node.meta.get("effects", ())


def makes_rows(node: exp.Expr) -> bool:
    """Return whether a node makes several rows of one."""
    return "rows" in node.meta.get("effects", ())


def is_aggregate(node: exp.Expr, catalog: Catalog) -> bool:
    """Return whether a node is an aggregate function's call."""
    return isinstance(node, exp.AggFunc) or "aggregate" in effects_of(node, catalog)


def effects_of(node: exp.Expr, catalog: Catalog) -> frozenset[str]:
    """Return what a node by itself does beyond one value a row, the same for the same arguments."""
    if isinstance(node, exp.Window):
        return frozenset({"window"})
    if isinstance(node, exp.AggFunc):
        return frozenset({"aggregate"})
    if isinstance(node, exp.Anonymous) and not is_call(node):
        return catalog.effects(node.name.lower())
    return frozenset()
