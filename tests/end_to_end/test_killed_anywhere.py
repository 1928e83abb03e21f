"""Commands that are killed lose nothing: some points of each.

`tools/kill_everywhere.py` tries all points.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from helpers.commands import all_commands
from helpers.killing import LONGEST
from helpers.plates import ROOT, run_code, start

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(signal, "SIGKILL"), reason="processes cannot be forked"
)
# Exports are written in one way; two folders and a file stand for them.
EXPORTS = (
    "export csv --overwrite",
    "export yolo",
    "export book --overwrite",
    "export of the review",
)
COMMANDS = [name for name in all_commands() if not name.startswith("export ") or name in EXPORTS]
KILL = """
import json, sys
from pathlib import Path
from helpers.commands import all_commands
from helpers.killing import kill_everywhere

command, points = all_commands()[sys.argv[1]], int(sys.argv[3])
found = kill_everywhere(command, Path(sys.argv[2]), points=points)
print(json.dumps([found.tried, found.losses]))
"""
FEW_THREADS = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_killed(name: str, tmp_path: Path) -> None:
    points = 20 if name == "watch" else 3  # it runs all day, and is ended in any way
    with start(KILL, name, tmp_path.resolve(), str(points), **FEW_THREADS) as process:
        out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == [points, []]


CARELESS = """
import json, sys
from pathlib import Path
from helpers.killing import Command, kill_everywhere

def prepare(here):
    for name in ("a", "b"):
        (here / name).write_text("old")

def write(here):
    for name in ("a", "b"):
        (here / name).write_text("new")
    return 0

def leave(here):
    (here / f"left-{len(list(here.iterdir()))}").touch()
    return write(here)

def append(here):
    with (here / "a").open("a") as file:
        file.write("new")
    (here / "b").write_text("done")
    return 0

def both(here):
    return {"both": [(here / name).read_text() for name in ("a", "b")]}

def each(here):
    return {name: (here / name).read_text() for name in ("a", "b")}

acts = {"write": (write, both), "leave": (leave, each), "append": (append, each)}
act, read = acts[sys.argv[1]]
found = kill_everywhere(Command("careless", prepare, act, read), Path(sys.argv[2]))
print(json.dumps([found.steps, found.losses]))
"""


@pytest.mark.parametrize(
    ("way", "loss"),
    [
        ("write", "both is neither old nor new"),
        ("leave", "left-3 is left"),
        ("append", "a is missing after the same command again"),
    ],
)
def test_losses_are_found(way: str, loss: str, tmp_path: Path) -> None:
    answer = run_code(CARELESS, way, tmp_path.resolve())
    assert answer.code == 0, answer.err
    steps, losses = json.loads(answer.out.splitlines()[-1])
    assert steps >= 2
    assert any(loss in one for one in losses), losses


def test_the_tool_tries_all_of_them() -> None:
    assert {name for name in all_commands() if name.startswith("export")} >= {
        f"export {name}" for name in ("csv", "coco", "yolo", "book-pdf")
    }
    assert (ROOT / "tools" / "kill_everywhere.py").is_file()
