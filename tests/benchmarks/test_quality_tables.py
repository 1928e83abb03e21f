"""benchmarks/quality.py: which rows are the same, what is compared, and what is chosen."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest


def row(**values: Any) -> Any:
    """A row of the benchmark with usual values for the rest."""
    usual = dict(
        set="bottle", mode="none", name="default", setting={"a": 1}, subsets=20, version="1+f",
        images=40, normals=0, kinds=4, nmi=0.5, ari=0.4, f1=0.6, subset_nmi=0.52,
        subset_error=0.01, auroc=None, pixel_auroc=None, precision=None, recall=None, advised=6,
        advised_nmi=0.45, seconds=1.5, timings={"score": 1.0},
    )  # fmt: skip
    return importlib.import_module("quality_results").Row(**{**usual, **values})


class TestVersion:
    def test_code_and_networks_count(self, results: ModuleType, tmp_path: Path) -> None:
        (tmp_path / "room").mkdir()
        (tmp_path / "room" / "a.py").write_text("a = 1\n")
        (tmp_path / "net.onnx").write_bytes(b"net")
        first = results.source_version(tmp_path)
        assert results.source_version(tmp_path) == first
        (tmp_path / "notes.txt").write_text("no code")
        assert results.source_version(tmp_path) == first
        for change in (
            lambda: (tmp_path / "room" / "a.py").write_text("a = 2\n"),
            lambda: (tmp_path / "net.onnx").write_bytes(b"new"),
            lambda: (tmp_path / "room" / "a.py").rename(tmp_path / "room" / "b.py"),
        ):
            change()
            changed = results.source_version(tmp_path)
            assert changed != first
            first = changed


class TestResultsFile:
    def test_rows_come_back(self, results: ModuleType, tmp_path: Path) -> None:
        path = tmp_path / "new" / "rows.jsonl"
        assert results.read_rows(path) == []
        rows = [row(), row(set="neu", auroc=0.25)]
        for one in rows:
            results.append_row(path, one)
        assert results.read_rows(path) == rows
        assert [one.key for one in results.read_rows(path)] == [one.key for one in rows]

    def test_half_a_line_and_other_figures_are_left_out(
        self, results: ModuleType, tmp_path: Path
    ) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text(json.dumps({"set": "bottle"}) + '\n{"set": "bot')
        results.append_row(path, row())
        assert results.read_rows(path) == [row()]

    @pytest.mark.parametrize(
        "change",
        [
            {"set": "neu"}, {"mode": "normals"}, {"setting": {"a": 2}}, {"subsets": 5},
            {"version": "1+e"}, {"images": 41}, {"normals": 7},
        ],
    )  # fmt: skip
    def test_what_makes_another_row(self, change: dict[str, Any]) -> None:
        assert row(**change).key != row().key
        assert row(name="other", nmi=0.1, seconds=9.0).key == row().key

    def test_stored_rows_that_can_be_compared(self, results: ModuleType) -> None:
        measured = [row(name="x", setting={"a": 2})]
        stored = [
            row(name="x", setting={"a": 3}),  # the name is taken by the measured setting
            row(name="before", setting={"a": 2}, set="grid"),  # known as x now
            row(name="before", setting={"a": 2}),  # measured
            row(images=39, nmi=0.1),  # again with 40 images
            row(),
            row(version="1+e", nmi=0.2),
            row(subsets=5, nmi=0.3),
            row(set="neu"),
            row(mode="normals"),
        ]
        found = results.rows_to_compare(measured, stored, ["bottle", "grid"], ["none"])
        assert [(one.name, one.set, one.setting["a"], one.nmi) for one in found] == [
            ("x", "grid", 2, 0.5),
            ("default", "bottle", 1, 0.5),
            ("x", "bottle", 2, 0.5),
        ]
        assert results.rows_to_compare([], stored, ["bottle"], ["none"]) == []


class TestTables:
    @pytest.mark.parametrize(
        ("value", "text"),
        [(0.5344, ".534"), (1.0, "1.000"), (-0.012, "-.012"), (10.04, "10.040"), (None, ""),
         (0.0, ".000")],
    )  # fmt: skip
    def test_numbers(self, tables: ModuleType, value: float | None, text: str) -> None:
        assert tables.number(value) == text

    def test_lines_fit_a_terminal(self, tables: ModuleType) -> None:
        full = row(
            set="magnetic-tile", mode="normals", name="n" * 14, auroc=1.0, pixel_auroc=1.0,
            precision=1.0, recall=1.0, nmi=1.0, ari=1.0, f1=1.0, kinds=12, advised=20,
            advised_nmi=0.5, seconds=1234.5,
        )  # fmt: skip
        lines = tables.line_of(full), tables.line_of(row()), tables.HEADER
        assert len({len(line) for line in lines}) == 1
        assert len(lines[0]) <= 120
        assert lines[0].endswith("12   20   8  .500 1234.5")

    def test_every_set_counts_the_same(self, tables: ModuleType) -> None:
        found = tables.group_means(
            {"bottle": 0.8, "leather": 0.6, "magnetic-tile": 0.1, "neu": 0.3, "grid": None}
        )
        assert found == {
            "old 4": pytest.approx(0.7),
            "tiles": pytest.approx(0.1),
            "old 5": pytest.approx(0.5),
            "others": pytest.approx(0.3),
            "all": pytest.approx(0.45),
        }
        assert tables.group_means({"neu": 0.3})["old 4"] is None

    def test_sets_that_fall_behind(self, tables: ModuleType) -> None:
        rows = [
            row(set="neu", name="plain", subset_nmi=0.87, nmi=0.1),
            row(set="neu", name="paper", subset_nmi=0.1, nmi=0.1),
            row(set="neu", name="a", subset_nmi=0.85, nmi=0.345),
            row(set="neu", name="b", subset_nmi=0.83, nmi=0.4),
            row(set="neu", name="c", subset_nmi=0.85, nmi=0.34),
            row(set="grid", name="d", mode="normals", subset_nmi=0.9, nmi=0.4),
            row(set="my own", name="e", subset_nmi=0.0, nmi=0.0),
        ]
        found = [(one.row.name, one.plain, one.previous) for one in tables.falls(rows)]
        assert found == [
            ("b", pytest.approx(0.04), None),
            ("c", None, pytest.approx(0.005)),
            ("d", None, pytest.approx(0.044)),
        ]

    def test_published_figures_of_sets_that_are_there(
        self, tables: ModuleType, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tables.print_published(["bottle", "hazelnut", "leather", "neu"])
        assert capsys.readouterr().out == ""
        tables.print_published([*tables.FOUR, "neu"])
        four = capsys.readouterr().out
        assert "AnomalyNCD                 old 4  without normals .667, with normals .735" in four
        assert "tiles" not in four
        tables.print_published(["magnetic-tile"])
        assert "UniFormaly                 tiles  with normals .421" in capsys.readouterr().out

    def test_normals_are_compared_with_the_plain_mean_without(self, tables: ModuleType) -> None:
        rows = [
            row(set="my own", name="plain", subset_nmi=0.5),
            row(set="my own", name="a", mode="normals", subset_nmi=0.4),
        ]
        (fall,) = tables.falls(rows)
        assert (fall.row.name, fall.plain) == ("a", pytest.approx(0.1))


class TestLeavingOneOut:
    # With all sets "spiky" is best, but only by the set "c", which has to be left out once.
    FIGURES: ClassVar = {
        "even": {"a": 0.5, "b": 0.5, "c": 0.5},
        "spiky": {"a": 0.4, "b": 0.4, "c": 0.9},
    }

    def test_the_set_itself_has_no_say(self, tables: ModuleType) -> None:
        assert tables.best(self.FIGURES, ["a", "b", "c"]) == "spiky"
        found = [(one.left_out, one.setting) for one in tables.leave_one_out(self.FIGURES)]
        assert found == [("a", "spiky"), ("b", "spiky"), ("c", "even")]

    def test_equal_settings_go_to_the_first(self, tables: ModuleType) -> None:
        assert tables.best({"x": {"a": 0.5}, "y": {"a": 0.5}}, ["a"]) == "x"

    def test_baselines_and_settings_that_lack_sets_are_no_choice(self, tables: ModuleType) -> None:
        rows = [
            row(name=name, set=one, subset_nmi=0.3)
            for name, one in [("x", "a"), ("x", "b"), ("y", "a"), ("paper", "a"), ("plain", "c")]
        ]
        rows += [row(name="x", set="d", mode="normals")]
        assert tables.figures_of(rows, "none") == ({"x": {"a": 0.3, "b": 0.3}}, ["y"])

    def test_without_subsets_the_whole_set_counts(self, tables: ModuleType) -> None:
        figures, _ = tables.figures_of([row(subset_nmi=None, nmi=0.7)], "none")
        assert figures == {"default": {"bottle": 0.7}}

    def test_a_set_with_both_modes_counts_once(self, tables: ModuleType) -> None:
        modes = {
            "none": {"x": {"a": 0.2, "b": 0.4}, "y": {"a": 0.1, "b": 0.1}},
            "normals": {"x": {"a": 0.6}},
        }
        assert tables.figures_of_both(modes) == {"x": {"a": pytest.approx(0.4), "b": 0.4}}

    def test_the_printed_table(
        self, tables: ModuleType, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = [
            row(name=name, set=one, mode=mode, subset_nmi=value)
            for mode in ("none", "normals")
            for name, found in self.FIGURES.items()
            for one, value in found.items()
        ]
        tables.print_leave_one_out(rows)
        out = capsys.readouterr().out
        alone, _, both = out.split("Leave one set out, ")[1:]
        assert alone.startswith("without normals: 2 settings, 3 sets")
        assert "Chosen with all sets: spiky." in alone
        assert ["c", "even", ".500", ".900"] in [line.split() for line in alone.splitlines()]
        assert ["mean", "all", ".433", ".567"] in [line.split() for line in alone.splitlines()]
        assert "spiky          2 of 3 times   none .567" in alone
        lines = [line.split() for line in both.splitlines()]
        assert ["c", "even", ".500", ".900", ".500", ".900"] in lines
        assert max(len(line) for line in out.splitlines()) <= 120

    def test_one_set_is_too_few(
        self, tables: ModuleType, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tables.print_leave_one_out([row()])
        assert "needs two sets" in capsys.readouterr().out
