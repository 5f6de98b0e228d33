"""The command ``semops``: look at the machine, at plans, and at kept answers."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import polars as pl
import typer

from semops import doctor as doctor_checks
from semops import session
from semops.capacity_report import capacity as engine_capacity
from semops.config import cache_path, home_expanded
from semops.engine import answer_cache
from semops.errors import ConfigError, SemopsError
from semops.frames import explain as explain_frame

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__
)
cache_app = typer.Typer(no_args_is_help=True, help="Answers kept between runs.")
app.add_typer(cache_app, name="cache")

CacheFile = Annotated[
    Path | None,
    typer.Option("--path", help="the file; default: that of SEMOPS_CACHE, or cache_dir"),
]


@app.command()
def doctor(
    start: Annotated[bool, typer.Option(help="start the engine to test it (seconds)")] = True,  # noqa: FBT002
) -> None:
    """Say what works on this machine, and what to do about what does not."""
    found = []
    for check in doctor_checks.checks(start=start):
        found.append(check.ok)
        typer.echo(f"{'ok' if check.ok else 'NO'}  {check.name}: {check.found}")
        if check.advice:
            typer.echo(f"    {check.advice}")
    session.close()
    raise typer.Exit(0 if all(found) else 1)


@app.command()
def capacity(
    lengths: Annotated[
        Path,
        typer.Argument(help="Parquet or CSV file with the columns prompt_tokens and output_tokens"),
    ],
    kv_tokens: Annotated[
        int | None, typer.Option(help="KV memory in tokens; with --step-s no engine is started")
    ] = None,
    step_s: Annotated[float | None, typer.Option(help="seconds of an engine step")] = None,
    rate: Annotated[float | None, typer.Option(help="requests a second to be sustained")] = None,
    max_running: Annotated[int | None, typer.Option(help="most requests in a batch")] = None,
    slo: Annotated[bool, typer.Option(help="latency matters: plan with 70 % load")] = False,  # noqa: FBT002
    plot: Annotated[Path | None, typer.Option(help="where to draw the queue")] = None,
) -> None:
    """Say how many requests a second an engine sustains, and how many engines a rate needs."""
    if not lengths.is_file():
        _fail(f"{str(lengths)!r} is no file.")
    try:
        table = (
            pl.read_csv(lengths) if lengths.suffix.lower() == ".csv" else pl.read_parquet(lengths)
        )
        report = engine_capacity(
            table,
            kv_tokens=kv_tokens,
            step_s=step_s,
            rate=rate,
            max_running=max_running,
            slo=slo,
            plot=plot,
        )
    except SemopsError as error:
        _fail(str(error))
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        _fail(f"{lengths} or the plot can't be used ({error}). Lengths come as Parquet or CSV.")
    typer.echo(str(report))
    session.close()


@app.command()
def explain(
    target: Annotated[
        str,
        typer.Argument(
            help="FILE.py:NAME of a lazy frame or of a function that returns one, or SQL"
        ),
    ],
    database: Annotated[
        Path | None,
        typer.Option(help="DuckDB file that the SQL reads; opened for reading only"),
    ] = None,
) -> None:
    """Show how a frame or a statement will run. Runs the frame's file, but not the frame."""
    path, _, name = target.rpartition(":")
    if database is not None or (len(target.split()) > 1 and not Path(path).is_file()):
        _explain_sql(target, database)
        return
    if not path or not Path(path).is_file():
        _fail(
            f"{target!r} is neither SQL nor FILE.py:NAME with a file that is there, for example "
            f"query.py:frame."
        )
    sys.path.insert(0, str(Path(path).resolve().parent))
    names = runpy.run_path(path, run_name="semops_explain")
    if name not in names:
        lazy = sorted(key for key, value in names.items() if isinstance(value, pl.LazyFrame))
        _fail(f"{path} has no {name!r}. Lazy frames there: {', '.join(lazy) or 'none'}.")
    made = names[name]
    try:
        frame = made() if callable(made) and not isinstance(made, pl.LazyFrame) else made
    except Exception as error:  # noqa: BLE001 - whatever the user's function does
        _fail(f"{name}() failed: {type(error).__name__}: {error}")
    if not isinstance(frame, pl.LazyFrame):
        _fail(f"{name!r} is a {type(frame).__name__}, not a lazy frame.")
    try:
        typer.echo(explain_frame(frame))
    except SemopsError as error:
        _fail(str(error))


def _explain_sql(statement: str, database: Path | None) -> None:
    if database is not None and not database.is_file():
        _fail(f"{str(database)!r} is no file.")
    try:
        from semops.sql import explain_file
    except ImportError:
        _fail("SQL needs DuckDB and sqlglot. Install them: pip install 'kalypso-semops[sql]'.")
    try:
        typer.echo(explain_file(database, statement))
    except SemopsError as error:
        _fail(str(error))


@cache_app.command()
def info(path: CacheFile = None) -> None:
    """Show how many answers are kept, where, and how much room they take."""
    file = _cache_file(path)
    try:
        found = answer_cache.info(file)
    except ConfigError as error:
        _fail(str(error))
    if found is None:
        typer.echo(f"{file}: no answers are kept")
        return
    age = f", the oldest used {found.oldest_days} days ago" if found.answers else ""
    typer.echo(f"{file}: {found.answers:,} answers, {found.bytes:,} bytes{age}")


@cache_app.command()
def clear(path: CacheFile = None) -> None:
    """Delete all kept answers."""
    file = _cache_file(path)
    try:
        count = answer_cache.clear(file)
    except ConfigError as error:
        _fail(str(error))
    typer.echo(f"{file}: {count:,} answers deleted")


def _cache_file(path: Path | None) -> Path:
    if path is not None:
        return path
    try:
        current = session.settings()
        found = cache_path(current)
        return found if found is not None else home_expanded(current.cache_dir) / "answers.sqlite"
    except ConfigError as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)
