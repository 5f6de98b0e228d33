"""Whether DuckDB reads two texts as one statement, by the trees that it parses them into."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import TokenType

from semops.planner.sql_dialect import DIALECT

if TYPE_CHECKING:
    from collections.abc import Callable

FUNCTIONS = {"**": "power", "^": "power", "@": "abs", "^@": "starts_with", "position": "strpos"}
"""Functions of one meaning, as they are written and as sqlglot writes them."""
TYPES = {
    "varchar": "text", "string": "text", "bpchar": "text", "char": "text", "nvarchar": "text",
    "int": "integer", "int4": "integer", "signed": "integer", "int8": "bigint", "long": "bigint",
    "int2": "smallint", "short": "smallint", "int1": "tinyint", "int128": "hugeint", "uint128": "uhugeint",
    "float4": "float", "real": "float", "float8": "double", "numeric": "decimal", "bool": "boolean",
    "logical": "boolean", "bytea": "blob", "varbinary": "blob", "binary": "blob", "datetime": "timestamp",
    "bitstring": "bit", "timestamptz": "timestamp with time zone", "timestamp_us": "timestamp",
}  # fmt: skip
"""Types of one meaning."""
_INTERVAL = re.compile(r"\s*(-?\d+)\s+([a-z]+?)s?\s*", re.IGNORECASE)
QUERY = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES}


def query_of(text: str) -> str:
    """Return the query of a statement that writes its rows, such as ``INSERT INTO t SELECT ...``.

    Examples
    --------
    >>> query_of("INSERT INTO t (a) SELECT b FROM u ON CONFLICT DO NOTHING")
    'SELECT b FROM u '
    >>> query_of("COPY (FROM u) TO 'f.csv'")
    'FROM u'
    """
    tokens = sqlglot.tokenize(text, read=DIALECT)
    depth, start = 0, None
    inside = tokens[0].token_type == TokenType.COPY
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        kind = token.token_type
        after = "" if following is None else following.text.upper()
        if start is None and depth == inside and kind in QUERY:
            start = token.start
        elif start is None and not depth and not inside and kind == TokenType.L_PAREN:
            start = token.start if after in {"SELECT", "WITH", "FROM", "VALUES"} else None
        elif start is not None and depth == inside:
            words = (token.text.upper(), after)
            ends = words[0] == "RETURNING" or words in {("ON", "CONFLICT"), ("WITH", "NO")}
            if ends or words == ("WITH", "DATA") or (inside and kind == TokenType.R_PAREN):
                return text[start : token.start]
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
    return text if start is None else text[start:]


def canonical(node: Any) -> Any:
    """Return a part of DuckDB's parse tree without what makes no difference.

    Examples
    --------
    >>> canonical({"class": "FUNCTION", "function_name": "Len", "query_location": 7})
    {'class': 'FUNCTION', 'function_name': 'len'}
    """
    if isinstance(node, list):
        return [canonical(part) for part in node]
    if not isinstance(node, dict):
        return node
    found = {key: canonical(v) for key, v in node.items() if not key.startswith("query_location")}
    if found.get("null_order") == "NULLS LAST":
        found["null_order"] = "ORDER_DEFAULT"  # what it is with the settings that are planned
    special = _SPECIAL.get(str(found.get("type") or found.get("class")))
    return found if special is None else special(found)


def _function(node: dict[str, Any]) -> Any:
    name = node["function_name"].lower()
    name = node["function_name"] = FUNCTIONS.get(name, name)
    path = node.pop("qualified_name", {}).get("path", [])
    if len(path) > 1:
        node["schema"] = [part.lower() for part in path[:-1]]
    node.pop("is_operator", None)
    arguments = [part.get("expression") for part in node.get("arguments", [])]
    if name == "if" and len(arguments) == 3:
        check = {"when_expr": arguments[0], "then_expr": arguments[1]}
        case = {"class": "CASE", "type": "CASE_EXPR", "case_checks": [check]}
        return _named(node, {**case, "else_expr": arguments[2]})
    if name == "date_part" and isinstance(arguments[0].get("literal"), dict):
        arguments[0]["literal"]["text"] = arguments[0]["literal"]["text"].lower()
    if name.startswith("to_") and len(arguments) == 1:
        inner: Any = arguments[0]
        while isinstance(inner, dict) and inner.get("class") in {"CAST", "FUNCTION"}:
            inner = inner.get("child") or inner.get("arguments", [{}])[0].get("expression")
        if isinstance(inner, dict) and inner.get("class") == "CONSTANT":
            return _named(node, {"interval": [inner["literal"]["text"], name]})
    return node


def _cast(node: dict[str, Any]) -> Any:
    child, kind = node.get("child", {}), node.get("type_expr", {})
    if kind.get("name") == "interval" and child.get("class") == "CONSTANT":
        parts = _INTERVAL.fullmatch(child["literal"]["text"])
        if parts is not None:
            return _named(node, {"interval": [parts[1], f"to_{parts[2].lower()}s"]})
    return node


def _type(node: dict[str, Any]) -> Any:
    path = [part.lower() for part in node.pop("qualified_name", {}).get("path", [])]
    node.pop("type_name", None)
    node["name"] = ".".join([*path[:-1], *(TYPES.get(part, part) for part in path[-1:])])
    if node["name"] == "text":
        node.pop("children", None)  # DuckDB has no lengths of texts
    if node["name"] == "decimal" and "children" not in node:
        node["children"] = [_whole("18"), _whole("3")]
    return node


def _whole(text: str) -> dict[str, Any]:
    literal = {"kind": "INTEGER", "text": text}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": literal}


def _join(node: dict[str, Any]) -> Any:
    condition = node.get("condition", {})
    node.pop("is_implicit", None)
    if condition.get("class") == "CONSTANT" and condition["literal"]["text"] == "true":
        del node["condition"]
        node["ref_type"] = "CROSS"
    return node


def _constant(node: dict[str, Any]) -> Any:
    if node["literal"]["kind"] == "INTEGER":
        node["literal"]["text"] = node["literal"]["text"].replace("_", "")
    return node


def _not(kind: str) -> Callable[[dict[str, Any]], Any]:
    def negated(node: dict[str, Any]) -> Any:
        inner = {key: value for key, value in node.items() if key != "alias"}
        outer = {"class": "OPERATOR", "type": "OPERATOR_NOT", "children": [{**inner, "type": kind}]}
        return _named(node, outer)

    return negated


def _named(node: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return what stands for a node, under the node's alias."""
    return {**other, "alias": node["alias"]} if "alias" in node else other


_SPECIAL: dict[str, Callable[[dict[str, Any]], Any]] = {
    "FUNCTION": _function,
    "OPERATOR_CAST": _cast,
    "TYPE": _type,
    "VALUE_CONSTANT": _constant,
    "JOIN": _join,
    "OPERATOR_IS_NOT_NULL": _not("OPERATOR_IS_NULL"),
    "COMPARE_DISTINCT_FROM": _not("COMPARE_NOT_DISTINCT_FROM"),
}
