"""Physical blocks: what is found again, what is taken first, what two prompts share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from semops.engine.prefix_cache import PrefixCache


def cached(pool: PrefixCache, *hashes: int) -> int:
    return len(pool.lookup(hashes))


def fill(pool: PrefixCache, *hashes: int) -> list[int]:
    """Hold one new block for each hash."""
    blocks = pool.take(len(hashes))
    for block, block_hash in zip(blocks, hashes, strict=True):
        pool.store(block, block_hash)
    return blocks


def test_blocks_are_found_until_their_place_is_needed_and_the_tail_goes_first() -> None:
    pool = PrefixCache(4)
    pool.release(fill(pool, 1, 2, 3))
    assert (pool.free, cached(pool, 1, 2, 3)) == (4, 3)
    pool.take(2)
    assert (cached(pool, 1, 2, 3), cached(pool, 1, 2)) == (2, 2), "one was blank, one was the tail"
    assert pool.evictions == 1


def test_blocks_without_a_hash_are_taken_before_cached_ones_however_late_they_were_freed() -> None:
    pool = PrefixCache(3)
    pool.release(fill(pool, 1, 2))
    [open_block] = pool.take(1)
    pool.release([open_block])
    assert pool.take(1) == [open_block]
    assert cached(pool, 1, 2) == 2


def test_the_least_recently_used_block_goes_first() -> None:
    pool = PrefixCache(3)
    for block_hash in (1, 2, 3):
        pool.release(fill(pool, block_hash))
    found = pool.lookup([1])
    pool.touch(found)
    pool.release(found)
    pool.take(1)
    assert [cached(pool, block_hash) for block_hash in (1, 2, 3)] == [1, 0, 1]


def test_held_blocks_are_never_taken() -> None:
    pool = PrefixCache(3)
    held = fill(pool, 1, 2)
    pool.touch(held)
    pool.release(held)
    assert pool.free == 1
    assert pool.unheld(held) == 0
    pool.take(1)
    assert cached(pool, 1, 2) == 2


def test_a_copy_is_found_once_the_first_block_is_gone() -> None:
    pool = PrefixCache(3)
    first, second = fill(pool, 1), fill(pool, 1)
    assert pool.lookup([1]) == first
    pool.release(first)
    pool.take(2)
    assert pool.lookup([1]) == second
    pool.release(second)
    pool.take(1)
    assert pool.lookup([1]) == []


def test_a_copy_that_goes_first_leaves_the_first_block() -> None:
    pool = PrefixCache(3)
    first, second = fill(pool, 1), fill(pool, 1)
    pool.release(second)
    pool.take(2)
    assert pool.lookup([1]) == first


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=60), st.integers(1, 8))
def test_blocks_are_held_cached_or_blank_and_come_back(
    steps: list[tuple[int, int]], blocks: int
) -> None:
    """Take and store, look up and touch, or release; a model counts references."""
    pool, held = PrefixCache(blocks), []
    for kind, number in steps:
        if kind == 0 and held:
            pool.release(held.pop(number % len(held)))
        elif kind == 1:
            found = pool.lookup(range(number))
            pool.touch(found)
            held.append(found)
        elif number and number <= pool.free:
            held.append(fill(pool, *range(number)) if kind == 2 else pool.take(number))
        distinct = {block for prompt in held for block in prompt}
        assert pool.referenced == len(distinct) == blocks - pool.free
    for prompt in held:
        pool.release(prompt)
    assert pool.free == blocks
