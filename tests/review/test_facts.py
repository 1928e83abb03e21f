"""What the page filters by and the run does not hold: lots, sizes, and the server's answers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from PIL import Image

from flawsort import InputError, Run, open_run
from flawsort.labels.edit_checks import Edit
from flawsort.labels.store import EditStore
from flawsort.review.app import make_app
from flawsort.review.facts import lots_of, sizes_of
from flawsort.runs.folder import EDITS
from flawsort.runs.trends import read_periods
from helpers.plates import SIDE
from helpers.review_client import RunClient, closing_libraries, copied

N = 14


@pytest.fixture(scope="module", autouse=True)
def _let_go() -> Iterator[None]:
    with closing_libraries():
        yield


@pytest.fixture(scope="module")
def run(saved: Path) -> Run:
    return open_run(saved)


def table(folder: Path, run: Run, n: int = N) -> Path:
    """A CSV of lots: the first n images in lots of five, from lot 8 on."""
    path = folder / "lots.csv"
    rows = [f"{name},{8 + row // 5}" for row, name in enumerate(run.names[:n])]
    path.write_text("\n".join(["name,lot", *rows]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def client(saved: Path, tmp_path_factory: pytest.TempPathFactory, run: Run) -> RunClient:
    """With a table of lots; no test edits its run."""
    folder = tmp_path_factory.mktemp("lots")
    return RunClient(make_app([copied(saved, folder)], lots=table(folder, run)))


@pytest.fixture(scope="module")
def plain(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> RunClient:
    """Without one."""
    return RunClient(make_app([copied(saved, tmp_path_factory.mktemp("no-lots"))]))


class TestLots:
    def test_by_the_table_in_natural_order(self, client: RunClient) -> None:
        said = client.api("lots?by=lots").data
        assert said == {
            "by": "lots", "lots": ["8", "9", "10"], "of": [row // 5 for row in range(N)],
        }  # fmt: skip
        assert client.api("run").data["lots"] == "lots.csv"

    def test_images_that_the_table_does_not_have_come_last(self, tmp_path: Path, run: Run) -> None:
        found = lots_of(run, "lots", read_periods(table(tmp_path, run, 6)))
        assert found.lots == ["8", "9", "unknown"]
        assert found.of == [0] * 5 + [1] + [2] * 8

    @pytest.mark.parametrize("by", ["day", "week", "month"])
    def test_by_the_last_change_of_the_file(self, plain: RunClient, run: Run, by: str) -> None:
        form = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}[by]
        times = [datetime.fromtimestamp(os.stat(path).st_mtime) for path in run.table["path"]]
        said = plain.api(f"lots?by={by}").data
        assert [said["lots"][lot] for lot in said["of"]] == [f"{at:{form}}" for at in times]

    def test_by_folder(self, plain: RunClient) -> None:
        assert plain.api("lots?by=folder").data["lots"] == ["unknown"]

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("by=hour", "by must be day, week, month, folder or lots. Got 'hour'."),
            ("by=", "by must be day, week, month, folder or lots. Got ''."),
            ("by=/etc/passwd", "by must be day, week, month, folder or lots."),
            ("by=lots", "Start the review with --lots and a CSV file"),
            ("", "by: Field required."),
        ],
    )
    def test_a_wrong_parameter(self, plain: RunClient, query: str, said: str) -> None:
        reply = plain.api(f"lots?{query}")
        assert reply.status == 422
        assert said in reply.detail

    def test_a_table_of_other_images(self, saved: Path, tmp_path: Path) -> None:
        path = tmp_path / "lots.csv"
        path.write_text("name,lot\nother.png,1\n", encoding="utf-8")
        client = RunClient(make_app([copied(saved, tmp_path)], lots=path))
        assert client.api("run").status == 200
        reply = client.api("lots?by=lots")
        assert reply.status == 404
        assert "None of the 14 images has a period" in reply.detail

    @pytest.mark.parametrize("text", ["name,colour\na.png,red\n", "name,day\na.png,tomorrow\n"])
    def test_a_table_that_is_none_is_refused_before_the_start(
        self, saved: Path, tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "lots.csv").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="must have"):
            make_app([saved], lots=tmp_path / "lots.csv")
        with pytest.raises(InputError, match=r"none\.csv' do not exist\. Check the path\."):
            make_app([saved], lots=tmp_path / "none.csv")

    def test_unknown_runs(self, plain: RunClient) -> None:
        assert plain.get("/r/other/api/lots?by=day").status == 404
        assert plain.get("/r/other/api/sizes").status == 404


class TestSizes:
    def test_of_the_upright_images(self, plain: RunClient) -> None:
        assert plain.api("sizes").data == {"width": [SIDE] * N, "height": [SIDE] * N}

    def test_files_that_are_gone_or_elsewhere(self, run: Run, tmp_path: Path) -> None:
        turned, paths = tmp_path / "turned.jpg", list(run.table["path"])
        exif = Image.Exif()
        exif[0x0112] = 6  # lies on its side
        Image.new("L", (30, 20)).save(turned, exif=exif)
        (tmp_path / "text.png").write_text("no image")
        paths[:4] = [str(turned), str(tmp_path / "none.png"), "s3://bucket/x.png", ""]
        paths[4] = str(tmp_path / "text.png")
        found = sizes_of(_with_paths(run, paths))
        assert found.width == [20, None, None, None, None] + [SIDE] * 9
        assert found.height == [30, None, None, None, None] + [SIDE] * 9


def _with_paths(run: Run, paths: list[str]) -> Run:
    return dataclasses.replace(run, table={**run.table, "path": paths})


class TestRegions:
    def test_the_share_of_the_view_that_they_cover(self, plain: RunClient, run: Run) -> None:
        said = plain.api("run").data["regions"]["share"]
        cells = run.grid[0] * run.grid[1]
        shares = [len(run.outlines[region]) / cells for region in range(len(run.outlines))]
        assert said == pytest.approx(shares, abs=1e-6)
        assert sum(said) > 0


class TestNames:
    @pytest.fixture
    def editor(self, saved: Path, tmp_path: Path) -> RunClient:
        return RunClient(make_app([copied(saved, tmp_path)]))

    def test_a_name_that_is_taken_says_by_which_group(self, editor: RunClient) -> None:
        editor.edit("name", group=1, name="dent")
        reply = editor.edit("name", group=0, name="Dent")
        assert reply.status == 422
        assert (reply.data["taken"], reply.data["normal"]) == (1, False)
        assert "already" in reply.detail
        assert editor.state()["version"] == 1

    @pytest.mark.parametrize("name", ["normal", "Good", "OK"])
    def test_a_name_that_means_normal_says_so(self, editor: RunClient, name: str) -> None:
        reply = editor.edit("move", images=[3], to="new", name=name)
        assert reply.status == 422
        assert (reply.data["taken"], reply.data["normal"]) == (None, True)

    def test_other_refusals_offer_nothing(self, editor: RunClient) -> None:
        reply = editor.edit("name", group=9, name="dent")
        assert reply.status == 422
        assert set(reply.data) == {"detail"}

    def test_names_of_earlier_versions_are_offered_to_be_made_clear(
        self, saved: Path, tmp_path: Path
    ) -> None:
        folder = copied(saved, tmp_path)
        with EditStore(folder / EDITS) as store:
            for number, (group, name) in enumerate([(0, "good"), (1, "GOOD")]):
                store.append(Edit("name", {"group": group, "name": name}), number, "")
        editor = RunClient(make_app([folder]))
        assert editor.state()["offers"] == [
            {"kind": "merge", "groups": [0, 1]},
            {"kind": "normal", "groups": [0]},
            {"kind": "normal", "groups": [1]},
        ]
        assert editor.state()["different"] == []
        editor.edit("different", groups=[1, 0])
        assert editor.state()["different"] == [[0, 1]]
        assert [one["kind"] for one in editor.state()["offers"]] == ["normal", "normal"]
        editor.edit("role", group=1, role="normal")
        assert editor.state()["offers"] == [{"kind": "normal", "groups": [0]}]
