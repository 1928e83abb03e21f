"""The command `flawsort paper`, as a person or a script uses it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flawsort.cli import console
from flawsort.research.paper.run import PICTURES
from flawsort.research.paper.tables import TABLES
from helpers.paper_sets import make_mvtec, make_tiles
from helpers.plates import Cli

SMALL = ("--backbone", "efficientnet-lite2", "--image-size", "64", "--seeds", "2", "-q")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    make_mvtec(folder / "mvtec", ("bottle",))
    make_tiles(folder / "tiles")
    return folder


def test_the_list_shows_everything(cli: Cli) -> None:
    text = cli("paper", "--list").out
    assert all(name in text for name in (*TABLES, *PICTURES))
    told = json.loads(cli("paper", "--list", "--json").out)
    assert [entry["name"] for entry in told] == [*TABLES, *PICTURES]
    assert told[0]["in the paper"] == "Table 1"


def test_a_table_is_printed_and_written(cli: Cli, sets: Path, tmp_path: Path) -> None:
    output = tmp_path / "results"
    data = ("--data", str(sets / "mvtec"), "--data", str(sets / "tiles"))
    answer = cli("paper", *data, "--table", "main", "-t", "tau", "-o", str(output), *SMALL)
    assert (answer.code, answer.err) == (0, "")
    assert "Distances with Ward clustering (Table 1), efficientnet-lite2" in answer.out
    assert "Not given of the paper's texture sets: carpet, grid" in answer.out
    assert f"Written to {output}: main, tau." in answer.out
    written = {path.name for path in output.iterdir() if path.is_file()}
    tables = {
        f"{name}.{kind}" for name in ("main", "tau") for kind in ("txt", "csv", "json", "tex")
    }
    assert written == tables | {"tau.svg", "tau.png"}
    again = cli("paper", *data, "-t", "main", "-o", str(output), "--json", *SMALL)
    (told,) = json.loads(again.out)
    assert told["name"] == "main"
    (part,) = told["parts"]
    assert {cell["set"] for cell in part["cells"]} == {"object", "mtd", "overall"}


def test_progress_counts_the_rows(cli: Cli, sets: Path, tmp_path: Path) -> None:
    options = [option for option in SMALL if option != "-q"]
    data = ("--data", str(sets / "mvtec"))
    answer = cli("paper", *data, "-t", "main", "-o", str(tmp_path / "out"), *options)
    assert "table main (bottle, average): 0 of 4\n" in answer.err
    assert "table main (bottle, wa-semi): 4 of 4" in answer.err


def test_another_place_is_no_other_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with console.showing_progress(quiet=False) as progress:
        assert progress is not None
        progress("table x (bottle, wa)", 0, 40)
        for done in range(1, 11):
            now += 1
            progress(f"table x (bottle, wa, seed {done} of 10)", done, 40)
        progress("scoring", 1, 2)
        progress("table x (my (\x1b) set, wa, seed 1 of 10)", 11, 40)
    assert capsys.readouterr().err.splitlines() == [
        "table x (bottle, wa): 0 of 40",
        "table x (bottle, wa, seed 5 of 10): 5 of 40, 1.0 a second, 0:35 left",
        "table x (bottle, wa, seed 10 of 10): 10 of 40, 1.0 a second, 0:30 left",
        "scoring: 1 of 2",
        "table x (my (\\x1b) set, wa, seed 1 of 10): 11 of 40",
    ]


@pytest.mark.parametrize("finished", [False, True])
def test_a_terminal_shows_one_bar_and_the_place_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    with console.showing_progress(quiet=False) as progress:
        assert progress is not None
        for done in range(1, 4):
            progress(f"table x (bottle, [b]wa, seed {done} of 4)", done, 4)
        progress("scoring", 1, 2)
        if finished:
            progress("table x (bottle, [b]wa)", 4, 4)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    frame = [line for line in text.splitlines() if line][-2 if finished else -3 :]
    assert frame[0].startswith("table x ")
    assert ("4/4" if finished else "3/4") in frame[0]
    assert frame[1].startswith("scoring ")
    assert frame[2:] == ([] if finished else ["bottle, [b]wa, seed 3 of 4"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--data and --table must be given. See flawsort paper --list."),
        (("--table", "main"), "--data and --table must be given"),
        (("--data", "DATA", "-t", "table-1"), "table must be all or some of main, "),
        (("--data", "nowhere", "-t", "main"), "'nowhere' is not a folder"),
        (("--data", "DATA", "-t", "main", "--temperature", "hot"), "greater than 0. Got hot."),
        (("--data", "DATA", "-t", "main", "--temperature", "-1"), "greater than 0. Got -1."),
        (("--data", "DATA", "-t", "main", "--tau", "0"), "--tau must be a number greater than 0"),
        (
            ("--data", "DATA", "-t", "main", "--tau", "1", "--temperature", "best"),
            "Give --tau or --temperature, not both. Got 1.0 and best.",
        ),
        (("--data", "DATA", "-t", "main", "--seeds", "1"), "--seeds must be at least 2. Got 1."),
        (("--data", "DATA", "-t", "main", "--only", "tile"), "among bottle. Got tile."),
        (("--data", "DATA", "-t", "main", "--resample", "x"), "resample must be one of bilinear, "),
    ],
)
def test_errors_are_one_line(
    cli: Cli,
    sets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(sets / "mvtec") if part == "DATA" else part for part in arguments]
    answer = cli("paper", *given)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert message in answer.err
