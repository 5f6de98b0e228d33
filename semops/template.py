"""Instruction templates: ``"{column}"`` placeholders, ``{{`` and ``}}`` for literal braces.

A placeholder stands for a column, not for its value: values go into the row block of the prompt, and
the instruction names the column in quotes. Data is never put through ``str.format``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from semops.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterable

Side = Literal["left", "right"]

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A column named in an instruction."""

    column: str
    side: Side | None = None
    """For joins, which input the column belongs to."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed instruction.

    Examples
    --------
    >>> parse("Is {text} about {{braces}}?").columns
    ('text',)
    >>> parse("Is {text} about {{braces}}?").rendered()
    'Is "text" about {braces}?'
    """

    text: str
    """The instruction as written."""
    parts: tuple[str | Placeholder, ...]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """The distinct placeholders, in order of first use."""
        found = (part for part in self.parts if isinstance(part, Placeholder))
        return tuple(dict.fromkeys(found))

    @property
    def columns(self) -> tuple[str, ...]:
        """The distinct columns named, in order of first use."""
        return tuple(dict.fromkeys(part.column for part in self.placeholders))

    def rendered(self, *, skip_leading: bool = False) -> str:
        """Return the instruction with each placeholder as its quoted column name.

        Parameters
        ----------
        skip_leading
            Leave out a placeholder that begins the instruction (it stands for the row block).
        """
        parts = self.parts
        if skip_leading and parts and isinstance(parts[0], Placeholder):
            parts = parts[1:]
        return "".join(f'"{p.column}"' if isinstance(p, Placeholder) else p for p in parts)


def parse(text: str) -> Template:
    """Parse an instruction.

    Parameters
    ----------
    text
        The instruction; ``{name}`` names a column, ``{{`` and ``}}`` are braces.

    Raises
    ------
    TemplateError
        If a brace is not closed or not opened, or a placeholder is empty.

    Examples
    --------
    >>> parse("{a.b} and {본문}").columns
    ('a.b', '본문')
    >>> parse("half a {brace")
    Traceback (most recent call last):
    ...
    semops.errors.TemplateError: unmatched '{' at character 8 of the instruction 'half a {brace'. ...
    """
    parts: list[str | Placeholder] = []
    literal: list[str] = []
    position = 0
    for match in _TOKEN.finditer(text):
        literal.append(text[position : match.start()])
        position = match.end()
        token = match.group()
        if token in {"{{", "}}"}:
            literal.append(token[0])
        elif match.group(1) is None:
            msg = (
                f"unmatched {token!r} at character {match.start() + 1} of the instruction {text!r}. "
                f"Write {{column}} for a column and {token}{token} for a literal brace."
            )
            raise TemplateError(msg)
        elif not match.group(1):
            msg = f"empty placeholder {{}} in the instruction {text!r}; write {{column}}."
            raise TemplateError(msg)
        else:
            if any(literal):
                parts.append("".join(literal))
            literal = []
            parts.append(Placeholder(match.group(1)))
    literal.append(text[position:])
    if any(literal):
        parts.append("".join(literal))
    return Template(text, tuple(parts))


def bind(template: Template, columns: Iterable[str]) -> Template:
    """Check a one-table template against the columns of its input.

    Raises
    ------
    TemplateError
        If no column is named, or one that isn't there.
    """
    known = list(columns)
    if not template.placeholders:
        raise TemplateError.no_placeholder(template.text, known)
    for column in template.columns:
        if column not in known:
            raise TemplateError.unknown_column(column, template.text, known)
    return template


def bind_join(template: Template, left: Iterable[str], right: Iterable[str]) -> Template:
    """Resolve the sides of a join's placeholders.

    ``{name:left}`` and ``{name:right}`` choose a side; a plain ``{name}`` is enough where only one
    side has the column.

    Raises
    ------
    TemplateError
        If a column is on neither or on both sides, or one side isn't used at all.
    """
    known: dict[Side, list[str]] = {"left": list(left), "right": list(right)}
    parts = tuple(
        part if isinstance(part, str) else _resolve(part.column, template.text, known)
        for part in template.parts
    )
    bound = Template(template.text, parts)
    for side, columns in known.items():
        if not any(p.side == side for p in bound.placeholders):
            msg = (
                f"the join instruction {template.text!r} names no column of the {side} side, so it "
                f"could not depend on it. Write {{column:{side}}} with one of "
                f"{', '.join(map(repr, columns))}."
            )
            raise TemplateError(msg)
    return bound


def _resolve(name: str, text: str, known: dict[Side, list[str]]) -> Placeholder:
    column, _, suffix = name.rpartition(":")
    if suffix in known and column:
        side: Side = "left" if suffix == "left" else "right"
        if column in known[side]:
            return Placeholder(column, side)
    sides = [side for side in known if name in known[side]]
    if len(sides) == 1:
        return Placeholder(name, sides[0])
    if sides:
        msg = (
            f"{{{name}}} in {text!r} is a column of both sides; write {{{name}:left}} or "
            f"{{{name}:right}}."
        )
        raise TemplateError(msg)
    everything = [f"{c}:{side}" for side in known for c in known[side]]
    raise TemplateError.unknown_column(name, text, everything)
