"""The command `flawsort report`: the page elsewhere, and heat maps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from flawsort import OptionError, View
from flawsort.cli.report import Choices, render_again
from flawsort.images.view import thumbnail
from flawsort.labels.session import Session
from flawsort.runs.folder import open_run
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


@pytest.mark.parametrize("option", ["by", "lots"])
def test_a_table_of_lots_that_is_missing(option: str, here: Path, cli: Cli) -> None:
    answer = cli("report", "run", f"--{option}", "none.csv")
    assert answer.code == 2
    words = " ".join(answer.err.split())
    assert f"--{option} must be day, week, month, folder or a CSV" in words
    assert ("--lots" if option == "by" else "--by") not in words


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
    render_again(saved, Choices(tmp_path / "page.html", heatmaps=tmp_path / "whole"))
    whole = contents(tmp_path / "whole")
    full = Fault(tmp_path / "maps", faults.error("ENOSPC"), 10)
    told = "Cannot write the heat map '.*png': No space left on device"
    with watched(full), pytest.raises(OptionError, match=told):
        render_again(saved, Choices(tmp_path / "page.html", heatmaps=tmp_path / "maps"))
    found = contents(tmp_path / "maps")
    assert 0 < len(found) < len(whole)
    assert found.items() <= whole.items()


def name_a_group(run: Path) -> None:
    with Session(run) as session:
        session.edit("name", {"group": 0, "name": "bent rim"}, session.version)


def test_what_people_left(here: Path, cli: Cli) -> None:
    name_a_group(here / "run")
    (here / "lots.csv").write_text("name,lot\ndent00.png,L1\ndent01.png,L2\n")
    answer = cli("report", "run", "--by", "lots.csv", "--lots", "lots.csv")
    assert (answer.code, answer.err) == (0, "")
    page = (here / "run" / "report.html").read_text()
    assert page.count("bent rim") > 2
    assert "Pareto of lot L2" in page
    open_run(here / "run")  # the manifest knows the new report
    assert cli("evaluate", "run", "--truth", "truth.csv").code == 0
    again = (here / "run" / "report.html").read_text()
    assert "bent rim" in again
    assert "Against the truth" in again


def test_a_pdf_is_called_so(here: Path, cli: Cli) -> None:
    answer = cli("report", "run", "--pdf", "week.txt")
    assert answer.code == 2
    assert answer.err.endswith(
        "--pdf must be a .pdf file. Got 'week.txt'. Name it 'week.txt.pdf'.\n"
    )
    assert not (here / "week.txt").exists()


def test_a_pdf_is_printed_whole_or_not_at_all(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_a_group(here / "run")
    fake = here / "fake"
    fake.write_text(
        '#!/bin/sh\nfor page; do case "$page" in --print-to-pdf=*) to="${page#*=}";; esac; done\n'
        'cp "${page#file://}" "$to"\n'
    )
    fake.chmod(0o755)
    before = contents(here / "run")
    answer = cli("report", "run", "--pdf", "out.pdf", "--browser", "./fake", "-o", "page.html")
    assert (answer.code, answer.err) == (0, "")
    assert "PDF: out.pdf" in answer.out
    assert "bent rim" in (here / "out.pdf").read_text()
    assert contents(here / "run") == before
    monkeypatch.setenv("FLAWSORT_CHROMIUM", "no-such-browser")
    answer = cli("report", "run", "--pdf", "other.pdf")
    assert answer.code == 2
    assert "Looked for 'no-such-browser', which FLAWSORT_CHROMIUM names, and found" in answer.err
    assert not (here / "other.pdf").exists()
    assert contents(here / "run") == before
    answer = cli("report", "run", "--pdf", "nowhere/out.pdf", "--browser", "./fake")
    assert answer.code == 2
    assert "Cannot write 'nowhere/out.pdf'" in answer.err


def test_periods_that_are_none(here: Path, cli: Cli) -> None:
    answer = cli("report", "run", "--by", "fortnight")
    assert answer.code == 2
    assert "must be day, week, month, folder or a CSV file that exists" in answer.err
