"""A pool of KV blocks with a prefix cache, as vLLM keeps it: the model for tests and simulation.

Every full block of every request is cached under the hash of all tokens up to its end. A block that
nobody uses stays cached until its place is needed; the least recently used one goes first, and of one
request the tail goes before the head.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BlockHash = int


def block_hashes(token_ids: Sequence[int], block_tokens: int) -> list[BlockHash]:
    """Return the chained hash of each full block of a prompt.

    Examples
    --------
    >>> first, second = block_hashes([1, 2, 3, 4, 5], 2)
    >>> block_hashes([1, 2, 9, 9], 2)[0] == first
    True
    """
    chained = 0
    hashes = []
    for end in range(block_tokens, len(token_ids) + 1, block_tokens):
        chained = hash((chained, tuple(token_ids[end - block_tokens : end])))
        hashes.append(chained)
    return hashes


class BlockPool:
    """Reference-counted blocks with LRU eviction of the unused ones.

    Parameters
    ----------
    blocks
        Size of the pool, in blocks.

    Examples
    --------
    >>> pool = BlockPool(blocks=3)
    >>> pool.acquire([11, 12], extra=1)
    True
    >>> pool.acquire([11, 13], extra=0)  # 11 is shared, but no block is left for 13
    False
    >>> pool.release([11, 12], extra=1)
    >>> pool.matched([11, 12, 13])
    2
    """

    __slots__ = ("_free", "_private", "_used", "blocks")

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._used: dict[BlockHash, int] = {}
        self._free: OrderedDict[BlockHash, None] = OrderedDict()
        self._private = 0

    def matched(self, hashes: Sequence[BlockHash]) -> int:
        """Return how many leading blocks are cached."""
        count = 0
        for block in hashes:
            if block not in self._used and block not in self._free:
                break
            count += 1
        return count

    def acquire(self, hashes: Sequence[BlockHash], extra: int) -> bool:
        """Take blocks for a request, evicting unused ones; return False where they don't fit.

        Parameters
        ----------
        hashes
            The request's full blocks.
        extra
            Further blocks, which are not shared (a partial block, the answer).
        """
        wanted = list(dict.fromkeys(hashes))
        if not self.has_room(wanted, extra):
            return False
        for block in wanted:
            self._free.pop(block, None)
            self._used[block] = self._used.get(block, 0) + 1
        self._private += extra
        while len(self._used) + self._private + len(self._free) > self.blocks:
            self._free.popitem(last=False)
        return True

    def has_room(self, hashes: Sequence[BlockHash], extra: int) -> bool:
        """Return whether distinct full blocks and further ones could be taken now."""
        more = sum(1 for block in hashes if block not in self._used)
        return len(self._used) + self._private + more + extra <= self.blocks

    def release(self, hashes: Sequence[BlockHash], extra: int) -> None:
        """Give blocks back; they stay cached while there is room."""
        self._private -= extra
        for block in reversed(list(dict.fromkeys(hashes))):
            self._used[block] -= 1
            if not self._used[block]:
                del self._used[block]
                self._free[block] = None

    @property
    def referenced(self) -> int:
        """Blocks that somebody uses."""
        return len(self._used) + self._private
