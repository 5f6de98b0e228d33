"""From sizes in the user's terms to vLLM's engine arguments, and from vLLM's refusals to errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from semops.errors import CapacityError, ConfigError, EngineError

CPU_KV_BYTES = 1 << 30
"""KV memory on CPU where none is given, in bytes; vLLM alone would take most of the RAM."""
CPU_CHUNK_TOKENS = 512
"""Prefill chunk on CPU, in tokens: a step of a small model stays below half a second."""
CPU_MAX_RUNNING = 16
"""Most requests decoded together on CPU."""
GPU_MAX_RUNNING = 256
"""Most requests decoded together on GPU."""
CPU_BLOCK_TOKENS = 32
"""Tokens in one KV block on CPU, whose attention kernel takes multiples of 32 only."""
GPU_BLOCK_TOKENS = 16
"""Tokens in one KV block on GPU."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much memory and work the engine may take; None leaves it to the defaults.

    Raises
    ------
    ConfigError
        If a size is below 1, or KV memory is given twice.
    """

    kv_bytes: int | None = None
    """KV memory, in bytes."""
    kv_tokens: int | None = None
    """KV memory, in usable tokens."""
    context_tokens: int | None = None
    """Longest prompt plus answer, in tokens."""
    max_running: int | None = None
    """Most requests decoded together."""
    chunk_tokens: int | None = None
    """Most prompt tokens computed in one step."""

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is below 1. Leave it out for the default.")
        if self.kv_bytes is not None and self.kv_tokens is not None:
            raise ConfigError("kv_bytes and kv_tokens are both given. Give one of them.")


def engine_options(
    model: str, sizes: Sizes, *, dtype: str = "auto", seed: int = 0, on_cpu: bool
) -> dict[str, Any]:
    """Return keywords for ``vllm.EngineArgs``.

    Raises
    ------
    ConfigError
        If ``kv_tokens`` is less than one block.

    Examples
    --------
    >>> options = engine_options("m", Sizes(kv_tokens=100), on_cpu=True)
    >>> options["num_gpu_blocks_override"]  # three blocks of 32 and vLLM's placeholder
    4
    """
    block = CPU_BLOCK_TOKENS if on_cpu else GPU_BLOCK_TOKENS
    options: dict[str, Any] = {
        "model": model,
        "dtype": "bfloat16" if on_cpu and dtype == "auto" else dtype,
        "seed": seed,
        "block_size": block,
        # -1 lets vLLM take the longest context that the model and the KV memory allow.
        "max_model_len": sizes.context_tokens or -1,
        "max_num_seqs": sizes.max_running or (CPU_MAX_RUNNING if on_cpu else GPU_MAX_RUNNING),
        "scheduling_policy": "priority",
        "enable_prefix_caching": True,
        # With it, a step hands out the answers of the step before, and pins would come late.
        "async_scheduling": False,
        "disable_log_stats": True,
        # This one knows ranges, lengths and formats, and leaves the model no endless white space.
        "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
        "use_tqdm_on_load": False,
    }
    kv_bytes = sizes.kv_bytes
    chunk = sizes.chunk_tokens
    if on_cpu:
        # Compiling takes a minute on CPU and gains nothing.
        options["enforce_eager"] = True
        kv_bytes = kv_bytes or CPU_KV_BYTES
        chunk = chunk or CPU_CHUNK_TOKENS
    if kv_bytes is not None:
        options["kv_cache_memory_bytes"] = kv_bytes
    if sizes.kv_tokens is not None:
        blocks = sizes.kv_tokens // block
        if blocks < 1:
            raise ConfigError(
                f"kv_tokens={sizes.kv_tokens} is less than one block. Give {block} or more."
            )
        options["num_gpu_blocks_override"] = blocks + 1  # vLLM keeps one as a placeholder
        if sizes.context_tokens is not None:
            options["max_model_len"] = min(sizes.context_tokens, blocks * block)
    if chunk is not None:
        # vLLM wants room for one token of each running request.
        options["max_num_batched_tokens"] = max(chunk, options["max_num_seqs"])
    return options


def start_error(options: Mapping[str, Any], error: Exception) -> ConfigError | EngineError:
    """Return the error that tells the user why vLLM did not start."""
    text = str(error).partition(" [type=")[0]  # what follows is pydantic's dump of the input
    model = options["model"]
    if "derived max_model_len" in text:
        return ConfigError(
            f"context_tokens={options['max_model_len']} is more than {model!r} was made for. "
            f"Leave it out for the longest that fits. vLLM says: {text}"
        )
    if isinstance(error, MemoryError) or any(
        sign in text.lower() for sign in ("kv cache", "memory")
    ):
        return CapacityError(
            f"{model!r} and its KV cache don't fit in memory. Lower context_tokens or kv_tokens, "
            f"or give more kv_bytes. vLLM says: {text}"
        )
    return EngineError(
        f"vLLM can't run {model!r}. Check that it is a model folder or a Hugging Face id that this "
        f"vLLM supports. vLLM says: {type(error).__name__}: {text}"
    )
