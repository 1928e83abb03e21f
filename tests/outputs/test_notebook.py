"""A run in a notebook or a Python session."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flawsort import open_run
from flawsort.labels.session import Session
from flawsort.outputs import notebook
from flawsort.outputs.notebook import frame, groups, html, show, state_of, text
from flawsort.outputs.report import render_report
from flawsort.runs.folder import REPORT, save_run
from flawsort.runs.run import Run
from helpers.html import Page
from helpers.report_runs import HOSTILE, make_run
from helpers.runs import build_run

NAME = "<b>dents</b> & \U0001f529"


@pytest.fixture
def run() -> Run:
    """All names are text, so that it can be saved."""
    made = make_run(flagged=False)
    for column in (made.table["name"], made.table["path"], made.regions["name"]):
        column[:] = [name.encode(errors="replace").decode() for name in column]
    return dataclasses.replace(made)


@pytest.fixture
def edited(run: Run, tmp_path: Path) -> Run:
    """A saved run: group 0 has a name and is confirmed, the images of group 3 are moved to it."""
    save_run(run, tmp_path / "run", extra={REPORT: render_report(run)})
    with Session(tmp_path / "run") as session:
        session.edit("name", {"group": 0, "name": NAME}, 0)
        rows = session.labelling.members(3).tolist()
        session.edit("move", {"images": rows, "to": 0}, 1)
        session.edit("role", {"group": 1, "role": "unsure"}, 2)
    return open_run(tmp_path / "run")


@pytest.fixture(autouse=True)
def no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)


class TestFrame:
    def test_every_column_of_the_run_is_there(self, run: Run) -> None:
        found = frame(run)
        first = ["name", "group", "probability", "decided", "group_id", "role"]
        assert found.columns[:6] == first
        assert {*run.table} < {*found.columns}
        for name in run.table.keys() - {"kinds"}:
            assert found[name] == run.table[name]
        # What was computed, and how people read it.
        assert found["clusters"] == run.table["kinds"]
        kinds = [[f"Group {one}" for one in some.split(";")] for some in found["kind_groups"]]
        assert found["kinds"] == [";".join(titles) for titles in kinds]
        assert len(found) == 40
        assert found["group_id"] == run.table["cluster"]
        assert set(found["group"]) == {"Group 0", "Group 1", "Group 2", "Group 3"}
        assert set(found["probability"]) == {None}
        assert not any(found["decided"])

    def test_groups_as_people_left_them(self, edited: Run) -> None:
        found = frame(edited)
        moved = [row for row, cluster in enumerate(edited.table["cluster"]) if cluster == 3]
        assert found["cluster"] == edited.table["cluster"]
        for row in moved:
            assert (found["group_id"][row], found["group"][row]) == (0, NAME)
            assert found["decided"][row]
            assert found["probability"][row] is None
        assert sum(found["decided"]) == len(moved)
        # The rest are where the model suggests, with its probability.
        state = state_of(edited)
        assert found["group_id"] == state.suggestions.groups.tolist()
        sure = [value for value in found["probability"] if value is not None]
        assert sure
        assert all(0 < value <= 1 for value in sure)
        assert set(found["role"]) == {"flaw", "unsure"}


class TestGroups:
    def test_as_clustered(self, run: Run) -> None:
        found = groups(run)
        assert [group.number for group in found] == [0, 1, 2, 3]
        assert [group.size for group in found] == np.bincount(run.labels).tolist()
        assert {group.name for group in found} == {""}
        assert [group.title for group in found][:2] == ["Group 0", "Group 1"]

    def test_as_people_left_them(self, edited: Run) -> None:
        first, second, third = groups(edited)  # nothing is left of the fourth
        assert (first.name, first.title, first.role) == (NAME, NAME, "flaw")
        sizes = np.bincount(edited.labels)
        assert first.size == sizes[0] + sizes[3]
        assert first.decided == sizes[3]
        assert (second.title, second.role) == ("Unsure", "unsure")
        assert third.number == 2

    def test_typical_ones_are_nearest_to_the_middle(self, run: Run) -> None:
        for group in groups(run, typical=4):
            rows = np.flatnonzero(run.labels == group.number)
            middle = run.embeddings[rows].mean(axis=0)
            far = {run.names[row]: np.linalg.norm(run.embeddings[row] - middle) for row in rows}
            assert list(group.typical) == sorted(far, key=lambda name: far[name])[:4]

    def test_their_repr_is_one_line(self, edited: Run) -> None:
        for group in groups(edited):
            assert len(repr(group).splitlines()) == 1
        assert repr(groups(edited)[0]).startswith(f"<{NAME}: ")


def test_three_lines_of_text(run: Run, edited: Run) -> None:
    lines = text(edited).splitlines()
    assert len(lines) == len(text(run).splitlines()) == 3
    assert lines[0] == "Run: 40 images in 3 groups, with normals"
    assert f"{NAME} (" in lines[1]
    assert lines[2] == f"  in {edited.folder}"


class TestHtml:
    def test_groups_have_thumbnails(self, edited: Run) -> None:
        content = html(edited, typical=3)
        content.encode("utf-8")
        page = Page(content)
        tags = page.names
        assert set(tags) == {"p", "div", "b", "br", "img"}
        assert tags.count("div") == 3
        assert tags.count("img") == 9
        assert NAME in page.text
        pictures = [attributes for tag, attributes in page.tags if tag == "img"]
        assert all(str(one["src"]).startswith("data:image/jpeg;base64,") for one in pictures)
        titles = [one["title"] for one in pictures]
        assert titles[:3] == [one for one in groups(edited)[0].typical[:3]]

    def test_hostile_names_stay_text(self, run: Run) -> None:
        page = Page(html(run, typical=40))
        assert "script" not in page.names
        titles = [attributes.get("title") for tag, attributes in page.tags if tag == "img"]
        assert HOSTILE[0] in titles
        assert len(titles) == 40

    def test_images_without_a_thumbnail_are_passed_over(self, run: Run) -> None:
        kept = tuple(one if row % 2 else b"" for row, one in enumerate(run.thumbnails))
        page = Page(html(dataclasses.replace(run, thumbnails=kept), typical=40))
        assert page.names.count("img") == 20

    def test_many_groups(self) -> None:
        run = build_run(list(range(30)))
        assert "and 6 more groups" in Page(html(run)).text
        assert Page(html(run)).text.count("1 image,") == notebook.SHOWN_GROUPS


class TestShow:
    def test_the_report_of_a_saved_run(self, edited: Run) -> None:
        opened: list[str] = []
        place = show(edited, opened.append)
        assert edited.folder is not None
        assert place == edited.folder / REPORT
        assert opened == [place.as_uri()]

    def test_without_a_report_one_is_made(self, run: Run, tmp_path: Path) -> None:
        opened: list[str] = []
        place = show(run, opened.append)
        assert place is not None
        assert place.read_text("utf-8") == render_report(run)
        save_run(run, tmp_path / "run")
        place = show(open_run(tmp_path / "run"), opened.append)
        assert place is not None
        assert place.parent != tmp_path / "run"
        assert len(opened) == 2

    def test_inside_a_notebook(self, edited: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        shown: list[Any] = []
        ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
        shell = SimpleNamespace(kernel=object())
        ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
        display.HTML = lambda content: content  # type: ignore[attr-defined]
        display.display = shown.append  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        opened: list[str] = []
        assert show(edited, opened.append) is None
        assert opened == []
        ((tag, attributes),) = Page(shown[0]).tags
        assert tag == "iframe"
        assert edited.folder is not None
        assert attributes["srcdoc"] == (edited.folder / REPORT).read_text("utf-8")
        # IPython in a terminal has no kernel.
        ipython.get_ipython = lambda: SimpleNamespace()  # type: ignore[attr-defined]
        assert show(edited, opened.append) is not None
        assert len(opened) == 1
