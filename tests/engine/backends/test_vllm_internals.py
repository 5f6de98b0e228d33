"""Without vLLM: an engine that is built differently must switch pinning off, never fail."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from semops.engine.backends.vllm_internals import VllmInternals


def engine_with(**scheduler):
    core = SimpleNamespace(scheduler=SimpleNamespace(**scheduler), request_block_hasher=len)
    return SimpleNamespace(engine_core=SimpleNamespace(engine_core=core))


def scheduler(groups=1, requests=()):
    manager = SimpleNamespace(
        block_pool=SimpleNamespace(get_num_free_blocks=lambda: 4),
        coordinator=SimpleNamespace(find_longest_cache_hit=lambda *_: ((), 0, 0)),
        kv_cache_config=SimpleNamespace(kv_cache_groups=[None] * groups),
    )
    return {
        "kv_cache_manager": manager,
        "block_size": 16,
        "get_request_counts": lambda: (2, 1),
        "requests": {
            i: SimpleNamespace(status=SimpleNamespace(name=n)) for i, n in enumerate(requests)
        },
    }


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        (SimpleNamespace(engine_core=SimpleNamespace()), "another process"),
        (engine_with(), "built differently"),
        (engine_with(**scheduler(groups=2)), "2 kinds of KV cache"),
        (engine_with(**scheduler()), "self-test failed"),
    ],
)
def test_pinning_is_off_with_a_reason(engine, reason):
    internals = VllmInternals(engine, (0, 32))
    assert not internals.pinning
    [found] = internals.reasons
    assert found.startswith("pinning is off: ")
    assert reason in found
    assert internals.pin(1, [1, 2, 3]) == 0
    assert internals.cached_tokens([1, 2, 3]) == 0
    internals.unpin(1)
    internals.forget()
    assert internals.counts() is None
    assert not internals.waits_for_other()


def test_prefix_caching_off():
    engine = engine_with(**scheduler())
    engine.engine_core.engine_core.request_block_hasher = None
    assert VllmInternals(engine, (0, 32)).reasons == ("pinning is off: prefix caching is off",)


def test_counts_work_without_pinning():
    assert VllmInternals(engine_with(**scheduler(groups=2)), (0, 32)).counts() == (2, 1)


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        ("WAITING", False),
        ("WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR", True),
        ("WAITING_FOR_REMOTE_KVS", True),
    ],
)
def test_waiting_for_something_other_than_memory(status, waits):
    engine = engine_with(**scheduler(requests=["RUNNING", status]))
    assert VllmInternals(engine, (0, 32)).waits_for_other() is waits


@pytest.mark.parametrize("version", [(0, 29), (0, 34), (1, 0)])
def test_untested_versions_are_named(version):
    reasons = VllmInternals(engine_with(**scheduler()), version).reasons
    assert any("outside the tested versions 0.30 to 0.33" in reason for reason in reasons)


def test_steps_are_counted_only_while_they_are_watched():
    def request(computed, output=0):
        return SimpleNamespace(num_computed_tokens=computed, num_output_tokens=output)

    class Scheduler(SimpleNamespace):
        def schedule(self):
            return SimpleNamespace(num_scheduled_tokens={"new": 30, "last": 1, "decodes": 1})

    parts = scheduler()
    requests = {"new": request(30), "last": request(9), "decodes": request(50, output=2)}
    engine = engine_with()
    watched = Scheduler(**{**parts, "requests": requests}, running=list(requests.values()))
    engine.engine_core.engine_core.scheduler = watched
    internals = VllmInternals(engine, (0, 32))
    watched.schedule()
    assert internals.take_counts() == (0, 0, 0)
    assert internals.watch_steps() == ""
    watched.schedule()
    assert internals.take_counts() == (31, 1, 89)
    assert internals.take_counts() == (0, 0, 0), "a step is told once"
    internals.unwatch_steps()
    watched.schedule()
    assert internals.take_counts() == (0, 0, 0)


def test_steps_of_another_process_cannot_be_watched():
    internals = VllmInternals(SimpleNamespace(engine_core=SimpleNamespace()), (0, 32))
    assert "another process" in internals.watch_steps()
    internals.unwatch_steps()
    assert "built differently" in VllmInternals(engine_with(**scheduler()), (0, 32)).watch_steps()
