"""The command `flawsort paper`, as a person or a script uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--data and --table must be given. See flawsort paper --list."),
        (("--table", "main"), "--data and --table must be given"),
        (("--data", "DATA", "-t", "table-1"), "--table must be all or some of main, "),
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
        (("--data", "DATA", "-t", "main", "--resample", "x"), "--resample must be one of bilinear"),
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
