"""Files and folders whose names are not UTF-8: sorted, shown, exported, taught and found again."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from flawsort import open_run
from flawsort.core.text import printable
from flawsort.review.app import make_app
from helpers.command_line import SMALL
from helpers.plates import KINDS, Cli
from helpers.review_client import RunClient, closing_libraries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names must be text there")
ODD = os.fsdecode(b"caf\xe9")


@pytest.fixture
def here(plates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with parts/, all in folders and with names that are no text."""
    folder = tmp_path / ODD
    (folder / "parts" / ODD).mkdir(parents=True)
    for number, path in enumerate(sorted((plates / "parts").iterdir())):
        name = os.fsdecode(b"%s-%02d\xff.png" % (KINDS[number].encode(), number))
        shutil.copy(path, folder / "parts" / ODD / name)
    monkeypatch.chdir(folder)
    return folder


def test_everything_that_is_done_with_a_run(here: Path, plates: Path, cli: Cli) -> None:
    answer = cli("cluster", "parts", "-n", plates / "good", "-k", "2", "-o", ODD, *SMALL)
    assert (answer.code, answer.err) == (0, "")
    run = open_run(ODD)
    assert run.names[0] == "caf\\udce9/dent-00\\udcff.png"
    files = sorted((here / "parts" / ODD).iterdir())
    # The bytes are kept: each row leads to its file.
    assert [run.source(row) for row in range(len(run))] == files
    # Shown: not a thumbnail in place of a file that is not found.
    assert cli("report", ODD, "--heatmaps", "maps").code == 0
    assert len(list(Path("maps").rglob("*.png"))) == len(files)
    # Exported, with images and for other tools.
    told = json.loads(cli("export", ODD, "-f", "folders", "-o", "sorted", "--json").out)
    assert told["n_images"] == 14
    copies = {path.read_bytes() for path in Path("sorted").rglob("*.png")}
    assert copies == {path.read_bytes() for path in files}
    refused = cli("export", ODD, "-f", "coco", "-o", here / "parts", "--overwrite")
    assert refused.code == 2
    assert len(list((here / "parts" / ODD).iterdir())) == 14
    # A table that flawsort wrote names them.
    rows = list(csv.DictReader(Path(ODD, "images.csv").read_text().splitlines()))
    truth = "".join(f"{row['name']},{row['name'].split('/')[1][:4]}\n" for row in rows)
    Path("truth.csv").write_text(f"name,label\n{truth}")
    told = json.loads(cli("evaluate", ODD, "--truth", "truth.csv", "--json").out)
    assert told["n_evaluated"] == 14
    # New ones, kept for the review.
    answer = cli("assign", "parts", "--run", ODD, "-q", "--keep", "monday", "--by", "folder")
    assert (answer.code, answer.err) == (0, "")


def test_the_review_shows_the_files(here: Path, cli: Cli) -> None:
    assert cli("cluster", "parts", "-k", "2", "-o", ODD, *SMALL).code == 0
    run = open_run(ODD)
    with closing_libraries():
        page = RunClient(make_app([Path(ODD)]))
        page.run = quote(printable(ODD))
        assert [name for name in page.api("run").data["names"]] == run.names
        for row in (0, 13):
            assert page.get(f"/r/{page.run}/image/{row}.jpg").status == 200
            assert page.get(f"/r/{page.run}/heat/{row}.png").status == 200
