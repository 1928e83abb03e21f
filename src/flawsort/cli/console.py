"""Output to the terminal: progress, tables, and errors in one line."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # types only: this would import NumPy, which takes 0.1 s
    from rich.console import Console, RenderableType

    from flawsort.core.records import Progress

# Seconds between two lines of progress, without a terminal.
PLAIN_INTERVAL = 5.0
# Spaces between the columns of a table.
GAP = 2
# A column of sentences is wrapped to this width before it is left out.
NARROWEST_TEXT = 16
# File names may contain line breaks and escape codes, which must not reach a terminal.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


def print_json(content: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def stdout() -> Console:
    """Standard output. Wide where it is not a terminal, so that no cell is cut."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table. Numbers are aligned to the right, texts to the left.

    Numbers, short texts and single words are never broken over lines, since people may copy them.
    A terminal that is too narrow leaves out the last columns, and a line below names them.
    """
    from rich.table import Table
    from rich.text import Text

    heads = [_cell(name) for name in columns]
    cells = [[_cell(value) for value in row] for row in rows]
    numbers = [
        all(isinstance(row[place], int | float) for row in rows) for place in range(len(columns))
    ]
    output = stdout()
    room = output.width if sys.stdout.isatty() else None
    widths = _widths(heads, cells, numbers, room)
    shown = len(widths)
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for head, number, width in zip(heads, numbers, widths, strict=False):
        justify = "right" if number else "left"
        table.add_column(Text(head), justify=justify, overflow="fold", width=width)  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*(Text(cell) for cell in row[:shown]))
    if room is None:
        output.width = max(output.width, sum(widths) + GAP * (shown - 1))
    output.print(table)
    if shown < len(heads):
        say(f"(terminal too narrow for {', '.join(heads[shown:])}; --json has all columns)")


def say(text: str = "") -> None:
    """Print a line on standard output."""
    sys.stdout.write(text.translate(_CONTROLS) + "\n")


def typed(words: Iterable[object]) -> str:
    """Words as one would type them in a command line of this system."""
    texts = [str(word) for word in words]
    return subprocess.list2cmdline(texts) if sys.platform == "win32" else shlex.join(texts)


def next_step(*words: object) -> None:
    """Print the command that people usually need next."""
    say(f"Next: {typed(words)}")


def notice(quiet: bool) -> Callable[[str], None] | None:
    """A function that prints a line on standard error, None if quiet."""

    def write(text: str) -> None:
        sys.stderr.write(text.translate(_CONTROLS) + "\n")
        sys.stderr.flush()

    return None if quiet else write


def fail(message: str) -> None:
    """Print an error in one line on standard error."""
    line = " ".join(message.split()).translate(_CONTROLS)
    sys.stderr.write(f"flawsort: {line}\n")


def replace_closed_streams() -> None:
    """Write to nowhere where a shell has closed standard output or error (`>&-`). Without it, the
    next file that is opened would take the stream's number, and what libraries print."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # until the end
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def never_fail_on_odd_characters() -> None:
    """Escape characters that the encoding of a stream cannot write: names may contain any."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _cell(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text.translate(_CONTROLS)


def _widths(
    columns: Sequence[str], cells: list[list[str]], numbers: list[bool], room: int | None
) -> list[int]:
    """The widths of as many columns as fit. room: in characters, None for no limit."""
    from rich.cells import cell_len

    least, most = [], []
    for place, name in enumerate(columns):
        texts = [row[place] for row in cells]
        whole = narrow = max(map(cell_len, texts), default=0)
        sentences = place > 0 and any(" " in text for text in texts)
        if sentences:
            narrow = min(whole, NARROWEST_TEXT)
        if room is not None and not numbers[place]:  # a long path must leave room for the others
            narrow = min(narrow, room // 2)
        least.append(max([narrow, 1, *map(cell_len, name.split())]))
        most.append(max(whole, cell_len(name), 1))
    if room is None:
        return most
    shown = len(least)
    while shown > 1 and sum(least[:shown]) + GAP * (shown - 1) > room:
        shown -= 1
    return _filled(least[:shown], most[:shown], room - GAP * (shown - 1))


def _filled(least: list[int], most: list[int], room: int) -> list[int]:
    """Widths between `least` and `most` that fill the room; the narrowest column grows first."""
    widths = list(least)
    for _ in range(room - sum(widths)):
        growing = [place for place, width in enumerate(widths) if width < most[place]]
        if not growing:
            break
        widths[min(growing, key=widths.__getitem__)] += 1
    return widths


@contextmanager
def showing_progress(quiet: bool) -> Iterator[Progress | None]:
    """A progress callback: a live bar on a terminal, plain lines elsewhere, None if quiet.

    A stage's name may end with a place in brackets: "table main (bottle)" and "table main (cable)"
    are the same stage.
    """
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _live_bars() as bars:
            yield bars
    else:
        yield _PlainLines()


class _PlainLines:
    """Progress as lines, for logs: when a stage begins and ends, and every few seconds between."""

    def __init__(self) -> None:
        self._stage = ""
        self._start = self._last = 0.0
        self._first = self._shown = 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        name = _name_and_place(stage)[0]
        if name != self._stage:
            self._stage, self._start, self._first = name, now, done
        elif done == self._shown or (done < total and now - self._last < PLAIN_INTERVAL):
            return
        self._last, self._shown = now, done
        sys.stderr.write(
            f"{stage.translate(_CONTROLS)}: {done:,} of {total:,}{self._pace(now, done, total)}\n"
        )
        sys.stderr.flush()

    def _pace(self, now: float, done: int, total: int) -> str:
        passed = now - self._start
        if done <= self._first or passed < 0.1:
            return ""
        rate = (done - self._first) / passed
        left = f", {_clock((total - done) / rate)} left" if done < total else f", {passed:.1f} s"
        return f", {rate:,.1f} a second{left}"


@contextmanager
def _live_bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    place = ""

    class BarsAndPlace(Bars):
        # On a separate line: beside the bars it would leave no room for the numbers.
        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            if place:
                yield Text(place, no_wrap=True, overflow="ellipsis")

    bars = BarsAndPlace(
        TextColumn("{task.description:<18}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    tasks: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        nonlocal place
        name, where = _name_and_place(stage)
        if where:  # a stage without a place is nested in one that has a place
            place = where if done < total else ""
        if name not in tasks:
            # Items that are done at the start came from the cache and do not count for the rate.
            tasks[name] = bars.add_task(name, total=total, completed=done, rate="")
            return
        task = bars.tasks[bars.task_ids.index(tasks[name])]
        speed = task.finished_speed or task.speed
        rate = f"{speed:,.1f}/s" if speed else ""
        bars.update(tasks[name], completed=done, total=total, rate=rate)

    with bars:
        yield show


def _name_and_place(stage: str) -> tuple[str, str]:
    """Split "table main (bottle, wa)" into "table main" and "bottle, wa"."""
    name, _, place = stage.partition(" (")
    return name, place.removesuffix(")").translate(_CONTROLS)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
        if minutes >= 60
        else f"{minutes}:{rest:02d}"
    )
