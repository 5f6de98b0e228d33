"""The semantic operators: what they ask, not how it is done.

Front ends build them, the planner moves them, the runner turns them into prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from semops.errors import ConfigError

if TYPE_CHECKING:
    from semops.template import Template

PromptStyle = Literal["chat", "raw"]
OnError = Literal["null", "raise"]
OnCutoff = Literal["null", "keep"]


@dataclass(frozen=True, slots=True)
class Asking:
    """How an operator asks, whatever it asks for."""

    style: PromptStyle = "chat"
    """``chat`` wraps the prompt in the model's chat template; ``raw`` lets the model continue it."""
    on_error: OnError = "null"
    """What a failed or undecided answer becomes."""

    def __post_init__(self) -> None:
        check_choice("prompt_style", self.style, ("chat", "raw"))
        check_choice("on_error", self.on_error, ("null", "raise"))


@dataclass(frozen=True, slots=True)
class SemFilter:
    """A predicate on a row; keeps the rows where it holds, or adds the verdict as a column."""

    template: Template
    answers: tuple[str, str] = ("True", "False")
    """What the model says for yes and for no; one token of each is compared."""
    name: str | None = None
    """Column for the verdict, instead of filtering."""
    probability: str | None = None
    """Column for the verdict's probability, in [0, 1]."""
    asking: Asking = field(default_factory=Asking)

    kind = "sem_filter"

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns that it adds."""
        return tuple(name for name in (self.name, self.probability) if name is not None)

    @property
    def filters(self) -> bool:
        """Whether rows are dropped."""
        return self.name is None


@dataclass(frozen=True, slots=True)
class SemMap:
    """A new text column."""

    template: Template
    name: str
    max_tokens: int = 256
    """Cap on the answer, in tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer."""
    on_cutoff: OnCutoff = "null"
    """What an answer becomes that was cut off at ``max_tokens``."""
    asking: Asking = field(default_factory=Asking)

    kind = "sem_map"

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns that it adds."""
        return (self.name,)

    @property
    def filters(self) -> bool:
        """Whether rows are dropped."""
        return False


@dataclass(frozen=True, slots=True)
class SemJoin:
    """A predicate on pairs of rows; keeps the pairs where it holds."""

    template: Template
    right_names: tuple[tuple[str, str], ...]
    """Right columns and their names in the result."""
    answers: tuple[str, str] = ("True", "False")
    asking: Asking = field(default_factory=Asking)

    kind = "sem_join"

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns that it adds: those of the right side."""
        return tuple(name for _, name in self.right_names)

    @property
    def filters(self) -> bool:
        """Whether rows are dropped."""
        return True


Operator = SemFilter | SemMap | SemJoin


def reads(operator: Operator) -> tuple[str, ...]:
    """Return the columns in the operator's row block, in order.

    Columns in template order; a join's left columns come before its right ones (under their names in
    the result), so that all pairs of one left row share it as prefix.
    """
    if not isinstance(operator, SemJoin):
        return operator.template.columns
    names = dict(operator.right_names)
    placeholders = operator.template.placeholders
    left = [p.column for p in placeholders if p.side == "left"]
    right = [names[p.column] for p in placeholders if p.side == "right"]
    return tuple(dict.fromkeys([*left, *right]))


def left_reads(operator: SemJoin) -> tuple[str, ...]:
    """Return the left columns in a join's row block, in order."""
    found = [p.column for p in operator.template.placeholders if p.side == "left"]
    return tuple(dict.fromkeys(found))


def label(operator: Operator) -> str:
    """Return the operator's key in profiles and plans.

    Examples
    --------
    >>> from semops.template import parse
    >>> label(SemMap(parse("Summarise {text}"), "summary"))
    'sem_map:summary'
    """
    if isinstance(operator, SemMap):
        return f"{operator.kind}:{operator.name}"
    if isinstance(operator, SemFilter) and operator.name is not None:
        return f"{operator.kind}:{operator.name}"
    return operator.kind


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Check an argument that has a few allowed values.

    Raises
    ------
    ConfigError
        If the value is none of them.
    """
    if value not in allowed:
        listed = ", ".join(map(repr, allowed))
        msg = f"{name}={value!r} is not allowed; choose one of {listed}."
        raise ConfigError(msg)


def check_answers(answers: object) -> tuple[str, str]:
    """Check the two answers of a predicate.

    Raises
    ------
    ConfigError
        If there are not two different, non-empty texts.
    """
    ok = (
        isinstance(answers, (tuple, list))
        and len(answers) == 2
        and all(isinstance(a, str) and a.strip() for a in answers)
        and answers[0] != answers[1]
    )
    if not ok:
        msg = (
            f"answers={answers!r} must be two different texts, the one for yes first, for example "
            f'answers=("positive", "negative").'
        )
        raise ConfigError(msg)
    assert isinstance(answers, (tuple, list))  # noqa: S101
    return (str(answers[0]), str(answers[1]))


def check_max_tokens(max_tokens: object) -> int:
    """Check a cap on answers.

    Raises
    ------
    ConfigError
        If it is not a positive whole number.
    """
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        msg = f"max_tokens={max_tokens!r} must be a whole number of at least 1 (tokens)."
        raise ConfigError(msg)
    return max_tokens


def check_stop(stop: object) -> tuple[str, ...]:
    """Check the texts that end an answer.

    Raises
    ------
    ConfigError
        If there is anything but non-empty texts.
    """
    texts = (stop,) if isinstance(stop, str) else stop
    ok = isinstance(texts, (tuple, list)) and all(isinstance(t, str) and t for t in texts)
    if not ok:
        msg = f'stop={stop!r} must be a text, or several in a tuple, none empty, for example stop="\\n".'
        raise ConfigError(msg)
    assert isinstance(texts, (tuple, list))  # noqa: S101
    return tuple(texts)


def check_text(argument: str, value: object) -> str:
    """Check an argument that is a text, for example a column's name.

    Raises
    ------
    ConfigError
        If it is something else.
    """
    if not isinstance(value, str):
        msg = f"{argument}={value!r} must be a text."
        raise ConfigError(msg)
    return value
