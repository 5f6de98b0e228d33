"""A tokenizer whose prompts can be read back."""

from __future__ import annotations

from typing import Any


class Spelling:
    """A tokenizer that can be read back: one id a character."""

    start_ids: tuple[int, ...] = ()

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))

    def chat_frame(self, system: str) -> tuple[list[int], list[int]]:
        return self.encode(f"<s>{system}<u>"), self.encode("<a>")

    def decode(self, token_ids: Any) -> str:
        return "".join(map(chr, token_ids))
