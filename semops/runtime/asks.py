"""What the semantic steps of a pipeline ask, worked out once for all tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from semops.engine.plan import Decoding, Step
from semops.operators import SemFilter, SemJoin, SemMap, reads
from semops.planner.ir import Copy, Join, Semantic
from semops.runtime.overflow import answer_room

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semops.operators import Operator
    from semops.prompts import Prompter


class Ask(NamedTuple):
    """What one step asks: hashing operators for each tuple would be slow."""

    operator: SemFilter | SemMap | SemJoin
    label: str
    columns: tuple[str, ...]
    head: tuple[int, ...]
    """Token ids before the row block."""
    head_number: int
    """The same for steps with the same head."""
    suffix: tuple[int, ...]
    """Token ids after the row block."""
    decoding: Decoding
    shift: float
    """Log odds that calibration takes off."""
    shares_prefix: bool
    """Whether its row block begins with what the parent retains."""
    longest_block: int | None
    """Most tokens of head and row block, where longer rows are cut; None where they are not."""

    @property
    def asks_about_nulls(self) -> bool:
        """Whether a row with NULL in a column is asked about."""
        return self.operator.asking.nulls == "text"


class AskBuilder:
    """Makes the asks of a pipeline.

    Parameters
    ----------
    prompter
        Builds prompts.
    labels
        Names of the operators.
    shifts
        Calibration of those that are calibrated, in nats.
    context_tokens
        Longest prompt plus answer, in tokens.
    """

    def __init__(
        self,
        prompter: Prompter,
        labels: Mapping[Operator, str],
        shifts: Mapping[Operator, float],
        context_tokens: int,
    ) -> None:
        self.prompter = prompter
        self._labels = labels
        self._shifts = shifts
        self._context_tokens = context_tokens
        self._heads: dict[tuple[int, ...], int] = {}

    def ask(self, step: Any, retained: Ask | None, prefix: tuple[str, ...]) -> Ask | None:
        """Return what a step asks; None for a step that asks nothing.

        Parameters
        ----------
        step
            A node of the plan.
        retained
            What the product before its stage asks, whose prefix the parent retains.
        prefix
            The columns in that prefix.
        """
        if not isinstance(step, (Semantic, Join)):
            return None
        operator = step.operator
        columns = reads(operator)
        decoding = (
            Decoding(
                operator.max_tokens,
                stop=_stops(operator),
                texts=operator.shape.choices if operator.shape is not None else (),
                json_schema=operator.shape.json_schema if operator.shape is not None else "",
                temperature=operator.temperature,
            )
            if isinstance(operator, SemMap)
            else Decoding(1, self.prompter.choices(operator))
        )
        head = self.prompter.head(operator)
        number = self._heads.setdefault(head, len(self._heads))
        suffix = self.prompter.suffix(operator)
        longest = None
        if operator.asking.overflow == "truncate":
            room = answer_room(decoding.max_tokens, self._context_tokens)
            longest = max(self._context_tokens - room - len(suffix), 0)
        return Ask(
            operator,
            self._labels[operator],
            columns,
            head,
            number,
            suffix,
            decoding,
            self._shifts.get(operator, 0.0),
            columns[: len(prefix)] == prefix
            and (retained is None or retained.head_number == number),
            longest,
        )


def engine_step(node: Any, ask: Ask | None, writers: Mapping[str, int]) -> Step:
    """Return the engine's view of a step.

    Parameters
    ----------
    node
        A node of the plan.
    ask
        What it asks.
    writers
        Columns that earlier steps of the stage write, and which.
    """
    if isinstance(node, Copy):
        return Step(f"copy:{node.name}", max_tokens=1, one_token=True)
    if ask is None:
        return Step("relational", local=True)
    read = tuple(writers[name] for name in ask.columns if name in writers)
    one_token = bool(ask.decoding.choices)
    return Step(ask.label, max_tokens=ask.decoding.max_tokens, one_token=one_token, reads=read)


def _stops(operator: SemMap) -> tuple[str, ...]:
    """In raw style the model would go on writing the table; a line's end ends its answer."""
    if operator.asking.style == "raw" and not operator.stop and operator.shape is None:
        return ("\n",)
    return operator.stop
