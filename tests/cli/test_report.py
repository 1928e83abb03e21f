"""The command `flawsort report`: the page elsewhere, and heat maps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from flawsort import OptionError, View
from flawsort.cli.report import render_again
from flawsort.images.view import thumbnail
from helpers import faults
from helpers.command_line import SMALL
from helpers.faults import Fault, watched
from helpers.plates import Cli, contents


def test_report_elsewhere_and_heat_maps(here: Path, cli: Cli) -> None:
    before = contents(here / "run")
    answer = cli("report", "run", "-o", "page.html", "--heatmaps", "maps", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out) == {"report": "page.html", "heat maps": "maps"}
    assert contents(here / "run") == before
    assert (here / "page.html").read_bytes() == before["report.html"]
    maps = sorted((here / "maps").iterdir())
    assert len(maps) == 14
    assert maps[0].name == "dent00.png.png"
    with Image.open(maps[0]) as picture:
        assert (picture.format, picture.mode) == ("PNG", "RGB")


def test_heat_maps_of_images_that_are_gone(here: Path, cli: Cli) -> None:
    (here / "parts").unlink()
    shutil.copytree(here / "good", here / "parts")
    cli("cluster", "parts", "--glob", "*0[0-2]*", "-o", "new", "-k", "2", *SMALL)
    shutil.rmtree(here / "parts")
    assert cli("report", "new", "--heatmaps", "maps").code == 0
    assert len(list((here / "maps").iterdir())) == 3


def test_padding_is_cold(here: Path, cli: Cli) -> None:
    (here / "wide").mkdir()
    for path in sorted((here / "parts").iterdir())[5:9]:
        with Image.open(path) as picture:
            picture.crop((0, 16, 64, 48)).save(here / "wide" / path.name)
    cli("cluster", "wide", "-n", "good", "-o", "new", "-k", "2", *SMALL, "--fit", "pad")
    cli("report", "new", "--heatmaps", "maps")
    assert len(list((here / "maps").iterdir())) == 4
    for path in (here / "maps").iterdir():
        with Image.open(path) as picture:
            drawn = picture.crop((0, 0, 768, 40))
        plain = thumbnail(here / "wide" / path.stem, View(fit="pad"), (64, 64), 768)
        assert drawn.tobytes() == plain.crop((0, 0, 768, 40)).tobytes()


def test_each_heat_map_is_whole_or_not_there(tmp_path: Path, saved: Path) -> None:
    render_again(saved, tmp_path / "page.html", tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    full = Fault(tmp_path / "maps", faults.error("ENOSPC"), 10)
    told = "Cannot write the heat map '.*png': No space left on device"
    with watched(full), pytest.raises(OptionError, match=told):
        render_again(saved, tmp_path / "page.html", tmp_path / "maps")
    found = contents(tmp_path / "maps")
    assert 0 < len(found) < len(whole)
    assert found.items() <= whole.items()
