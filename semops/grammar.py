"""JSON schemas as decoding is held to them, and as the model is told of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar


def told(schema: Any, choices: Sequence[str]) -> str:
    """Return what the model is told of the answer's form.

    Examples
    --------
    >>> told({"type": "integer", "minimum": 1, "maximum": 5}, ())
    'Reply with a whole number from 1 up to 5.'
    """
    if choices:
        return f"Reply with one of: {', '.join(choices)}."
    kind = schema.get("type")
    if kind == "integer" and "description" not in schema:
        limits = [f"{word} {schema[key]}" for key, word in _LIMITS if key in schema]
        return " ".join(["Reply with a whole number", *limits]) + "."
    if kind == "number" and "description" not in schema:
        limits = [f"{word} {schema[key]}" for key, word in _LIMITS if key in schema]
        return " ".join(["Reply with a number", *limits]) + "."
    if kind == "boolean":
        return "Reply with true or false."
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    return f"Reply with JSON that fits this JSON schema: {text}"


_LIMITS = (
    ("minimum", "from"),
    ("exclusiveMinimum", "above"),
    ("maximum", "up to"),
    ("exclusiveMaximum", "below"),
)


def tidied(schema: Any, longest: int) -> Any:
    """Return a JSON schema with every field required and nothing else allowed.

    Parameters
    ----------
    schema
        As pydantic writes it.
    longest
        Limit of strings that have none, in characters; 0 sets none.
    """
    if isinstance(schema, list):
        return [tidied(part, longest) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for name, part in schema.items():
        if name in {"properties", "$defs"}:
            tidy[name] = {key: tidied(value, longest) for key, value in part.items()}
        elif name in {"title", "default"}:
            continue
        elif name in {"enum", "const", "examples"}:
            tidy[name] = part
        else:
            tidy[name] = tidied(part, longest)
    if tidy.get("type") == "object" and "properties" in tidy:
        tidy["required"] = list(tidy["properties"])
        tidy["additionalProperties"] = False
    if tidy.get("type") == "string":
        # With an offset, which these formats ask for, a value would be of another type.
        pattern = _WITHOUT_OFFSET.get(tidy.get("format", ""))
        if pattern is not None:
            del tidy["format"]
            tidy["pattern"] = pattern
        if longest and _endless(tidy):
            tidy["maxLength"] = _limit(tidy, longest)
    # Decoding knows no negative multiples; reading checks what is left out here.
    if "multipleOf" in tidy and max(tidy.get("minimum", -1), tidy.get("exclusiveMinimum", -1)) < 0:
        del tidy["multipleOf"]
    for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        # Grammars count in 64 bits, or in floats; reading checks the rest.
        if abs(tidy.get(name, 0)) > _LARGEST:
            del tidy[name]
    return tidy


_LARGEST = 2**53
_DAY, _CLOCK = r"[0-9]{4}-[0-1][0-9]-[0-3][0-9]", r"[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"
_WITHOUT_OFFSET = {"date-time": f"^{_DAY}T{_CLOCK}$", "time": f"^{_CLOCK}$"}


def _endless(schema: Any) -> bool:
    """Return whether a string has no limit of its own."""
    return not schema.keys() & {"enum", "const", "format", "pattern", "maxLength"}


def _limit(schema: Any, longest: int) -> int:
    """Return the limit of a string that has none, in characters: there must be room above its least length."""
    return max(longest, 2 * int(schema.get("minLength", 0)))


def cut(schema: Any, value: Any, definitions: Any, longest: int) -> bool:
    """Return whether a string was ended at the limit that decoding set, not its schema.

    Parameters
    ----------
    schema
        Without the limits that decoding adds.
    value
        As JSON holds it.
    definitions
        What references in the schema mean.
    longest
        The limit, in characters.

    Examples
    --------
    >>> cut({"type": "string"}, "abc", {}, 3), cut({"type": "string", "maxLength": 3}, "abc", {}, 3)
    (True, False)
    """
    if "$ref" in schema:
        inner = definitions[schema["$ref"].rpartition("/")[2]]
        return cut(inner, value, definitions, longest)
    parts: list[tuple[Any, Any]] = [(part, value) for part in schema.get("anyOf", ())]
    if isinstance(value, str):
        if schema.get("type") == "string" and _endless(schema):
            return len(value) == _limit(schema, longest)
    elif isinstance(value, dict):
        inner = schema.get("properties", {})
        parts += [(inner[name], part) for name, part in value.items() if name in inner]
    elif isinstance(value, list):
        parts += [(schema["items"], part) for part in value if "items" in schema]
    return any(cut(part, held, definitions, longest) for part, held in parts)


def refused(schema: str) -> str:
    """Return why decoding can't be held to a JSON schema; empty where it can, or where no engine is installed.

    A grammar that compiles may still be too large to use, so its first token is decoded too.

    Examples
    --------
    >>> refused('{"type":"integer"}')
    ''
    """
    try:
        import llguidance
    except ImportError:
        return ""
    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, {"whitespace_flexible": False})
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
    if not matcher.get_error():
        allowed = matcher.compute_logit_bias()
        matcher.try_consume_tokens([next(token for token, bias in enumerate(allowed) if bias)])
    return str(matcher.get_error())


class _Bytes:
    """The smallest tokenizer there is."""

    eos_token_id = 256
    bos_token_id = None
    tokens: ClassVar = [*(bytes([byte]) for byte in range(256)), b"<end>"]
    special_token_ids: ClassVar = [256]

    def __call__(self, text: bytes) -> list[int]:
        return list(text)
