"""Kill a command before each of its operations on files, and look at what is left.

Each attempt is a process of its own that ends itself by SIGKILL, so nothing is cleaned up. A step
is counted by `faults`: what Python does to files, and the statements of SQLite. After each kill
everything must be as it was before or as it is afterwards, and the same command again must do the
rest. Nothing here starts a thread, so that processes can be forked.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers import faults
from helpers.faults import Fault, watched

# Things by name: each is a whole of its own.
Things = Mapping[str, Any]
# Seconds until a command that hangs is ended.
LONGEST = 600
_FAILED = 99


def as_before_or_after(old: Things, new: Things, found: Things) -> list[str]:
    """The names of the things that are neither."""
    names = {*old, *new, *found}
    return sorted(name for name in names if found.get(name) not in (old.get(name), new.get(name)))


@dataclass(frozen=True)
class Command:
    """A command to be killed.

    prepare: makes what is there before, in an empty folder. act: runs it there, in what is the
    current folder, and gives its exit code. read: what a user finds there, as JSON has it. wrong:
    what of it is neither old nor new, or lost; gets what was there before, what the whole command
    makes, and what there is. once: after it
    has done its work, it refuses to be run again, or does something else.
    """

    name: str
    prepare: Callable[[Path], None]
    act: Callable[[Path], int]
    read: Callable[[Path], Things]
    wrong: Callable[[Things, Things, Things], Sequence[str]] = as_before_or_after
    once: bool = False


@dataclass
class Found:
    """What came of the kills of a command. steps: there are. tried: of them. ended: in so many
    attempts the command ended before its step, as threads do things in another order. losses:
    sentences."""

    name: str
    steps: int = 0
    tried: int = 0
    ended: int = 0
    losses: list[str] = field(default_factory=list)


def kill_everywhere(command: Command, work: Path, *, points: int | None = None) -> Found:
    """Kill a command before each step, or before some of them, spread evenly. work: an empty
    folder."""
    found = Found(command.name)
    here = work / "here"  # everything happens there: runs know where their images are
    here.mkdir(parents=True)
    _expect(0, _forked(lambda: command.prepare(here), work), "preparing", work)
    shutil.copytree(here, work / "before", symlinks=True)
    old = _read(command, work)
    steps = _steps(command, work)
    found.steps = len(steps)
    shutil.copytree(here, work / "after", symlinks=True)
    new = _read(command, work)
    if old == new:
        raise AssertionError(f"{command.name} changes nothing that is looked at.")
    for step in _some(len(steps), points):
        found.tried += 1
        for loss in _attempt(command, work, step, old, new, found):
            found.losses.append(f"{command.name}, before step {step} ({steps[step]}): {loss}")
    return found


def _attempt(
    command: Command, work: Path, step: int, old: Things, new: Things, found: Found
) -> Iterator[str]:
    """What is wrong after a kill at a step, and after the same command again."""
    here = work / "here"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(work / "before", here, symlinks=True)

    def act() -> int:
        with watched(Fault(here, faults.kill, step, sql=True)):
            return command.act(here)

    code = _forked(act, work)
    if code == 0:
        found.ended += 1
    elif code != -signal.SIGKILL:
        yield f"it ended with {code}: {_last(work)}"
    there = _read(command, work)
    yield from (f"{name} is neither old nor new" for name in command.wrong(old, new, there))
    again = _forked(lambda: command.act(here), work)
    if command.once and there == new:
        return
    if again:
        yield f"the same command again ended with {again}: {_last(work)}"
    last = _read(command, work)
    yield from (f"{name} is missing after the same command again" for name in _differ(new, last))
    left = _names(here) - _names(work / "after") - _names(work / "before")
    yield from (f"{name} is left" for name in sorted(left))


def _steps(command: Command, work: Path) -> list[str]:
    """The steps of the whole command."""
    here, listed = work / "here", work / "steps"

    def act() -> int:
        with watched(Fault(here, sql=True)) as counted:
            code = command.act(here)
        short = [step.replace(str(here), "").replace("\n", " ")[:100] for step in counted.steps]
        told = {"steps": short, "modules": list(sys.modules)}
        listed.write_text(json.dumps(told), "utf-8")
        return code

    _expect(0, _forked(act, work), command.name, work)
    told = json.loads(listed.read_text("utf-8"))
    for name in told["modules"]:  # once here, instead of again in each process
        with suppress(Exception):
            importlib.import_module(name)
    steps: list[str] = told["steps"]
    return steps


def _read(command: Command, work: Path) -> Things:
    """What a user finds. Reading also mends and clears, so what is there is put back afterwards."""
    here, kept, told = work / "here", work / "kept", work / "found"
    shutil.copytree(here, kept, symlinks=True)

    def read() -> None:
        told.write_text(json.dumps(dict(command.read(here))), "utf-8")

    _expect(0, _forked(read, work), f"reading what {command.name} left", work)
    shutil.rmtree(here)
    kept.rename(here)
    things: Things = json.loads(told.read_text("utf-8"))
    return things


def _forked(act: Callable[[], int | None], work: Path) -> int:
    """The exit code of a process that does this; negative for a signal. What it says is in a
    file."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = _FAILED
    try:
        signal.alarm(LONGEST)
        os.chdir(work / "here")
        said = os.open(work / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for number in (1, 2):
            os.dup2(said, number)
        code = act() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _expect(code: int, got: int, what: str, work: Path) -> None:
    if got != code:
        raise AssertionError(f"{what} ended with {got}: {(work / 'said').read_text()[-2000:]}")


def _last(work: Path) -> str:
    lines = (work / "said").read_text("utf-8", "replace").strip().splitlines()
    return " / ".join(lines[-2:])[-300:]


def _some(n: int, points: int | None) -> list[int]:
    """The first and the last one, and others between them."""
    if points is None or points >= n:
        return list(range(n))
    return sorted({round(place * (n - 1) / max(1, points - 1)) for place in range(points)})


def _differ(new: Things, last: Things) -> list[str]:
    return sorted(name for name in {*new, *last} if new.get(name) != last.get(name))


def _names(place: Path) -> set[str]:
    """The names of all files and folders."""
    return {path.relative_to(place).as_posix() for path in place.rglob("*")}
