from __future__ import annotations

import pytest

from semops.engine.backends.vllm_options import Sizes, engine_options, start_error
from semops.errors import CapacityError, ConfigError, EngineError


def test_cpu_defaults():
    options = engine_options("m", Sizes(), on_cpu=True)
    assert options["dtype"] == "bfloat16"
    assert options["block_size"] == 32
    assert options["kv_cache_memory_bytes"] == 1 << 30
    assert options["max_num_batched_tokens"] == 512
    assert options["max_num_seqs"] == 16
    assert options["enforce_eager"]
    assert options["max_model_len"] == -1


def test_gpu_leaves_memory_chunk_and_compilation_to_vllm():
    options = engine_options("m", Sizes(), on_cpu=False)
    assert options["dtype"] == "auto"
    assert options["block_size"] == 16
    assert options["max_num_seqs"] == 256
    left_out = {"kv_cache_memory_bytes", "max_num_batched_tokens", "enforce_eager"}
    assert left_out.isdisjoint(options)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_what_the_scheduler_relies_on(on_cpu):
    options = engine_options("m", Sizes(), on_cpu=on_cpu)
    assert options["scheduling_policy"] == "priority"
    assert options["enable_prefix_caching"] is True
    assert options["async_scheduling"] is False


@pytest.mark.parametrize(("tokens", "blocks"), [(32, 2), (63, 2), (64, 3), (4096, 129)])
def test_kv_tokens_are_whole_blocks_and_the_placeholder(tokens, blocks):
    options = engine_options("m", Sizes(kv_tokens=tokens), on_cpu=True)
    assert options["num_gpu_blocks_override"] == blocks


def test_context_is_cut_to_kv_tokens():
    options = engine_options("m", Sizes(kv_tokens=100, context_tokens=200), on_cpu=True)
    assert options["max_model_len"] == 96


def test_chunk_has_room_for_every_running_request():
    options = engine_options("m", Sizes(chunk_tokens=8, max_running=64), on_cpu=True)
    assert options["max_num_batched_tokens"] == 64


def test_less_than_a_block_is_refused():
    with pytest.raises(ConfigError, match="less than one block"):
        engine_options("m", Sizes(kv_tokens=31), on_cpu=True)


@pytest.mark.parametrize(
    "name", ["kv_bytes", "kv_tokens", "context_tokens", "max_running", "chunk_tokens"]
)
def test_sizes_start_at_one(name):
    with pytest.raises(ConfigError, match=name):
        Sizes(**{name: 0})


def test_kv_memory_is_given_once():
    with pytest.raises(ConfigError, match="Give one of them"):
        Sizes(kv_bytes=1, kv_tokens=1)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ValueError("larger than the available KV cache memory"), CapacityError, "kv_bytes"),
        (MemoryError(), CapacityError, "kv_bytes"),
        (ValueError("is greater than the derived max_model_len"), ConfigError, "context_tokens=5"),
        (OSError("no such repo"), EngineError, "no such repo"),
        (
            ValueError("bad value [type=value_error, input_value=ArgsKwargs]"),
            EngineError,
            "bad value$",
        ),
    ],
)
def test_refusals_of_vllm_name_the_next_step(error, kind, words):
    found = start_error({"model": "m", "max_model_len": 5}, error)
    assert type(found) is kind
    with pytest.raises(kind, match=words):
        raise found
