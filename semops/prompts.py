"""Prompts as token ids: ``[head | row block | examples | instruction | tail]``.

Every segment is tokenised by itself and the ids are concatenated, so two operators that read the same
columns share the leading ids by construction: a merge across a border can't change them. The prompt is
a function of operator, values, model and style alone.

In raw style the model continues a text, and examples teach it only where they come first:
``[examples | row block | instruction]``. Then all rows share the examples, and no other operator does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from semops.errors import ConfigError
from semops.operators import SemMap, reads
from semops.serialize import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semops.engine.backend import Tokenizer
    from semops.examples import Example
    from semops.operators import Operator

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
        self._chat_frame: tuple[Ids, Ids] | None = None
        self._heads: dict[Operator, Ids] = {}
        self._suffixes: dict[Operator, Ids] = {}
        self._lock = threading.Lock()

    def head(self, operator: Operator) -> Ids:
        """Return the ids before the row block."""
        known = self._heads.get(operator)
        if known is None:
            known = self._make_head(operator)
            self._heads[operator] = known
        return known

    def segment(self, column: str, value: object, *, first: bool) -> Ids:
        """Return the ids of one field of the row block; None stands as ``null``."""
        return tuple(self.tokenizer.encode(_field(column, value, first=first)))

    def suffix(self, operator: Operator) -> Ids:
        """Return the ids of the instruction and what follows it, examples in chat style included."""
        known = self._suffixes.get(operator)
        if known is None:
            known = self._make_suffix(operator)
            self._suffixes[operator] = known
        return known

    def prompt(self, operator: Operator, values: Mapping[str, object]) -> tuple[Ids, Ids]:
        """Return the ids up to the end of the row block, and those after it.

        Parameters
        ----------
        operator
            What asks.
        values
            A value for each column that it reads.
        """
        row = [
            self.segment(name, values[name], first=not number)
            for number, name in enumerate(reads(operator))
        ]
        return joined([self.head(operator), *row]), self.suffix(operator)

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

    def _make_head(self, operator: Operator) -> Ids:
        if operator.asking.style != "raw":
            return self._frame()[0]
        start = tuple(self.tokenizer.start_ids)
        examples = operator.asking.examples
        return (*start, *self.tokenizer.encode(raw_examples(operator))) if examples else start

    def _make_suffix(self, operator: Operator) -> Ids:
        instruction = tuple(self.tokenizer.encode(instruction_text(operator)))
        if operator.asking.style == "raw":
            return instruction
        examples = operator.asking.examples
        shown = tuple(self.tokenizer.encode(chat_examples(examples))) if examples else ()
        return (*shown, *instruction, *self._frame()[1])

    def _frame(self) -> tuple[Ids, Ids]:
        with self._lock:
            if self._chat_frame is None:
                head, tail = self.tokenizer.chat_frame(self.system)
                self._chat_frame = (tuple(head), tuple(tail))
            return self._chat_frame


def chat_examples(examples: Sequence[Example]) -> str:
    r"""Return examples as the text that stands between a row and its instruction.

    Examples
    --------
    >>> from semops.examples import Example
    >>> chat_examples([Example((("text", "so good"),), "True")])
    '\n\nOther records, with the answers to them:\n\ntext: so good\nAnswer: True'
    """
    shown = "\n\n".join(f"{_block(example)}\nAnswer: {example.answer}" for example in examples)
    return f"\n\nOther records, with the answers to them:\n\n{shown}"


def raw_examples(operator: Operator) -> str:
    r"""Return examples as the text before the row: each as it would look with its answer.

    Examples
    --------
    >>> from semops.examples import Example
    >>> from semops.operators import Asking, SemFilter
    >>> from semops.template import parse
    >>> asking = Asking("raw", examples=(Example((("text", "so good"),), "kind"),))
    >>> raw_examples(SemFilter(parse("{text}\nTone:"), asking=asking))
    'text: so good\nTone: kind\n\n'
    """
    asked = instruction_text(operator)
    shown = (f"{_block(e)}{asked} {e.answer}\n\n" for e in operator.asking.examples)
    return "".join(shown)


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
        told = "" if operator.shape is None else f"\n{operator.shape.about}"
        return f"\n\n{text}{told}"
    yes, no = operator.answers
    return f"\n\nIs this true of the record? {text}\nReply {yes} or {no}."


def joined(segments: Sequence[Ids]) -> Ids:
    """Concatenate segments."""
    return tuple(token for segment in segments for token in segment)


def _block(example: Example) -> str:
    return "".join(
        _field(name, text, first=not number) for number, (name, text) in enumerate(example.fields)
    )


def _field(column: str, value: object, *, first: bool) -> str:
    start = "" if first else "\n"
    return f"{start}{column}: {'null' if value is None else text_of(value)}"
