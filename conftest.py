"""Fixtures for the doctests: a function answers, no model runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.doctest import DoctestItem
from hypothesis import settings

from semops.testing import replay

# How long an example takes is the machine's business, and others may use it.
settings.register_profile("semops", deadline=None)
settings.load_profile("semops")


@pytest.fixture(autouse=True)
def _doctest_replay(request: pytest.FixtureRequest) -> Iterator[None]:
    """Answer yes to every predicate and ``<operator>`` to every map, in doctests only."""
    if not isinstance(request.node, DoctestItem):
        yield
        return
    with replay(lambda operator, *_: f"<{operator}>" if operator == "sem_map" else True):
        yield
