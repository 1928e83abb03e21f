"""A working folder for commands, and a terminal of a given width."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.plates import KINDS, write_plates


@pytest.fixture
def here(plates: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with parts/, good/, a run/ and things that are no use."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").symlink_to(plates / "parts")
    (tmp_path / "good").symlink_to(plates / "good")
    shutil.copytree(saved, tmp_path / "run")
    (tmp_path / "empty").mkdir()
    write_plates(tmp_path / "one", ["dent"])
    (tmp_path / "text.onnx").write_text("not a network")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "manifest.json").write_text('{"name": "a web application"}')
    (tmp_path / "labels.csv").write_text("path,label\nelsewhere.png,dent\n")
    (tmp_path / "truth.csv").write_text(
        "path,label\n" + "".join(f"{kind}{i:02d}.png,{kind}\n" for i, kind in enumerate(KINDS))
    )
    return tmp_path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes standard output a terminal with a given number of columns."""

    def make(columns: int) -> None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))

    return make
