"""One engine for the whole session: vLLM is one per process and takes about ten seconds to start."""

from __future__ import annotations

import os

import pytest

KV_TOKENS = 4096
CONTEXT_TOKENS = 2048


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory) -> str:
    """Return the folder of a small instruct model."""
    if folder := os.environ.get("SEMOPS_TEST_MODEL"):
        return folder
    pytest.importorskip("gguf")
    models = pytest.importorskip("semops.engine.models")
    return models.resolve("offline", tmp_path_factory.mktemp("models")).path


@pytest.fixture(scope="session")
def vllm_backend(model_folder):
    """Start vLLM once; tests leave it without requests and pins."""
    pytest.importorskip("vllm.version", reason="vLLM isn't installed")
    from semops.engine.backends import vllm

    backend = vllm.start(model_folder, kv_tokens=KV_TOKENS, context_tokens=CONTEXT_TOKENS)
    yield backend
    backend.close()
