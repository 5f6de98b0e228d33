"""The semantic operators: what they ask, not how it is done.

Front ends build them, the planner moves them, the runner turns them into prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from semops.arguments import check_choice

if TYPE_CHECKING:
    from semops.examples import Example
    from semops.schemas import Shape
    from semops.template import Template

PromptStyle = Literal["chat", "raw"]
OnError = Literal["null", "raise"]
OnCutoff = Literal["null", "keep"]
Nulls = Literal["null", "text"]
Overflow = Literal["error", "truncate"]


@dataclass(frozen=True, slots=True)
class Asking:
    """How an operator asks, whatever it asks for."""

    style: PromptStyle = "chat"
    """``chat`` wraps the prompt in the model's chat template; ``raw`` lets the model continue it."""
    on_error: OnError = "null"
    """What a failed or undecided answer becomes."""
    examples: tuple[Example, ...] = ()
    """Rows with their answers, shown to the model (few-shot)."""
    nulls: Nulls = "null"
    """A row with NULL in a column that is read: ``null`` gives NULL without a call, ``text`` asks."""
    overflow: Overflow = "error"
    """A row longer than the context: NULL with a reason, or its longest fields are cut."""

    def __post_init__(self) -> None:
        check_choice("prompt_style", self.style, ("chat", "raw"))
        check_choice("on_error", self.on_error, ("null", "raise"))
        check_choice("nulls", self.nulls, ("null", "text"))
        check_choice("overflow", self.overflow, ("error", "truncate"))


@dataclass(frozen=True, slots=True)
class Deciding:
    """When a predicate's two probabilities make a verdict."""

    calibrate: bool = False
    """Whether the answer that the model gives to empty rows is taken off."""
    min_margin: float = 0.0
    """Least log odds between the two answers, in nats; 2.2 is nine to one."""
    min_mass: float = 0.0
    """Least probability that the model gives to the two answers together, in [0, 1]."""


ALWAYS = Deciding()


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
    deciding: Deciding = ALWAYS

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
    """A new column: text, or values of a type."""

    template: Template
    name: str
    max_tokens: int = 256
    """Cap on the answer, in tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer."""
    on_cutoff: OnCutoff = "null"
    """What an answer becomes that was cut off at ``max_tokens``."""
    asking: Asking = field(default_factory=Asking)
    shape: Shape | None = None
    """Type of the answer, which decoding is held to; None for text."""
    temperature: float = 0.0
    """0 decodes greedily; above, answers are drawn, from the same seed for the same prompt."""

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
    deciding: Deciding = ALWAYS

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
