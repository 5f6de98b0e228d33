"""What tells one model's weights from another's, between processes and machines."""

from __future__ import annotations

import hashlib
from pathlib import Path

SAMPLES = 64
"""Pieces of a weight file that are read: training changes nearly every number of every matrix."""
PIECE_BYTES = 1 << 16
"""Length of a piece, in bytes."""
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_TEXTS = (".json", ".model", ".txt", ".jinja")
"""Files that say how weights and texts are read: configuration, tokenizer, chat template."""


def fingerprint(folder: Path) -> str:
    """Return a digest of a model folder.

    Small files are read whole, weight files by their size and pieces spread over them, so that it takes
    milliseconds for any size. Names of folders and times of files don't count.

    Parameters
    ----------
    folder
        Where a model lies.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     weights = Path(name, "model.safetensors")
    ...     _ = weights.write_bytes(b"abc")
    ...     before = fingerprint(Path(name))
    ...     _ = weights.write_bytes(b"xyz")
    ...     before == fingerprint(Path(name))
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.suffix not in (*_WEIGHTS, *_TEXTS):
            continue
        digest.update(f"{path.name}:{path.stat().st_size}:".encode())
        with path.open("rb") as file:
            if path.suffix in _TEXTS:
                digest.update(file.read())
                continue
            last = max(path.stat().st_size - PIECE_BYTES, 0)
            for number in range(SAMPLES):
                file.seek(last * number // (SAMPLES - 1))
                digest.update(file.read(PIECE_BYTES))
    return digest.hexdigest()


def folder_of(model: str) -> Path | None:
    """Return the folder that a model was loaded from, or None where it can't be found.

    Parameters
    ----------
    model
        A folder, or the id of a model that lies in the Hugging Face cache.

    Examples
    --------
    >>> folder_of("nobody/nothing") is None
    True
    """
    path = Path(model)
    if path.is_dir():
        return path
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(model, local_files_only=True))
    except Exception:  # noqa: BLE001 - not installed, not there, or not a name it takes
        return None
