"""Tokenizer of a Hugging Face model: row text stays text, the chat frame keeps its control tokens.

Row text is untrusted: ``<|im_end|>`` inside a review must not end the user's turn. So text and frame
are encoded by two copies of the tokenizer, one of which knows no control tokens. Neither copy is
changed after construction, which makes encoding safe from several threads without a lock.
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

from semops.errors import EngineError, MissingExtraError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MARKER = "semopsUSERmessageHERE"
"""Stands for the user's message while a chat template is rendered; letters only, so that no template
trims or escapes it."""


class HfTokenizer:
    """The :class:`~semops.engine.backend.Tokenizer` protocol over a fast transformers tokenizer.

    Parameters
    ----------
    tokenizer
        A transformers tokenizer with a Rust backend. It is copied, not kept in use for encoding.
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            msg = (
                f"the tokenizer {type(tokenizer).__name__} has no fast (Rust) version, which semops "
                "needs to keep control tokens out of row text. Use a model folder with a tokenizer.json."
            )
            raise EngineError(msg)
        from tokenizers import Tokenizer as RustTokenizer

        self._hf = tokenizer
        self._template = _chat_template(tokenizer)
        spec = json.loads(backend.to_str())
        control = _mark_control_tokens(spec, self._template or "")
        self._frame = _untruncated(RustTokenizer.from_str(backend.to_str()))
        self._plain = _untruncated(RustTokenizer.from_str(json.dumps(spec)))
        self._plain.encode_special_tokens = True
        self._control_ids = frozenset(control.values()) - _unknown_ids(spec)
        texts = sorted(control, key=len, reverse=True)
        self._control_text = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        self._frames: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._lock = threading.Lock()

    @classmethod
    def load(cls, model: str) -> HfTokenizer:
        """Load the tokenizer of a model folder or Hugging Face name.

        Raises
        ------
        MissingExtraError
            If transformers isn't installed.
        """
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            msg = (
                f"the tokenizer of {model!r} needs transformers, which can't be imported ({error}). "
                'Install it with: pip install "kalypso-semops[gpu]", or [cpu] without a GPU.'
            )
            raise MissingExtraError(msg) from error
        return cls(AutoTokenizer.from_pretrained(model))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, none of which is a control token; nothing is added."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        if self._control_ids.isdisjoint(ids):
            return ids
        # Unigram vocabularies hold their control tokens as ordinary words. Cut each one after its
        # first character, so that it can't be found whole.
        cut = self._control_text.sub(lambda found: f"{found[0][:1]}\0{found[0][1:]}", text)
        pieces = self._plain.encode_batch(cut.split("\0"), add_special_tokens=False)
        return [i for piece in pieces for i in piece.ids if i not in self._control_ids]

    @property
    def start_ids(self) -> tuple[int, ...]:
        """The begin-of-text token, for models whose tokenizer adds one."""
        first = self._frame.encode("a", add_special_tokens=True).ids[:1]
        bos = getattr(self._hf, "bos_token_id", None)
        return tuple(first) if bos is not None and first == [bos] else ()

    def chat_frame(self, system: str) -> tuple[Sequence[int], Sequence[int]]:
        """Return the ids before and after the user's message; the tail opens the answer.

        The frame of a system text is rendered once and kept, because some templates print today's
        date, which would change every prefix at midnight.

        Raises
        ------
        UnsupportedError
            If the model has no chat template, or one that doesn't show the message exactly once.
        """
        with self._lock:
            if system not in self._frames:
                head, tail = self._render(system)
                self._frames[system] = (self._frame_ids(head), self._frame_ids(tail))
            return self._frames[system]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, control tokens included."""
        text: str = self._frame.decode(list(token_ids), skip_special_tokens=False)
        return text

    def _frame_ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._frame.encode(text, add_special_tokens=False).ids)

    def _render(self, system: str) -> tuple[str, str]:
        if self._template is None:
            msg = 'the model has no chat template. Use prompt_style="raw", or an instruct model.'
            raise UnsupportedError(msg)
        text = self._apply(system, folded=False) if system else self._apply("", folded=True)
        if text is None or system.strip() not in text:
            # Some templates refuse a system message, others drop it without a word.
            text = self._apply(system, folded=True)
        if text is None or text.count(MARKER) != 1:
            msg = (
                "the model's chat template doesn't show the user's message exactly once, so prompts "
                'can\'t share a prefix. Use prompt_style="raw", or another model.'
            )
            raise UnsupportedError(msg)
        head, _, tail = text.partition(MARKER)
        return head, tail

    def _apply(self, system: str, *, folded: bool) -> str | None:
        from jinja2 import TemplateError

        user = f"{system}\n\n{MARKER}" if folded and system else MARKER
        messages = [{"role": "user", "content": user}]
        if not folded:
            messages.insert(0, {"role": "system", "content": system})
        try:
            # Templates that don't know enable_thinking ignore it. Where it is known, the answer's
            # first token would otherwise be the start of a thought instead of a verdict.
            text: str = self._hf.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except TemplateError:
            return None
        return text


def _chat_template(tokenizer: Any) -> str | None:
    try:
        template: str = tokenizer.get_chat_template()
    except ValueError:  # how transformers says that there is none
        return None
    return template


def _mark_control_tokens(spec: dict[str, Any], template: str) -> dict[str, int]:
    """Mark every control token as special in a tokenizer's description; return their ids.

    A few models declare tokens that their own chat template prints, such as ``<think>``, as not special.
    """
    control = {}
    for token in spec["added_tokens"]:
        text = token["content"]
        markup = text in template and text.strip() and not text.strip().isalnum()
        if token["special"] or markup:
            token["special"] = True
            control[text] = token["id"]
    return control


def _unknown_ids(spec: Mapping[str, Any]) -> frozenset[int]:
    """Return the ids that stand for unknown characters; ordinary text may hold those."""
    model = spec["model"]
    unknown = {model.get("unk_id")}
    if isinstance(vocab := model.get("vocab"), dict):
        unknown.add(vocab.get(model.get("unk_token")))
    return frozenset(i for i in unknown if i is not None)


def _untruncated(tokenizer: Any) -> Any:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
