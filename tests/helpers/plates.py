"""Small images with planted flaws of two kinds, and ways to run flawsort on them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort import Run
from flawsort.backbones import DEFAULT_BACKBONE
from flawsort.health.record import Health

ROOT = Path(__file__).parents[2]
SIDE = 64
KINDS = ("dent",) * 7 + ("streak",) * 7
NORMALS = ("good",) * 10
MAIN = "from flawsort.cli import main; main()"
# Seconds until a test gives up on something that comes, however busy the machine is, or never.
LONG = 600.0
# The command line, standing still for ever once the stage named first is under way.
STALLING_MAIN = (
    """
import sys, time
from flawsort.cli import console

stage_to_stall = sys.argv.pop(1)

def stall(self, stage, done, total):
    if stage == stage_to_stall and done:
        print("stalled", flush=True)
        for _ in range(6000):  # a signal on the way into one long sleep would only end it after it
            time.sleep(0.1)

console._PlainLines.__call__ = stall
"""
    + MAIN
)


@dataclass(frozen=True)
class Answer:
    """What a command said: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str


Cli = Callable[..., Answer]


def plate(kind: str, number: int) -> NDArray[np.uint8]:
    """(64, 64, 3): grey metal with noise, and a dark square, a red line, a green ring, or nothing
    on it."""
    rng = np.random.default_rng([number, ("dent", "streak", "good", "ring").index(kind)])
    picture = rng.normal(120, 8, (SIDE, SIDE, 3))
    row, column = rng.integers(14, 44, 2)
    if kind == "dent":
        picture[row : row + 10, column : column + 10] = 10
    if kind == "streak":
        picture[:, column : column + 3] = (250, 60, 40)
    if kind == "ring":
        down, right = np.mgrid[:SIDE, :SIDE]
        far = np.hypot(down - row - 3, right - column - 3)
        picture[(far > 6) & (far < 10)] = (40, 200, 60)
    return np.clip(picture, 0, 255).astype(np.uint8)


def plate_arrays(kinds: Sequence[str] = KINDS) -> list[NDArray[np.uint8]]:
    return [plate(kind, number) for number, kind in enumerate(kinds)]


def write_plates(folder: Path, kinds: Sequence[str]) -> None:
    """Files named after the kind and a number, like dent03.png."""
    folder.mkdir(parents=True)
    for number, kind in enumerate(kinds):
        Image.fromarray(plate(kind, number)).save(folder / f"{kind}{number:02d}.png")


def settings(**others: Any) -> dict[str, Any]:
    """Parameters that keep a fit small, with one small network, and others."""
    return {"backbone": DEFAULT_BACKBONE, "image_size": SIDE, "cache": None, **others}


def groups(labels: Sequence[int] | NDArray[Any], names: Sequence[str]) -> set[frozenset[str]]:
    """A partition of the names, whatever the groups' numbers."""
    members: dict[int, set[str]] = {}
    for label, name in zip(labels, names, strict=True):
        members.setdefault(int(label), set()).add(name)
    return {frozenset(group) for group in members.values()}


def start(code: str, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Python code in a process of its own, with these tests' helpers to import."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path]),
            "PYTHONUTF8": "1",
            **environment,
        },
    )


def run_code(code: str, *arguments: str | Path, **environment: str) -> Answer:
    process = start(code, *arguments, **environment)
    out, err = process.communicate(timeout=LONG)
    return Answer(process.returncode, out, err)


def fingerprint(run: Run) -> dict[str, str]:
    """Every field of a run as text, but where it is: arrays with type, shape and values."""
    prints = {}
    for field in fields(run):
        value = getattr(run, field.name)
        if field.name == "folder":
            continue
        if isinstance(value, np.ndarray):
            digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            prints[field.name] = f"{value.dtype} {value.shape} {digest}"
        elif isinstance(value, tuple) and field.name != "lists":
            prints[field.name] = f"{len(value)} {hashlib.sha256(b'|'.join(value)).hexdigest()}"
        elif field.name == "lists" and value is not None:
            prints[field.name] = json.dumps([one.tolist() for one in value])
        elif field.name in ("views", "gallery") and value is not None:
            arrays = {name: [str(one.dtype), one.tolist()] for name, one in value.items()}
            prints[field.name] = json.dumps(arrays)
        elif isinstance(value, Health):
            prints[field.name] = str(value.to_dict())
        elif isinstance(value, bytes):
            prints[field.name] = hashlib.sha256(value).hexdigest()
        else:
            prints[field.name] = json.dumps(value, sort_keys=True)
    return prints


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too, by its path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
