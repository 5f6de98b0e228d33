"""The process's engine: started on first use, shared by all queries, closed at exit."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from semops.errors import ConfigError, EngineError
from semops.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semops.config import Settings
    from semops.engine.backend import Backend
    from semops.engine.loop import EngineThread
    from semops.engine.scheduler import CacheFile

logger = logging.getLogger(__name__)
_lock = threading.RLock()
_settings: Settings | None = None
_engine: EngineThread | None = None
_overrides: list[EngineThread] = []
"""Engines that replace the process's own for a block, the innermost last."""
_options: list[dict[str, Any]] = []
"""Options of queries that run in a block, for the whole process: Polars runs sources on threads of its own."""
_build_options: ContextVar[dict[str, Any]] = ContextVar("semops_build_options", default={})  # noqa: B039
"""Options of operators built in a block, by thread and asynchronous task; it is never changed, only replaced."""
_profiles: list[Profile] = []
"""Profiles that collect what runs now, the innermost last."""
_last_profile: Profile | None = None
_ran = False
"""Whether an engine was ever started in this process."""
_forked = False
"""Whether this process was forked from one in which an engine ran; Polars' threads ran there too then, and
are still missing here where the engine had ended."""


def settings() -> Settings:
    """Return the settings in force, options of enclosing blocks included."""
    from semops.config import load

    global _settings  # noqa: PLW0603 - one engine a process, so one setting
    with _lock:
        if _settings is None:
            _settings = load()
        changes: dict[str, Any] = {}
        for layer in _options:
            changes.update(layer)
        changes.update(_build_options.get())
        return _settings.model_copy(update=changes) if changes else _settings


def configure(**changes: Any) -> None:
    """Change settings of the process.

    Parameters
    ----------
    changes
        Fields of :class:`semops.config.Settings`, for example ``model=`` or ``kv_memory="4GiB"``.
        Settings made earlier stay.

    Raises
    ------
    ConfigError
        If a name or a value is not allowed, or a running engine would have to change.

    Examples
    --------
    >>> configure(prompt_style="chat")
    >>> configure(colour="red")
    Traceback (most recent call last):
    ...
    semops.errors.ConfigError: 'colour' is no setting; there are admission, ...
    """
    from semops.config import ENGINE_FIELDS, load

    global _settings  # noqa: PLW0603
    with _lock:
        explicit = _settings.model_dump(include=_settings.model_fields_set) if _settings else {}
        new = load(**{**explicit, **changes})
        old = _settings if _settings is not None else load()
        changed = sorted(f for f in ENGINE_FIELDS if getattr(new, f) != getattr(old, f))
        if changed and _engine is not None and _engine.alive:
            raise ConfigError(
                f"{', '.join(changed)} can't change while an engine runs. Call semops.close() first; "
                f"the next query starts a new one."
            )
        _settings = new


@contextmanager
def options(**changes: Any) -> Iterator[None]:
    """Change options for the operators built in a block, and for the queries run in it.

    Parameters
    ----------
    changes
        ``prompt_style``, ``on_error``, ``nulls`` and ``overflow`` hold for operators built in the
        block, by this thread or asynchronous task. The others hold for all queries of the process that
        start while it lasts.

    Raises
    ------
    ConfigError
        If a name or a value is not allowed.

    Examples
    --------
    >>> with options(executor="blocking"):
    ...     settings().executor
    'blocking'
    """
    from semops.config import BUILD_FIELDS, OPTION_FIELDS, load

    unknown = sorted(set(changes) - OPTION_FIELDS)
    if unknown:
        allowed = ", ".join(sorted(OPTION_FIELDS))
        raise ConfigError(
            f"{', '.join(unknown)} can't be set for a block; options takes {allowed}. "
            f"Use semops.configure for the others."
        )
    checked = load(**changes)
    found = {name: getattr(checked, name) for name in changes}
    layer = {name: value for name, value in found.items() if name not in BUILD_FIELDS}
    building = {name: value for name, value in found.items() if name in BUILD_FIELDS}
    token = _build_options.set({**_build_options.get(), **building})
    with _lock:
        _options.append(layer)
    try:
        yield
    finally:
        with _lock:
            _options[:] = [other for other in _options if other is not layer]
        _build_options.reset(token)


def engine() -> EngineThread:
    """Return the engine, started if need be.

    Raises
    ------
    EngineError, MissingExtraError, ConfigError
        If it can't be started.
    """
    global _engine, _ran  # noqa: PLW0603
    if _forked:
        raise fork_error()
    with _lock:
        if _overrides:
            return _overrides[-1]
        if _engine is None or not _engine.alive:
            from semops.engine.loop import EngineThread

            _ran = True
            current = settings()
            _engine = EngineThread(
                lambda: _start_vllm(current),
                current.controller,
                current.pinning,
                policy=current.ordering,
                mode=current.admission,
                max_wait_s=current.max_wait_s,
            )
            atexit.register(_end_process)
        return _engine


def answer_cache() -> CacheFile | None:
    """Return where answers are kept between runs, or None where they are not."""
    from semops.config import cache_path
    from semops.engine.scheduler import CacheFile

    current = settings()
    path = cache_path(current)
    return None if path is None else CacheFile(path, current.cache_limit)


def _start_vllm(current: Settings) -> Backend:
    from semops.engine.backends import vllm
    from semops.engine.models import resolve

    found = resolve(current.model, current.cache_dir)
    if found.offline_default and current.model is None:
        logger.warning(
            '%s. Pass model= for answers to rely on; with this one use prompt_style="raw".',
            found.note,
        )
    options: dict[str, Any] = {}
    if current.max_running is not None:
        options["max_running"] = current.max_running
    return vllm.start(
        found.path,
        name=found.name,
        kv_bytes=current.kv_memory if current.kv_tokens is None else None,
        kv_tokens=current.kv_tokens,
        context_tokens=current.context_tokens,
        dtype=current.dtype,
        **options,
    )


def close() -> None:
    """Stop the engine and free its memory; the next query starts a new one.

    Running queries end with an error. A call without an engine does nothing.

    Examples
    --------
    >>> close()
    """
    global _engine
    with _lock:
        running, _engine = _engine, None
    if running is not None:
        running.close()
        atexit.unregister(_end_process)


def _end_process() -> None:
    """Leave nothing behind that would run into a finished interpreter."""
    from semops.runtime.leaving import leave_all

    leave_all()
    close()


def forked() -> bool:
    """Return whether this process was forked from one in which an engine ran."""
    return _forked


def fork_error() -> EngineError:
    """Return why nothing semantic runs in such a process."""
    return EngineError(
        "this process was forked from one in which an engine ran, and neither the engine's nor Polars' "
        'threads come along. Start processes with multiprocessing.get_context("spawn").'
    )


def _after_fork() -> None:
    global _forked, _lock, _engine  # noqa: PLW0603
    _forked = _forked or _ran
    _lock = threading.RLock()  # another thread may have held it
    _engine = None


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def override(start_backend: Callable[[], Backend], **kwargs: Any) -> Iterator[EngineThread]:
    """Use another engine for a block, in all threads."""
    from semops.engine.loop import EngineThread

    global _ran  # noqa: PLW0603
    _ran = True
    replacement = EngineThread(start_backend, **kwargs)
    with _lock:
        _overrides.append(replacement)
    try:
        yield replacement
    finally:
        with _lock:
            _overrides.remove(replacement)
        replacement.close()


def record(profile: Profile) -> None:
    """Keep the profile of a finished run."""
    global _last_profile  # noqa: PLW0603
    with _lock:
        _last_profile = profile
        for collecting in _profiles:
            collecting.merge(profile)


def last_profile() -> Profile | None:
    """Return the profile of the last finished run, or None.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> _ = pl.DataFrame({"text": ["a"]}).sem_filter("{text} is kind").collect()
    >>> semops.last_profile().operators["sem_filter"].calls
    1
    """
    return _last_profile


@contextmanager
def profile() -> Iterator[Profile]:
    """Collect what all runs in a block do.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> with semops.profile() as p:
    ...     for _ in range(2):
    ...         _ = pl.DataFrame({"text": ["a"]}).sem_filter("{text} is kind").collect()
    >>> p.operators["sem_filter"].calls
    2
    """
    collecting = Profile()
    with _lock:
        _profiles.append(collecting)
    try:
        yield collecting
    finally:
        with _lock:
            _profiles[:] = [other for other in _profiles if other is not collecting]
