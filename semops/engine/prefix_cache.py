"""Physical KV blocks with a prefix cache, block by block as vLLM keeps them.

Unlike :class:`~semops.engine.block_pool.BlockPool`, which knows one block a hash, two blocks may hold the
same tokens here: an engine never merges blocks, so a prompt that was cached as a whole computes its last
block again into a second one. Blocks that nobody holds are taken in this order: those without a hash,
the one freed last first; then the others, least recently used first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semops.engine.block_pool import BlockHash


class PrefixCache:
    """Reference-counted blocks, found again by hash until their place is needed.

    Parameters
    ----------
    blocks
        Number of blocks.

    Examples
    --------
    >>> pool = PrefixCache(blocks=3)
    >>> held = pool.take(2)
    >>> pool.store(held[0], 11)  # full; the second block is not
    >>> pool.release(held)
    >>> pool.free, len(pool.lookup([11, 12]))
    (3, 1)
    >>> pool.take(3) and pool.lookup([11])
    []
    """

    __slots__ = (
        "_blank",
        "_copies",
        "_first",
        "_hashes",
        "_idle",
        "_references",
        "blocks",
        "evictions",
    )

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.evictions = 0
        """Cached blocks that were taken for something else."""
        self._references = [0] * blocks
        self._hashes: list[BlockHash | None] = [None] * blocks
        self._first: dict[BlockHash, int] = {}
        """The block that is found under a hash: the oldest that holds it."""
        self._copies: dict[BlockHash, list[int]] = {}
        """Further blocks with the same hash, oldest first."""
        self._blank = list(range(blocks - 1, -1, -1))
        """Blocks without a hash that nobody holds; the last is taken first."""
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Blocks with a hash that nobody holds; the first is taken first."""

    @property
    def free(self) -> int:
        """Blocks that nobody holds, cached ones included."""
        return len(self._blank) + len(self._idle)

    @property
    def referenced(self) -> int:
        """Blocks that somebody holds."""
        return self.blocks - self.free

    def lookup(self, hashes: Iterable[BlockHash]) -> list[int]:
        """Return the blocks that hold the longest cached prefix."""
        found = []
        first = self._first
        for block_hash in hashes:
            block = first.get(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def unheld(self, blocks: Iterable[int]) -> int:
        """Return how many of some blocks count as free."""
        references = self._references
        return sum(1 for block in blocks if not references[block])

    def touch(self, blocks: Iterable[int]) -> None:
        """Hold cached blocks."""
        for block in blocks:
            if not self._references[block]:
                del self._idle[block]
            self._references[block] += 1

    def take(self, count: int) -> list[int]:
        """Hold blocks for new tokens, evicting what they had; the caller knows that so many are free."""
        blank, references = self._blank, self._references
        taken = []
        for _ in range(count):
            block = blank.pop() if blank else self._evict()
            references[block] = 1
            taken.append(block)
        return taken

    def store(self, block: int, block_hash: BlockHash) -> None:
        """Let a held block be found, now that it is full."""
        self._hashes[block] = block_hash
        if block_hash in self._first:
            self._copies.setdefault(block_hash, []).append(block)
        else:
            self._first[block_hash] = block

    def release(self, blocks: Sequence[int]) -> None:
        """Give the blocks of a prompt back, so that its tail is evicted before its head."""
        references, hashes = self._references, self._hashes
        for block in reversed(blocks):
            references[block] -= 1
            if not references[block]:
                if hashes[block] is None:
                    self._blank.append(block)
                else:
                    self._idle[block] = None

    def _evict(self) -> int:
        block, _ = self._idle.popitem(last=False)
        self.evictions += 1
        block_hash = self._hashes[block]
        assert block_hash is not None  # noqa: S101 - idle blocks have one
        self._hashes[block] = None
        copies = self._copies.get(block_hash)
        if copies is None:
            del self._first[block_hash]
            return block
        if self._first[block_hash] == block:
            self._first[block_hash] = copies.pop(0)
        else:
            copies.remove(block)
        if not copies:
            del self._copies[block_hash]
        return block
