"""What works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from semops import session
from semops.config import Settings, cache_path
from semops.engine import answer_cache
from semops.engine.backends import vllm_process
from semops.engine.models import has_cuda_gpu, resolve
from semops.errors import ConfigError, SemopsError
from semops.frames import sem_map

DISTRIBUTION = "kalypso-semops"
EXTRAS = {
    "sql": ("DuckDB", ("duckdb", "sqlglot")),
    "embed": ("embeddings", ("sentence_transformers", "usearch")),
    "ray": ("clusters", ("ray",)),
    "bench": ("plots", ("matplotlib",)),
}
"""Extras of the distribution: what they are for, and the modules they bring."""
_WORDS = "one two three four five six seven eight nine ten eleven twelve"


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    found: str
    ok: bool = True
    advice: str = ""
    """What to do, where it is not as it should be."""


def checks(*, start: bool = True) -> Iterator[Check]:
    """Yield what was found, one thing after the other.

    Parameters
    ----------
    start
        Start the engine, to see its memory and whether it finds prefixes again; takes seconds.

    Examples
    --------
    >>> next(checks(start=False)).name
    'semops'
    """
    yield Check("semops", f"{_version(DISTRIBUTION)} on Python {platform.python_version()}")
    yield Check("Polars", pl.__version__)
    build = _engine_build()
    yield build
    yield Check("GPU", "an NVIDIA GPU answers" if has_cuda_gpu() else "none: models run on the CPU")
    model = _model()
    yield model
    if start and build.ok and model.ok:
        yield from _engine()
    yield _cache()
    for extra in EXTRAS:
        yield _extra(extra)
    yield from _strays()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed as a distribution"


def _engine_build() -> Check:
    try:
        kind = "CPU" if vllm_process.installed_for_cpu() else "GPU"
    except SemopsError as error:
        return Check("vLLM", "not usable", ok=False, advice=str(error))
    name = importlib.metadata.packages_distributions()["vllm"][0]
    return Check("vLLM", f"{_version(name)}, {kind} build")


def _model() -> Check:
    try:
        current = session.settings()
        found = resolve(current.model, current.cache_dir)
    except SemopsError as error:
        return Check("model", "none", ok=False, advice=str(error))
    advice = "Pass model= with an instruct model for answers to rely on."
    return Check("model", found.name, advice=advice if found.offline_default else found.note)


def _engine() -> Iterator[Check]:
    try:
        engine = session.engine()
        seen = engine.capabilities
        hits = _hits()
    except Exception as error:  # noqa: BLE001 - whatever it is, the report goes on
        yield Check("engine", "does not start", ok=False, advice=f"{type(error).__name__}: {error}")
        return
    yield Check(
        "KV memory",
        f"{seen.kv_tokens:,} tokens in blocks of {seen.block_tokens}; context "
        f"{seen.context_tokens:,} tokens; {seen.max_running} requests at once",
    )
    reused = hits > 0 and seen.prefix_reuse
    yield Check(
        "prefix reuse",
        f"{hits} tokens of a repeated prompt found again" if reused else "none",
        ok=reused,
        advice=""
        if reused
        else "Take a model with plain attention: hybrid attention and state space models reuse nothing.",
    )
    explicit = engine.scheduler.pins.enabled
    why = "; ".join(seen.reasons)
    asked = "" if explicit or why else 'pinning="virtual" is set'
    yield Check("pinning", "explicit" if explicit else "virtual", advice=why or asked)


def _hits() -> int:
    """Return how many tokens of a prompt a second one that begins alike finds in the cache."""
    frame = pl.DataFrame({"text": [" ".join([_WORDS] * 8)]})
    options = {"max_tokens": 1, "prompt_style": "raw", "on_cutoff": "keep"}
    with session.options(cache=False, progress=False):
        lazy = sem_map(frame, "Repeat {text}", "first", **options)  # type: ignore[arg-type]
        sem_map(lazy, "Shorten {text}", "second", **options).collect()  # type: ignore[arg-type]
    profile = session.last_profile()
    return 0 if profile is None else profile.operators["sem_map:second"].cached_tokens


def _cache() -> Check:
    try:
        path = cache_path(session.settings())
        found = None if path is None else answer_cache.info(path)
    except ConfigError as error:
        return Check("answer cache", "not usable", ok=False, advice=str(error))
    if path is None:
        return Check("answer cache", "off", advice="cache=True keeps answers between runs")
    held = "empty" if found is None else f"{found.answers:,} answers, {found.bytes:,} bytes"
    return Check("answer cache", f"{path}: {held}")


def _extra(extra: str) -> Check:
    purpose, modules = EXTRAS[extra]
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return Check(purpose, "installed")
    return Check(purpose, "not installed", advice=f'pip install "{DISTRIBUTION}[{extra}]"')


def _strays() -> Iterator[Check]:
    """Yield variables that look like settings and are none."""
    known = {f"SEMOPS_{name.upper()}" for name in Settings.model_fields}
    for name in sorted(os.environ):
        if name.upper().startswith("SEMOPS_") and name.upper() not in known:
            close = difflib.get_close_matches(name.upper(), known, n=1)
            advice = f"Is it {close[0]}?" if close else f"There are {', '.join(sorted(known))}."
            yield Check(name, "is no setting", ok=False, advice=advice)
