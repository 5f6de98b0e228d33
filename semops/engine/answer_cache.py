"""Answers kept on disk, so that a run that was stopped asks only for what is missing.

One SQLite file in WAL mode, which several processes may use at once. A key says which weights, prompt,
constraint and sampling an answer came from, and no row's text is written but the model's own answer.
Failed and cut-off answers are never kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from semops.engine.plan import Answer, Finish
from semops.errors import ConfigError

FORMAT = 1
"""Number of the file's layout; another one is refused."""
APPLICATION = 0x73656D6F
"""What tells such a file from other databases of SQLite."""
OPEN_S = 10.0
"""How long to wait for another process when a file is opened or closed, in seconds."""
BUSY_S = 0.2
"""How long to wait for one before a write is put off; all queries wait with it, in seconds."""
CHECK_EVERY = 256
"""Answers between two looks at the file's size."""
EVICTED_SHARE = 0.2
"""Share of the answers that goes when the file is too large, those used longest ago first."""
_DAY_S = 86_400
CLOSED = "closed"
T = TypeVar("T")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    key BLOB PRIMARY KEY, text TEXT NOT NULL, logprobs TEXT NOT NULL,
    output_tokens INTEGER NOT NULL, day INTEGER NOT NULL
) WITHOUT ROWID
"""

logger = logging.getLogger(__name__)


class CacheInfo(NamedTuple):
    """What a cache file holds."""

    path: Path
    answers: int
    bytes: int
    """Size of the file and its log, in bytes."""
    oldest_days: int
    """Days since the answer that was used longest ago was last used."""


class AnswerCache:
    """A cache file, for one model; used by one thread.

    Parameters
    ----------
    path
        The file; made, with its folder, if it isn't there, and readable by its owner only.
    identity
        What tells the weights from others.
    limit_bytes
        Size that the file is kept under, in bytes.

    Raises
    ------
    ConfigError
        If the file can't be opened or is no cache, or the weights can't be told from others.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> cache = AnswerCache(Path(folder.name, "answers.sqlite"), "weights-1")
    >>> cache.put(b"key", Answer("Paris", Finish.STOP, output_tokens=1))
    >>> cache.flush()
    >>> cache.get(b"key").text, cache.get(b"other")
    ('Paris', None)
    >>> cache.close(), folder.cleanup()
    (None, None)
    """

    def __init__(self, path: Path, identity: str, limit_bytes: int = 1 << 31) -> None:
        if not identity:
            raise ConfigError(
                "answers can't be kept: nothing tells this model's weights from others. Pass model= "
                "as a local folder, or switch the cache off (cache=False)."
            )
        self.path = path
        self.limit_bytes = limit_bytes
        self.problem = ""
        """Why it is no longer used, or empty."""
        self._identity = identity.encode()
        self._connection = _connect(path, make=True)
        self._connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
        # A killed process loses nothing; only a crash of the machine may lose the last answers.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA wal_autocheckpoint = 200")
        self._file = path.stat()
        self._new: dict[bytes, tuple[str, str, int]] = {}
        self._used: set[bytes] = set()
        self._since_check = 0

    @property
    def usable(self) -> bool:
        """Whether it works, and its file is still there."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        return not self.problem and os.path.samestat(found, self._file)

    def get(self, key: bytes) -> Answer | None:
        """Return the answer to a request, or None."""
        whole = self._key(key)
        found = self._new.get(whole)
        if found is None:
            try:
                rows = self._guarded(lambda c: c.execute(_GET, (whole,)).fetchall())
            except _BusyError:
                return None
            if not rows:
                return None
            *found, day = rows[0]
            if day != _today():
                self._used.add(whole)
        text, scores, output_tokens = found
        try:
            logprobs = {int(token): float(score) for token, score in json.loads(scores)}
        except (TypeError, ValueError):  # a damaged file: the answer is asked for again
            return None
        return Answer(text, Finish.STOP, output_tokens, logprobs=logprobs)

    def put(self, key: bytes, answer: Answer) -> None:
        """Keep an answer; one that failed or was cut off is not kept. Written by :meth:`flush`."""
        if answer.finish is not Finish.STOP:
            return
        try:
            answer.text.encode()
        except UnicodeEncodeError:  # half a surrogate pair, which no file can hold
            return
        scores = json.dumps(list(answer.logprobs.items()))
        self._new[self._key(key)] = (answer.text, scores, answer.output_tokens)

    def flush(self) -> None:
        """Write what is new, so that it outlives the process."""
        if not self._new and not self._used:
            return
        day = _today()
        rows = [(key, *values, day) for key, values in self._new.items()]
        used = [(day, key) for key in self._used]

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany(_PUT, rows)
                connection.executemany("UPDATE answers SET day = ? WHERE key = ?", used)

        try:
            self._guarded(write)
        except _BusyError:  # another process writes: next time
            return
        self._since_check += len(rows)
        self._new.clear()
        self._used.clear()
        if self._since_check >= CHECK_EVERY:
            self._since_check = 0
            with suppress(_BusyError):
                self._guarded(self._shrink)

    def close(self) -> None:
        """Write what is new and let go of the file; safe to call twice."""
        if self.problem != CLOSED:
            with suppress(sqlite3.Error):
                self._connection.execute(f"PRAGMA busy_timeout = {int(OPEN_S * 1000)}")
            self.flush()
            self._connection.close()
            self.problem = CLOSED

    def _key(self, key: bytes) -> bytes:
        return hashlib.blake2b(key + self._identity, digest_size=16).digest()

    def _shrink(self, connection: sqlite3.Connection) -> None:
        while _used_bytes(connection) > self.limit_bytes:
            (count,) = connection.execute("SELECT count(*) FROM answers").fetchone()
            if not count:
                return
            with connection:
                connection.execute(_EVICT, (int(count * EVICTED_SHARE) + 1,))
        connection.execute("PRAGMA incremental_vacuum").fetchall()

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Work on the file; without it answers are the same, so a failure only ends its use."""
        if self.problem:
            return None
        try:
            return work(self._connection)
        except sqlite3.OperationalError as error:
            if _is_busy(error):
                raise _BusyError from error
            self._give_up(error)
        except sqlite3.Error as error:
            self._give_up(error)
        return None

    def _give_up(self, error: sqlite3.Error) -> None:
        self.problem = f"{type(error).__name__}: {error}"
        logger.warning("the answer cache %s is not used any more: %s", self.path, self.problem)


class _BusyError(Exception):
    """Another process holds the file."""


_GET = "SELECT text, logprobs, output_tokens, day FROM answers WHERE key = ?"
_PUT = "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)"
_EVICT = "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY day LIMIT ?)"


def info(path: Path) -> CacheInfo | None:
    """Return what a cache file holds; None where there is no file.

    Raises
    ------
    ConfigError
        If the file is no cache.
    """
    if not path.exists():
        return None
    connection = _connect(path, make=False)
    try:
        count, oldest = connection.execute("SELECT count(*), min(day) FROM answers").fetchone()
    except sqlite3.Error as error:
        raise _broken(path, error) from error
    finally:
        connection.close()
    files = [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]
    size = sum(file.stat().st_size for file in files if file.exists())
    return CacheInfo(path, count, size, 0 if oldest is None else _today() - oldest)


def clear(path: Path) -> int:
    """Delete all answers of a cache file; return how many there were.

    Raises
    ------
    ConfigError
        If the file is no cache.
    """
    if not path.exists():
        return 0
    connection = _connect(path, make=False)
    try:
        (count,) = connection.execute("SELECT count(*) FROM answers").fetchone()
        with connection:
            connection.execute("DELETE FROM answers")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise _broken(path, error) from error
    finally:
        connection.close()
    return int(count)


def _connect(path: Path, *, make: bool) -> sqlite3.Connection:
    """Open a cache file; with ``make`` an empty or missing one becomes one."""
    try:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(path, timeout=OPEN_S, check_same_thread=False)
    except (OSError, ValueError, sqlite3.Error) as error:  # of values: no file has such a name
        raise ConfigError(
            f"the answer cache {str(path)!r} can't be opened ({error}). Pass cache= with a file that "
            f"can be written, or cache=False."
        ) from error
    try:
        _check(connection, make=make)
    except sqlite3.Error as error:
        connection.close()
        raise _broken(path, error) from error
    return connection


def _check(connection: sqlite3.Connection, *, make: bool) -> None:
    """Make sure that a database is a cache; nothing is changed of one that is not."""
    with _transaction(connection, "DEFERRED"):
        ready = _is_cache(connection, empty=make)
    if ready:
        return
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    _to_wal(connection)
    # Whoever was first made it; the others find it made, whole, as the transaction shows it.
    with _transaction(connection, "IMMEDIATE"):
        if not _is_cache(connection, empty=True):
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")


def _is_cache(connection: sqlite3.Connection, *, empty: bool) -> bool:
    """Whether a database is a cache; False for one without content, if ``empty`` allows it."""
    application, found = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version")
    )
    if application == APPLICATION and found == FORMAT:
        return True
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not empty or application or found or objects:
        what = f"its format is {found}" if application == APPLICATION else "it is another database"
        raise sqlite3.DatabaseError(what)
    return False


def _to_wal(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log; SQLite doesn't wait for others by itself when it does that."""
    deadline = time.monotonic() + OPEN_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)  # SQLite has nothing to wait on
        else:
            return


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    """One transaction over reads, settings and tables alike; the module's own covers only rows."""
    connection.execute(f"BEGIN {kind}")
    with connection:
        yield


def _is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection was in the way; the code's low byte says so."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _broken(path: Path, error: sqlite3.Error) -> ConfigError:
    if _is_busy(error):
        return ConfigError(
            f"the answer cache {str(path)!r} is held by another process. Try again later, or pass "
            f"another file as cache=."
        )
    return ConfigError(
        f"{str(path)!r} is no answer cache of this version, or is damaged ({error}). Pass another file "
        f"as cache=. If it is a cache, delete it."
    )


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _today() -> int:
    return int(time.time() // _DAY_S)
