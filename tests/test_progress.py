"""Progress: in a terminal and in a notebook, nowhere else, and nothing is left behind."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import textwrap
from pathlib import Path

import pytest

from semops.progress import Display, OperatorProgress, Snapshot, lines, summary, wanted

QUERY = """
import polars as pl, semops
from semops.testing import Reply, replay
frame = pl.DataFrame({"text": [f"row {i}" for i in range(300)]})
def answer(operator, *_):
    return Reply(True if operator == "sem_filter" else "x", 0.1)
with replay(answer, max_running=32):
    out = frame.sem_filter("{text} is so").sem_map("Sum up {text}", "out").collect()
print("rows", out.height)
"""
INTERRUPTED = """
try:
{query}
except KeyboardInterrupt:
    print("interrupted")
""".format(query=textwrap.indent(QUERY, "    "))


def in_terminal(code: str, *, interrupt: bool, answers: dict[bytes, bytes] | None = None) -> str:
    """Run code with a terminal as stdout and stderr; return what arrives there.

    Where ``interrupt`` is set, it gets a Ctrl-C as soon as progress is seen; where a question of ``answers``
    is seen, its answer.
    """
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (30, 100))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=slave, stderr=slave, stdin=slave, env=environment
    ) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 65_536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            seen += part
            if interrupt and b"rows/s" in seen:
                process.send_signal(signal.SIGINT)
                interrupt = False
            for question in [question for question in answers or () if question in seen]:
                os.write(master, answers.pop(question))
        assert process.wait() == 0, seen.decode()
    os.close(master)
    return seen.decode()


def screen(text: str) -> list[str]:
    """Return the lines that stay on a screen: rich moves up and erases, nothing else."""
    kept = [""]
    row = 0
    position = 0
    while position < len(text):
        if text.startswith("\x1b[", position):
            end = position + 2
            while not text[end].isalpha():
                end += 1
            argument, kind = text[position + 2 : end], text[end]
            if kind == "A":
                row -= int(argument or 1)
            elif kind == "K":
                kept[row] = ""
            position = end + 1
            continue
        character = text[position]
        position += 1
        if character == "\n":
            row += 1
            if row == len(kept):
                kept.append("")
        elif character != "\r":
            kept[row] += character
    return [line for line in kept if line.strip()]


@pytest.mark.parametrize(("code", "last"), [(QUERY, "rows 300"), (INTERRUPTED, "interrupted")])
def test_a_terminal_shows_it_and_keeps_nothing(code: str, last: str) -> None:
    seen = in_terminal(code, interrupt=code is INTERRUPTED)
    assert "sem_filter" in seen
    assert "/ 300" in seen
    assert "rows/s" in seen
    assert "KV" in seen
    assert "left" in seen
    assert screen(seen) == [last]
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h")  # the cursor is back


PRINTS = """
import polars as pl, semops
from semops.testing import Reply, replay
frame = pl.DataFrame({"text": [f"row {i}" for i in range(30)]})
with replay(lambda *_: Reply("x", 0.1), max_running=2):
    lazy = frame.sem_map("Sum up {text}", "[red]x[/blue]")
    for batch in lazy.collect_batches(chunk_size=1, maintain_order=True):
        for text in batch["text"]:
            print(text, flush=True)
"""


def test_what_the_program_prints_goes_where_it_went(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = f"import sys\nsys.stdout = open({str(out)!r}, 'w')\n{PRINTS}"
    seen = in_terminal(code, interrupt=False)
    assert out.read_text().splitlines() == [f"row {i}" for i in range(30)]
    assert "row 1" not in seen
    assert "sem_map:[red]x[/blue]" in seen


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_the_program_prints_on_the_same_terminal_stays(stream: str) -> None:
    code = PRINTS.replace("print(text,", f"print(text, file=__import__('sys').{stream},")
    seen = in_terminal(f"{code}\nprint(type(__import__('sys').{stream}).__name__)", interrupt=False)
    assert "rows/s" in seen
    assert screen(seen) == [*(f"row {i}" for i in range(30)), "TextIOWrapper"]


LOUD = """
import polars as pl, semops, sys, threading, time
from semops.testing import Reply, replay
frame = pl.DataFrame({"text": [f"row {i}" for i in range(20)]})
over = threading.Event()
def talk(name):
    number = 0
    while not over.is_set():
        (sys.stdout, sys.stderr)[number % 2].write(f"{name} {number}\\nand more\\n")
        number += 1
        time.sleep(0.002)
    counts[name] = number
counts = {}
talkers = [threading.Thread(target=talk, args=(name,)) for name in "ab"]
[talker.start() for talker in talkers]
with replay(lambda *_: Reply("x", 0.1), max_running=4):
    for _ in range(3):
        frame.sem_map("Sum up {text}", "x").collect()
over.set()
[talker.join() for talker in talkers]
print("counts", counts["a"], counts["b"])
"""


def test_what_other_threads_print_is_whole_and_none_of_the_display_stays() -> None:
    """They print while it is begun, drawn and ended."""
    seen = in_terminal(LOUD, interrupt=False)
    assert "rows/s" in seen
    *shown, counts = screen(seen)
    pairs = [
        f"{name} {n}"
        for name, number in zip("ab", counts.split()[1:], strict=True)
        for n in range(int(number))
    ]
    assert sorted(shown) == sorted([*pairs, *["and more"] * len(pairs)])


def test_a_line_without_an_end_comes_out_whole() -> None:
    """It comes when the display is there; before, nobody knows where the cursor is."""
    shown = "if text > 'row 39': print('.', end='', flush=True)"
    code = PRINTS.replace("print(text, flush=True)", shown).replace("range(30)", "range(10, 60)")
    assert screen(in_terminal(code, interrupt=False)) == ["." * 20]


BATCHES = """
import contextlib, io, logging, os, subprocess, sys, threading
logging.basicConfig(format="%(message)s")
import polars as pl, semops
from semops.progress import display
from semops.testing import Reply, replay
frame = pl.DataFrame({"text": [f"row {i}" for i in range(30)]})
with replay(lambda *_: Reply("x", 0.1), max_running=2):
    batches = frame.sem_map("Sum up {text}", "x").collect_batches(chunk_size=1, maintain_order=True)
    for number, batch in enumerate(batches):
        text = f"row {number}"
        PRINT
"""
TEE = """
class Tee:  # no isatty
    def __init__(self, file): self.file = file
    def write(self, text): return self.file.write(text)
    def flush(self): self.file.flush()
tee = Tee(sys.stdout)
sys.stdout = tee
"""
EACH = [f"row {i}" for i in range(30)]
SOME = [f"row {i}" for i in range(0, 30, 5)]


@pytest.mark.parametrize(
    ("before", "print_", "left"),
    [
        ("", "logging.warning(text)", EACH),
        ("", "print(text, file=sys.__stdout__)", EACH),
        ("", "(print if number % 2 else logging.warning)(text)", EACH),
        (TEE, "print(text)", EACH),
        (
            "sys.stdout = io.StringIO()",
            "sys.stdout = sys.__stdout__ if number > 9 else sys.stdout; print(text)",
            EACH[10:],
        ),
        ("", "number % 5 or subprocess.run(['echo', text], stdout=sys.stdout)", SOME),
        ("", "print(text, end='\\n' if number % 3 else '', flush=True)", None),
        ("", "sys.stdout.write(f'\\r\\x1b[2K{text}'); sys.stdout.flush()", ["row 29"]),
        (
            "",
            "print('\\x1b[1A\\r\\x1b[2K' * 2 * (number > 0) + f'{text}\\nand more', flush=True)",
            ["row 29", "and more"],
        ),
        ("import tqdm; bar = tqdm.tqdm(total=30, ncols=60)", "bar.update()", "bar"),
        ("", "number % 5 or os.fork() or (print(text), sys.stdout.flush(), os._exit(0))", SOME),
    ],
)
def test_however_the_program_writes_to_the_terminal_all_of_it_stays_and_nothing_else(
    before: str, print_: str, left: list[str] | str | None
) -> None:
    code = BATCHES.replace("with replay", f"{before}\nwith replay", 1).replace("PRINT", print_)
    seen = in_terminal(code, interrupt=False)
    assert ("rows/s" in seen) is (left != "bar")
    if left is None:
        left = [
            f"{EACH[i]}{EACH[i + 1]}" if not i % 3 else EACH[i] for i in range(30) if i % 3 != 1
        ]
    if left == "bar":
        (line,) = screen(seen)
        assert "30/30" in line
    else:
        assert screen(seen) == left


def test_a_question_to_the_user_is_seen_before_the_answer() -> None:
    """Also where nothing is drawn any more once it waits: the prompt has no end of line."""
    code = BATCHES.replace("PRINT", "number == 20 and print('got', input('go on? '))")
    seen = in_terminal(code, interrupt=False, answers={b"go on? ": b"yes\n"})
    assert "rows/s" in seen[: seen.index("go on? ")]
    assert screen(seen) == ["go on? yes", "got yes"]


def test_streams_are_what_they_were_while_it_is_shown_and_after() -> None:
    ask = "(sys.stdout.encoding, sys.stdout.errors, sys.stdout.writable(), sys.stdout.fileno())"
    code = BATCHES.replace("with replay", f"first = (sys.stdout, {ask})\nwith replay", 1).replace(
        "PRINT", f"assert first == (sys.stdout, {ask})"
    )
    seen = in_terminal(f"{code}\nprint(vars(sys.stdout), vars(sys.stderr))", interrupt=False)
    assert "rows/s" in seen
    assert screen(seen) == ["{'mode': 'w'} {'mode': 'w'}"]


def test_redirected_output_holds_none_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", QUERY], capture_output=True, text=True, check=True)
    assert done.stdout == "rows 300\n"
    assert done.stderr == ""


def test_a_notebook_shows_it(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    kernels = tmp_path / "kernels" / "here"
    kernels.mkdir(parents=True)
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (kernels / "kernel.json").write_text(f'{{"argv": {command}, "display_name": "here"}}')
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(textwrap.dedent(QUERY))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(tmp_path))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        nbclient.NotebookClient(notebook, kernel_name="here", timeout=120).execute()
    shown = [
        output["data"]["text/plain"]
        for output in notebook.cells[0].outputs
        if output["output_type"] == "display_data"
    ]
    assert len(shown) == 1  # one display, brought up to date
    assert "sem_filter   300 / 300" in shown[0]
    assert "300 of 300 rows" in shown[0]


def test_redirected_output_wins_over_the_setting() -> None:
    assert not wanted(False)
    assert not wanted(True)  # the tests' output is redirected


def test_of_an_unknown_total_only_what_is_done_is_shown() -> None:
    snapshot = Snapshot((OperatorProgress("sem_filter", 7),), done=5)
    assert lines(snapshot, 1.0) == [("sem_filter", "7", "7.0 rows/s", "")]
    assert summary(snapshot, 3_700.0) == "5 rows  1:01:40"


def test_a_drawing_that_fails_ends_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        looked = 0

        def snapshot(self) -> Snapshot:
            self.looked += 1
            raise RuntimeError

    monkeypatch.setattr("semops.progress.DELAY_S", 0.0)
    display, query = Display(), Broken()
    display.watch(query)
    display.touch(query)
    assert query.looked == 1
    display.forget(query)
    display.forget(query)
    assert not display._entries
    assert display._terminal is None
