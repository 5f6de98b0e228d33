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

    # In float32 an answer of several tokens doesn't depend on what else is in the batch.
    backend = vllm.start(
        model_folder, kv_tokens=KV_TOKENS, context_tokens=CONTEXT_TOKENS, dtype="float32"
    )
    yield backend
    backend.close()


class Borrowed:
    """A backend that outlives the engine thread that drives it."""

    def __init__(self, backend):
        self._backend = backend

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def close(self):
        """Leave it open for the next test, without anything of this one."""
        self._backend.unpin_all()


@pytest.fixture
def engine(vllm_backend):
    """Let queries of one test run on the session's engine, from an empty prefix cache."""
    from semops import session

    vllm_backend._engine.reset_prefix_cache()
    with session.override(lambda: Borrowed(vllm_backend)) as thread:
        yield thread
