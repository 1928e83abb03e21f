"""flawsort watch with folders and journals that come from anybody."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from flawsort.clusters.kinds import Regions
from flawsort.daily import sorter
from flawsort.labels.newcomers import Newcomers
from helpers.journals import forge_row
from helpers.plates import Answer, Cli, plate, write_plates

ONCE = ("--run", "run", "--once", "--settle", "0")


def test_a_forged_one_writes_nowhere(here: Path, cli: Cli) -> None:
    theirs = here / "theirs"
    for name, file in (("../../theirs", "about.json"), ("day", str(theirs))):
        (here / "run" / "watch.sqlite").unlink(missing_ok=True)
        forge_row(here / "run", "keeps", (name, 1, file, b'{"n_images": 1}'))
        answer = cli("watch", "one", "--run", "run", "--once", "--settle", "0")
        assert answer.code == 2
        assert "That is no batch of the run." in answer.err
        assert not theirs.exists()
        assert not (here / "run" / "assigned").exists()


def test_a_forged_one_adds_to_no_file_that_is_not_named(here: Path, cli: Cli) -> None:
    (here / "file").write_text("mine")
    forge_row(here / "run", "appends", (str(here / "file").encode(), 4, b"theirs"))
    answer = cli("watch", "one", "--run", "run", "--once", "--settle", "0", "-o", "new.csv")
    assert answer.code == 2
    assert "Name this file with -o once more" in answer.err
    assert (here / "file").read_text() == "mine"


def test_files_of_every_kind_and_name(here: Path, cli: Cli) -> None:
    """One file stops nothing, whatever it is called; each is in the table and among the events."""
    names = [b"not UTF-8 \xff.png", b'new\nline,".png', b"=1+1.png", b"\x1b[31m.png"]
    folder = os.fsencode(here / "incoming")
    os.mkdir(folder)
    for number, name in enumerate(names):
        with open(folder + b"/" + name, "wb") as file:
            Image.fromarray(plate("dent", number)).save(file, "PNG")
        with open(folder + b"/no image " + name, "wb") as file:
            file.write(b"no image")
    os.mkfifo(folder + b"/pipe.png")
    os.symlink("/dev/zero", folder + b"/zeros.png")
    os.symlink("self.png", folder + b"/self.png")
    os.symlink(folder, folder + b"/again")
    outputs = ("-o", "table.csv", "-o", "all.jsonl")
    told = cli("watch", "incoming", *ONCE, *outputs, "--on", "set aside", "--exec", "cat")
    assert told.code == 0, told.err
    assert "4 images sorted" in told.out
    with (here / "table.csv").open(newline="", encoding="utf-8") as file:
        sorted_names = {row["name"] for row in csv.DictReader(file)}
    # What a spreadsheet might run, or begins with what nobody sees, is guarded.
    assert sorted_names == {
        "not UTF-8 \\udcff.png", 'new\nline,".png', "'=1+1.png", "'\x1b[31m.png",
    }  # fmt: skip
    events = [json.loads(line) for line in (here / "all.jsonl").read_text("utf-8").splitlines()]
    assert len([one for one in events if one["event"] == "image"]) == 4
    aside = {one["name"]: one["reason"] for one in events if one["event"] == "set aside"}
    assert len(aside) == 4 + 3
    assert aside["zeros.png"] == aside["pipe.png"] == "is not a regular file"
    assert cli("watch", "incoming", *ONCE, *outputs) == Answer(
        0, "0 images sorted into the groups of run.\n", ""
    )


def test_what_came_is_sorted_once_and_added(here: Path, cli: Cli) -> None:
    incoming = here / "incoming" / "lot 1"
    incoming.mkdir(parents=True)
    for number in range(3):
        Image.fromarray(plate("dent", 90 + number)).save(incoming / f"{number}.png")
    words = ("watch", "incoming", *ONCE, "--by", "folder", "-o", "table.csv", "-o", "all.jsonl")
    told = cli(*words)
    assert "3 images sorted" in told.out, told.err
    files = [here / name for name in ("table.csv", "all.jsonl")]
    first = [file.read_bytes() for file in files]
    kept = here / "run" / "assigned"
    batches = sorted(path.name for path in kept.iterdir())
    assert len(batches) == 1
    assert batches[0].startswith("lot-1")
    told = cli(*words)  # started again: nothing is done twice
    assert "0 images sorted" in told.out or "no images sorted" in told.out.lower(), told.out
    assert [file.read_bytes() for file in files] == first
    Image.fromarray(plate("streak", 99)).save(incoming / "more.png")
    assert "1 image sorted" in cli(*words).out
    for file, before in zip(files, first, strict=True):
        assert file.read_bytes().startswith(before)  # it only grows
    with files[0].open(newline="", encoding="utf-8") as file:
        assert [row["name"] for row in csv.DictReader(file)] == [
            "lot 1/0.png", "lot 1/1.png", "lot 1/2.png", "lot 1/more.png",
        ]  # fmt: skip
    assert sorted(path.name for path in kept.iterdir()) == batches


def test_what_is_not_looked_at_is_said(here: Path, cli: Cli) -> None:
    """Files of other kinds, and the further pages of others."""
    incoming = here / "incoming"
    incoming.mkdir()
    pages = [Image.fromarray(plate("dent", number)) for number in range(3)]
    pages[0].save(incoming / "pages.tif", save_all=True, append_images=pages[1:])
    for name in ("clip.mp4", "photo.cr2"):
        (incoming / name).write_bytes(b"no picture")
    said = cli("watch", "incoming", *ONCE)
    assert "Skipped 2 files: 1 CR2 (raw: convert it to TIFF), 1 MP4 (cut it" in said.out + said.err
    line = "1 file has several pages or frames; only the first was taken: pages.tif (3)."
    assert line in said.out + said.err


def test_a_rise_in_the_lot_that_came_last(here: Path, cli: Cli) -> None:
    """Lots are ordered by their arrival, and more good parts are told only to who asks for them."""
    words = ("watch", "incoming", *ONCE, "--by", "folder", "-o", "all.jsonl", "--exec")
    told = []
    for lot, kind in (("z", "dent"), ("k", "streak"), ("a", "good")):
        write_plates(here / "incoming" / lot, [kind] * 8)
        alarm = f"sh -c '(cat; echo) >> {lot}'"
        answer = cli(*words, alarm, "--on", "rise", *(("--on", "rise=x") if lot == "a" else ()))
        assert answer.code == 0, answer.err
        told.append([one["period"] for one in _lines(here / lot)])
    rises = [one for one in _lines(here / "all.jsonl") if one["event"] == "rise"]
    assert [(one["period"], one["normal"]) for one in rises] == [("k", False), ("a", True)]
    assert rises[1]["group"] == "normal"
    assert told == [[], ["k"], []]


def test_the_second_kind_of_an_image_is_a_kind_of_it(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plates of this size have one region, so the others are told here."""
    asked = []

    def others(regions: Regions, newcomers: Newcomers, *rest: Any) -> list[list[int]]:
        asked.append(set(regions.outlines.images.tolist()))
        return [[1 - group] for group in newcomers.groups.tolist()]

    monkeypatch.setattr(sorter, "newcomer_kinds", others)
    write_plates(here / "incoming", ["dent", "streak"])
    words = ("--on", "kind=Group 1", "--exec", "sh -c '(cat; echo) >> told'")
    assert cli("watch", "incoming", *ONCE, "-o", "all.jsonl", *words).code == 0
    found = _lines(here / "all.jsonl")
    assert {(one["group"], *one["also"]) for one in found} == {
        ("Group 0", "Group 1"),
        ("Group 1", "Group 0"),
    }
    assert [{**one, "attempt": 1} for one in found] == _lines(here / "told")
    assert asked == [{0, 1}]  # with the regions of all


def _lines(path: Path) -> list[dict[str, Any]]:
    """The events in a file of JSON lines; none without the file."""
    return (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    )


def test_without_anybody_to_tell(here: Path, cli: Cli) -> None:
    (here / "incoming").mkdir()
    told = cli("watch", "incoming", *ONCE, "--on", "rise")
    assert told.code == 2
    assert "Give both, or neither" in " ".join(told.err.split())
