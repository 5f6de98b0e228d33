"""The model of a KV block pool: what is cached, what is evicted, what is shared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from semops.engine.block_pool import BlockPool, block_hashes

IDS = st.lists(st.integers(0, 3), max_size=20)


@given(IDS, IDS, st.integers(1, 5))
def test_prompts_share_hashes_as_far_as_they_share_whole_blocks(
    first: list[int], second: list[int], block: int
) -> None:
    common = 0
    while common < min(len(first), len(second)) and first[common] == second[common]:
        common += 1
    pairs = list(zip(block_hashes(first, block), block_hashes(second, block), strict=False))
    assert [a == b for a, b in pairs] == [i < common // block for i in range(len(pairs))]


def test_released_blocks_stay_cached_until_their_place_is_needed() -> None:
    pool = BlockPool(4)
    assert pool.acquire([1, 2], 0)
    pool.release([1, 2], 0)
    assert pool.matched([1, 2]) == 2
    assert pool.referenced == 0
    assert pool.acquire([3, 4, 5], 0)
    assert pool.matched([1]) == 1, "the tail goes before the head"
    assert pool.matched([1, 2]) == 1


def test_the_least_recently_used_goes_first() -> None:
    pool = BlockPool(3)
    for block in (1, 2, 3):
        pool.acquire([block], 0)
        pool.release([block], 0)
    pool.acquire([1], 0)
    pool.release([1], 0)
    pool.acquire([4], 0)
    assert [pool.matched([block]) for block in (1, 2, 3)] == [1, 0, 1]


def test_used_blocks_are_never_evicted() -> None:
    pool = BlockPool(3)
    assert pool.acquire([1, 2], 0)
    assert not pool.acquire([3], 1)
    assert pool.matched([1, 2]) == 2
    assert pool.acquire([1, 2], 1), "shared blocks cost nothing"


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[int], int]:
    depth = draw(st.integers(0, 4))
    return block_hashes([draw(st.integers(0, 1)) for _ in range(depth)], 1), draw(st.integers(0, 2))


@given(st.lists(st.tuples(requests(), st.booleans()), max_size=40), st.integers(1, 8))
def test_a_pool_never_holds_more_than_it_has_and_ends_empty(
    steps: list[tuple[tuple[list[int], int], bool]], blocks: int
) -> None:
    pool, held = BlockPool(blocks), []
    for (hashes, extra), release in steps:
        if release and held:
            pool.release(*held.pop(0))
        elif pool.acquire(hashes, extra):
            held.append((hashes, extra))
            assert pool.matched(hashes) == len(hashes)
        distinct = {block for hashes, _ in held for block in hashes}
        assert pool.referenced == len(distinct) + sum(extra for _, extra in held) <= blocks
    for request in held:
        pool.release(*request)
    assert pool.referenced == 0
