"""Finished tuples come out in row order, whatever order they end in."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from semops.runtime.order import OrderBuffer, Slot


@given(
    st.lists(st.lists(st.booleans(), max_size=4), max_size=6),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_rows_come_out_in_order_and_what_is_held_before_a_place_is_counted(
    children: list[list[bool]], shuffle: random.Random, taken: bool
) -> None:
    buffer = OrderBuffer()
    slots: list[tuple[tuple[int, ...], Slot, bool]] = []
    for number, kept in enumerate(children):
        parent = buffer.open()
        for index, keep in enumerate(kept):
            slots.append(((number, index), buffer.open(parent), keep))
        slots.append(((number, 1_000), parent, False))
    expected = [place for place, _, keep in slots if keep]
    shuffle.shuffle(slots)
    held: set[tuple[int, ...]] = set()
    out: list[tuple[int, ...]] = []
    while slots:
        for place, slot, _ in slots:
            if place[1] != 1_000:
                assert buffer.held_before(slot) == sum(other < place for other in held)
        place, slot, keep = slots.pop()
        buffer.close(slot, place if keep else None)  # type: ignore[arg-type]
        if keep:
            held.add(place)
        drained = buffer.drain()
        out += drained  # type: ignore[arg-type]
        if taken:
            buffer.took()
            held -= set(drained)  # type: ignore[arg-type]
    assert out == expected
