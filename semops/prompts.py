"""Prompts as token ids: ``[head | row block | instruction | tail]``.

Every segment is tokenised by itself and the ids are concatenated, so two operators that read the same
columns share the leading ids by construction: a merge across a border can't change them. The prompt is
a function of operator, values, model and style alone.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from semops.errors import ConfigError
from semops.operators import SemMap
from semops.serialize import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semops.engine.backend import Tokenizer
    from semops.operators import Operator, PromptStyle

SYSTEM = (
    "You are given one record of a table, one field a line, and then an instruction about it. "
    "Reply with the answer only."
)

Ids = tuple[int, ...]


class Prompter:
    """Builds the segments of prompts for one tokenizer.

    Parameters
    ----------
    tokenizer
        The model's tokenizer.
    system
        The system prompt, the same for all operators of a query.
    """

    def __init__(self, tokenizer: Tokenizer, system: str = SYSTEM) -> None:
        self.tokenizer = tokenizer
        self.system = system
        self._frames: dict[str, tuple[Ids, Ids]] = {}
        self._suffixes: dict[Operator, Ids] = {}
        self._lock = threading.Lock()

    def frame(self, style: PromptStyle) -> tuple[Ids, Ids]:
        """Return the ids before the row block and after the instruction."""
        if style == "raw":
            return tuple(self.tokenizer.start_ids), ()
        with self._lock:
            if style not in self._frames:
                head, tail = self.tokenizer.chat_frame(self.system)
                self._frames[style] = (tuple(head), tuple(tail))
            return self._frames[style]

    def segment(self, column: str, value: object, *, first: bool) -> Ids:
        """Return the ids of one field of the row block."""
        start = "" if first else "\n"
        return tuple(self.tokenizer.encode(f"{start}{column}: {text_of(value)}"))

    def suffix(self, operator: Operator) -> Ids:
        """Return the ids of the instruction and what follows it."""
        known = self._suffixes.get(operator)
        if known is None:
            _, tail = self.frame(operator.asking.style)
            known = (*self.tokenizer.encode(instruction_text(operator)), *tail)
            self._suffixes[operator] = known
        return known

    def choices(self, operator: Operator) -> tuple[int, int]:
        """Return the first token of each of a predicate's answers.

        Raises
        ------
        ConfigError
            If both answers begin with the same token.
        """
        assert not isinstance(operator, SemMap)  # noqa: S101 - maps have no answers
        space = " " if operator.asking.style == "raw" else ""
        yes, no = (self.tokenizer.encode(space + answer)[0] for answer in operator.answers)
        if yes == no:
            msg = (
                f"answers={operator.answers!r} begin with the same token for this model, so one "
                f"token can't tell them apart; choose answers that differ in their first letters."
            )
            raise ConfigError(msg)
        return (yes, no)


def instruction_text(operator: Operator) -> str:
    r"""Return the text that follows the row block.

    In raw style the model continues the text, so a predicate's instruction stands as written; in
    chat style the two answers are named.

    Examples
    --------
    >>> from semops.operators import Asking, SemFilter
    >>> from semops.template import parse
    >>> raw = SemFilter(parse("{text}\nSentiment:"), asking=Asking(style="raw"))
    >>> instruction_text(raw)
    '\nSentiment:'
    >>> instruction_text(SemFilter(parse("{text} is kind")))
    '\n\nIs this true of the record? "text" is kind\nReply True or False.'
    """
    if operator.asking.style == "raw":
        text = operator.template.rendered(skip_leading=True)
        starts_with_row = text != operator.template.rendered()
        return text if starts_with_row else f"\n\n{text}"
    text = operator.template.rendered()
    if isinstance(operator, SemMap):
        return f"\n\n{text}"
    yes, no = operator.answers
    return f"\n\nIs this true of the record? {text}\nReply {yes} or {no}."


def joined(segments: Sequence[Ids]) -> Ids:
    """Concatenate segments."""
    return tuple(token for segment in segments for token in segment)
