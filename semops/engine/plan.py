"""Execution vocabulary: what the engine runs, free of dataframes, plan nodes and SQL.

A *pipeline* is a run of operators without a blocking one. It is cut into *stages* at Cartesian
products; one input tuple of a stage is a *task*, and the task's steps run in order, so that all
requests of one tuple reach the engine while its prefix is still cached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Finish(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    """The model ended its answer, or one of the choices was decoded."""
    LENGTH = "length"
    """The answer was cut off at ``max_tokens``."""
    ERROR = "error"
    """The backend failed; ``Answer.detail`` says how."""


class Call(NamedTuple):
    """What a request asks, in the user's terms; only replay and logs read it."""

    operator: str
    """Operator name, for example ``sem_filter``."""
    instruction: str
    """The instruction template as the user wrote it."""
    row: Mapping[str, Any]
    """The values of the columns that the operator reads."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the answer is decoded."""

    max_tokens: int
    """Hard cap on the answer, in tokens."""
    choices: tuple[int, ...] = ()
    """Token ids of which exactly one is decoded; their log probabilities come back."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer (they are not part of it)."""
    texts: tuple[str, ...] = ()
    """Texts of which exactly one is decoded."""
    json_schema: str = ""
    """JSON schema that the answer is held to, as JSON."""
    temperature: float = 0.0
    """0 decodes greedily; above, tokens are drawn from the distribution divided by it."""
    seed: int = 0
    """Seed of what is drawn; equal requests give equal answers."""
    ignore_eos: bool = False
    """Whether the answer goes on to ``max_tokens`` whatever the model says, for measurements."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt for the backend."""

    token_ids: Sequence[int]
    """The whole prompt, in token ids."""
    shared_tokens: int
    """How many leading tokens later requests of this task share, in tokens."""
    decoding: Decoding
    call: Call | None = None

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt, in tokens."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the backend returned for one request."""

    text: str
    finish: Finish
    output_tokens: int = 0
    """Tokens decoded."""
    prompt_tokens: int = 0
    """Tokens of the prompt, cached ones included."""
    cached_tokens: int = 0
    """Prompt tokens whose KV was found in the prefix cache."""
    logprobs: Mapping[int, float] = field(default_factory=dict)
    """Natural log probability of each of ``Decoding.choices``, before masking."""
    detail: str = ""
    """What went wrong, where ``finish`` is ``ERROR``."""


class Verdict(StrEnum):
    """What becomes of a tuple after a step."""

    KEEP = "keep"
    DROP = "drop"
    """A predicate said no (or NULL); the tuple ends here."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a stage, or relational work between two of them."""

    name: str
    """Key of its counters, unique within the query, for example ``sem_map:summary``."""
    local: bool = False
    """True for relational work, which is done off the engine thread."""
    max_tokens: int = 0
    """Hard cap on the answer, in tokens."""
    one_token: bool = False
    """True where exactly one token is decoded, so that its bound is known."""
    reads: tuple[int, ...] = ()
    """Earlier steps of the stage whose answers stand in this step's prompt."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Operators that one tuple runs through with one shared prefix."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class CartesianProduct:
    """The edge between two stages: each tuple meets every row of a static right side."""

    right_rows: int
    """Number of children a tuple gets."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages and the products between them: ``len(products) == len(stages) - 1``."""

    stages: tuple[Stage, ...]
    products: tuple[CartesianProduct, ...] = ()

    def __post_init__(self) -> None:
        if len(self.products) != len(self.stages) - 1:
            found = f"{len(self.stages)} stages and {len(self.products)} products"
            msg = f"a pipeline has one Cartesian product between two stages, found {found}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Skip:
    """Returned by :meth:`Program.request` where a step needs no call (NULL input, known answer)."""

    verdict: Verdict = Verdict.KEEP


class Program(Protocol):
    """What a pipeline computes: the scheduler calls it, one tuple at a time.

    ``item`` is the program's own object for a tuple; the engine never looks inside. Every method but
    :meth:`local` runs on the engine thread between two engine steps and must be quick.
    """

    def ready_before(self, item: Any) -> int:
        """Return how many finished rows that the consumer has not taken precede a tuple's rows.

        Rows after it don't count: the consumer can't get them before the tuple has ended.
        """

    def sizes(self, item: Any, stage: int) -> Sequence[int]:
        """Return the prompt tokens of each step of a stage, as far as known.

        Without the tokens that the parent retains, without answers still to come; 0 for local steps.
        """

    def floor(self, stage: int) -> int:
        """Return the most tokens that one task of a later stage needs, answers excluded."""

    def prefix(self, item: Any, stage: int) -> Sequence[int]:
        """Return the token ids that all children of a tuple share."""

    def request(self, item: Any, stage: int, step: int) -> Request | Skip:
        """Return the prompt of a step, or why none is needed."""

    def accept(self, item: Any, stage: int, step: int, answer: Answer) -> Verdict:
        """Take the answer of a step into the tuple."""

    def local(self, item: Any, stage: int, step: int) -> Verdict:
        """Do the relational work of a local step (called off the engine thread)."""

    def child(self, item: Any, stage: int, index: int) -> Any:
        """Return child ``index`` of a tuple at the product after ``stage``."""

    def emit(self, item: Any) -> None:
        """Take a tuple that passed the last step."""

    def dropped(self, item: Any, stage: int) -> None:
        """Take a tuple that ends early, or whose children have all ended."""
