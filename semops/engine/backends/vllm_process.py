"""Loading vLLM into a process that isn't its own: which build, which environment, what is put back.

vLLM expects to own the process. It seeds the random generators, sets environment variables that child
processes would inherit, and logs to stdout. A library that a notebook imports must not do that, so it
is loaded and started between :func:`guarded` and its end, where all of that is undone.
"""

from __future__ import annotations

import importlib.metadata
import logging
import multiprocessing
import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from semops.errors import EngineError, MissingExtraError

_INSTALL = 'pip install "kalypso-semops[gpu]", or "kalypso-semops[cpu]" without a GPU'

_FORCED = {
    # Only a core in this process lets prefixes be pinned.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
_DEFAULTS = {
    "VLLM_NO_USAGE_STATS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
}
_CPU_DEFAULTS = {
    # Spinning OpenMP threads make a shared machine 3-10 times slower.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
}
_KEPT_PREFIXES = ("VLLM_", "TORCH", "TRITON", "NCCL_", "CUDA_")
"""Variables that vLLM sets for itself and may read again while it runs."""


def installed_for_cpu() -> bool:
    """Return whether the installed vLLM is a CPU build, without importing it.

    Raises
    ------
    MissingExtraError
        If no vLLM is installed.
    EngineError
        If both builds are installed, which overwrite each other's files.
    """
    names = set(importlib.metadata.packages_distributions().get("vllm", ()))
    if not names:
        raise MissingExtraError(
            f"running a model in this process needs vLLM. Install it: {_INSTALL}."
        )
    if len(names) > 1:
        found = " and ".join(sorted(names))
        raise EngineError(
            f"{found} are both installed and overwrite each other's files. Remove both "
            f"(pip uninstall {' '.join(sorted(names))}), then install one: {_INSTALL}."
        )
    name = names.pop()
    return "cpu" in name or "+cpu" in importlib.metadata.version(name)


def load() -> Any:
    """Import vLLM and return its module.

    Raises
    ------
    MissingExtraError
        If it, or something it needs, can't be imported.
    """
    try:
        import vllm
    except ImportError as error:
        msg = f"vLLM is installed but can't be imported ({error}). Install it anew: {_INSTALL}."
        raise MissingExtraError(msg) from error
    except RuntimeError as error:
        if "torchvision" not in str(error):
            raise
        msg = (
            f"the installed torchvision was built for another torch ({error}), and vLLM can't be "
            "imported with it. Remove it (pip uninstall torchvision), or install the version that "
            "matches your torch."
        )
        raise MissingExtraError(msg) from error
    return vllm


@contextmanager
def guarded(*, on_cpu: bool) -> Iterator[None]:
    """Set what vLLM needs while it is imported and started; put back what it changes.

    Put back are the environment, how ``multiprocessing`` starts processes, the states of the random generators of Python, NumPy and PyTorch,
    ``sys.excepthook``, which torch replaces to put a rank before every traceback, and
    ``torch.set_num_threads``, which vLLM's CPU worker replaces by a function that does nothing.
    """
    before = dict(os.environ)
    ours = _our_environment(before, on_cpu=on_cpu)
    os.environ.update(ours)
    _quiet_logger()
    python_state = random.getstate()
    numpy_state = _numpy_state()
    try:
        import torch
    except ImportError:
        torch = None
    torch_state = _torch_state(torch)
    excepthook = sys.excepthook
    started_by: str | None = multiprocessing.get_start_method(allow_none=True)
    try:
        with warnings.catch_warnings():
            # vLLM's use of deprecated functions is nothing that the user could change.
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.excepthook = excepthook
        if started_by is None:  # so that the user can still choose how processes are started
            multiprocessing.set_start_method(None, force=True)
        random.setstate(python_state)
        if numpy_state is not None:
            sys.modules["numpy"].random.set_state(numpy_state)
        _restore_torch(torch, torch_state)
        _restore_environment(before, ours)


def release_after_failure() -> None:
    """Tear down what a start that failed half-way left behind, so that another one can be tried."""
    if "vllm.distributed.parallel_state" not in sys.modules:
        return
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    try:
        cleanup_dist_env_and_memory()
    except Exception:
        # The failure of the start itself is what the user must see.
        logging.getLogger(__name__).debug("cleaning up after a failed start failed", exc_info=True)


def _our_environment(before: dict[str, str], *, on_cpu: bool) -> dict[str, str]:
    defaults = dict(_DEFAULTS)
    if on_cpu:
        defaults |= _CPU_DEFAULTS
    if "VLLM_LOGGING_LEVEL" not in before and "VLLM_LOGGING_CONFIG_PATH" not in before:
        defaults["VLLM_CONFIGURE_LOGGING"] = "0"
    return {k: v for k, v in defaults.items() if k not in before} | _FORCED


def _quiet_logger() -> None:
    """Let only errors of vLLM through, unless the user chose a level."""
    logger = logging.getLogger("vllm")
    if logger.level == logging.NOTSET and "VLLM_LOGGING_LEVEL" not in os.environ:
        logger.setLevel(logging.ERROR)


def _restore_environment(before: dict[str, str], ours: dict[str, str]) -> None:
    for name in set(os.environ) | set(before):
        if name.startswith(_KEPT_PREFIXES) and name not in ours:
            continue
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]


def _numpy_state() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()


def _torch_state(torch: Any) -> tuple[Any, Any, Any] | None:
    if torch is None:
        return None
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), devices, torch.set_num_threads


def _restore_torch(torch: Any, state: tuple[Any, Any, Any] | None) -> None:
    if torch is None or state is None:
        return
    host, devices, set_num_threads = state
    torch.set_rng_state(host)
    if devices is not None:
        torch.cuda.set_rng_state_all(devices)
    torch.set_num_threads = set_num_threads
