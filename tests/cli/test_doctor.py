"""The command `flawsort doctor`: what it says, and that it sees what is wrong."""

from __future__ import annotations

import json
import platform
import re
import tomllib
from pathlib import Path

import numpy
import pytest

import flawsort
from flawsort.backbones import catalogue
from flawsort.cli import doctor
from helpers.faults import full_disk
from helpers.plates import ROOT, Cli


def test_a_healthy_machine(cli: Cli) -> None:
    answer = cli("doctor", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert found["problems"] == []
    assert (found["flawsort"], found["python"]) == (
        flawsort.__version__,
        platform.python_version(),
    )
    assert found["backbones"] == dict.fromkeys(catalogue(), "verified")
    assert found["packages"]["numpy"] == numpy.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {re.split(r"[\[>]", package)[0] for package in project["dependencies"]}
    assert needed <= found["packages"].keys()
    assert not {"pytest", "ruff"} & found["packages"].keys()
    assert found["cache"]["free"] > 0
    text = cli("doctor").out
    assert "Nothing is wrong." in text
    assert "backbone dinov2-small: verified" in text


def test_a_damaged_backbone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {name: {**entry, "sha256": "0" * 64} for name, entry in catalogue().items()}
    monkeypatch.setattr("flawsort.backbones.catalogue", lambda: entries)
    monkeypatch.setattr("flawsort.backbones.base.catalogue", lambda: entries, raising=False)
    monkeypatch.setattr(
        "flawsort.cli.backbones.list_backbones",
        lambda: [{"name": "net", "sha256": "0", "state": "its SHA-256 is wrong"}],
    )
    answer = cli("doctor")
    assert answer.code == doctor.UNWELL
    assert "Problem: net: its SHA-256 is wrong" in answer.out
    assert "Nothing is wrong" not in answer.out


def test_a_cache_that_cannot_be_written(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flawsort.core.storage.try_writing", full_disk)
    answer = cli("doctor")
    assert answer.code == doctor.UNWELL
    assert "Problem: The cache cannot be written: No space left on device." in answer.out


def test_nobody_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "somebody"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "somebody")
    monkeypatch.setenv("FLAWSORT_CACHE", str(tmp_path / "somebody" / "kept"))
    text = cli("doctor").out
    assert "cache: ~/kept," in text
    assert "somebody" not in text
