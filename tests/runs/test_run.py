"""The record of a run: its parts, what follows from them, and that they belong together."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import pytest

from flawsort import RunError, View
from flawsort.clusters.ward import linkage_of, ward_linkage
from flawsort.core.records import RemoteFile, SetAside
from flawsort.core.tables import NUMBER, Column
from flawsort.embeddings.heat import HeatScale
from flawsort.health.record import Finding, Health
from flawsort.images.view import UnreadableImage
from flawsort.runs import run as run_module
from flawsort.runs.folder import open_run, save_run
from flawsort.runs.run import PARTS, Run
from flawsort.runs.stored import ArrayPart
from flawsort.runs.tables import IMAGES, REGIONS, Columns
from helpers.plates import ROOT, contents, fingerprint
from helpers.runs import GRID, MadeRegion, build_run

CLUSTERS = (0, 1, 0, 1, 2, 0)
MADE_REGIONS = (
    MadeRegion(0, 0, "6-8 11-13", heat=0.9, score=0.95),
    MadeRegion(0, 1, "18-19"),
    MadeRegion(2, -1, "5-9 14", nearest=1, confidence=0.0),
    MadeRegion(4, 2, "3"),
)


@pytest.fixture
def run() -> Run:
    return build_run(CLUSTERS, regions=MADE_REGIONS)


class TestParts:
    def test_every_field_is_stored_but_three(self) -> None:
        names = {field.name for field in dataclasses.fields(Run)}
        assert names - PARTS.keys() == {"manifest", "folder", "fetch"}

    def test_no_two_parts_share_a_file(self) -> None:
        files = [file for part in PARTS.values() for file in part.files]
        assert len(set(files)) == len(files)
        assert {"scores.npy", "images.csv", "thumbnails.bin", "mask"} <= set(files)

    def test_files(self, run: Run) -> None:
        names = set(run.files())
        absent = {"valid.npy", "reference.npy", "whitening.npy", "mask"}
        absent |= {"list-centres.npy", "list-offsets.npy", "views.npz", "gallery.npz"}
        absent |= {"close-ups.bin", "close-ups.npy", "matches.bin", "matches.npy", "health.json"}
        assert names == {file for part in PARTS.values() for file in part.files} - absent
        full = dataclasses.replace(
            run, valid=np.ones(run.scores.shape, bool), mask=b"mask", whitening=np.eye(2),
            lists=(np.eye(2), np.arange(3)), reference=np.eye(2), views={"a": np.eye(2)},
            gallery={"images": np.arange(2)}, close_ups=(b"",) * 6, matches=(b"",) * 6,
            health=Health(),
        )  # fmt: skip
        assert set(full.files()) == names | absent
        assert full.files()["mask"] == b"mask"

    @pytest.mark.parametrize("full", [False, True])
    def test_round_trip(self, run: Run, tmp_path: Path, full: bool) -> None:
        if full:
            run = dataclasses.replace(
                run, valid=run.scores > 0.5, mask=b"\x00mask", whitening=np.eye(3),
                lists=(np.eye(2), np.arange(3)), reference=np.zeros((5, 2), np.float16),
                views={"view-0-places": np.arange(3.0), "view-1-reference": np.eye(2)},
                thumbnails=(b"a", b"", b"ccc", b"", b"e", b"f"),
                gallery={"images": np.arange(2), "rows": np.arange(5)},
                close_ups=(b"x", b"", b"y", b"", b"z", b""), matches=(b"", b"m") * 3,
                health=Health((Finding("few", "Few.", "Add some.", 3.0, 1, ("a",)),), ("folders",)),
            )  # fmt: skip
        save_run(run, tmp_path / "run")
        opened = open_run(tmp_path / "run")
        assert fingerprint(opened) == fingerprint(run)
        assert opened.folder == tmp_path / "run"
        assert run.folder is None
        save_run(opened, tmp_path / "again")
        assert contents(tmp_path / "again") == contents(tmp_path / "run")

    def test_a_part_is_one_declaration(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        @dataclasses.dataclass(frozen=True, eq=False, repr=False)
        class Larger(Run):
            focus: Annotated[
                Any, ArrayPart(files=("focus.npy",), shape=("images", 2), optional=True)
            ] = None

        save_run(run, tmp_path / "older")
        declared = get_type_hints(Larger, include_extras=True)["focus"].__metadata__[0]
        for module in ("flawsort.runs.run", "flawsort.runs.folder"):
            monkeypatch.setattr(f"{module}.PARTS", {**PARTS, "focus": declared})
        fields = {name: getattr(run, name) for name in ("manifest", *PARTS)}
        larger = Larger(**fields, focus=np.arange(12).reshape(6, 2))
        save_run(larger, tmp_path / "run")
        opened = open_run(tmp_path / "run", Larger)
        np.testing.assert_array_equal(opened.focus, larger.focus)
        np.testing.assert_array_equal(opened.take([4, 1]).focus, [[8, 9], [2, 3]])
        with pytest.raises(RunError, match="The run has 6 images, but focus has 5"):
            dataclasses.replace(larger, focus=larger.focus[:5])
        assert open_run(tmp_path / "older", Larger).focus is None


class TestColumns:
    def test_a_column_is_one_declaration(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Saved, opened and previewed with the others; runs without it still open."""
        save_run(run, tmp_path / "older")
        blur = Column[Any]("blur", NUMBER, "how blurred it is", lambda of: of, optional=True)
        part = dataclasses.replace(PARTS["table"], columns=Columns(*IMAGES, blur))
        for module in ("flawsort.runs.run", "flawsort.runs.folder"):
            monkeypatch.setattr(f"{module}.PARTS", {**PARTS, "table": part})
        blurred = [0.5, 1, 2, 3, 4, 1 / 3]
        wider = dataclasses.replace(run, table={**run.table, "blur": blurred})
        save_run(wider, tmp_path / "run")
        opened = open_run(tmp_path / "run")
        assert opened.table["blur"] == blurred
        assert opened.take([5, 0]).table["blur"] == [1 / 3, 0.5]
        assert (tmp_path / "run" / "images.csv").read_text().splitlines()[6].endswith(",0.333333")
        assert "blur" not in open_run(tmp_path / "older").table

    @pytest.mark.parametrize("columns", [IMAGES, REGIONS], ids=["images", "regions"])
    def test_every_column_is_described(self, columns: Columns[Any]) -> None:
        (path,) = (ROOT / "docs").rglob("run-format.md")
        text = path.read_text("utf-8")
        assert [column.name for column in columns if f"`{column.name}`" not in text] == []
        assert all(column.doc for column in columns)


class TestProperties:
    def test_what_the_manifest_says(self, run: Run) -> None:
        assert (run.mode, run.n_clusters, run.grid) == ("with normals", 3, GRID)
        assert run.heat == HeatScale(0.2, 1.0)
        assert run.input_size == (64, 80)
        assert run.view == View(tiles=(1, 1))
        assert dataclasses.replace(run, manifest={**run.manifest, "backbone": None}).input_size == (
            256,
            256,
        )

    def test_the_mask_comes_from_the_run_itself(self, tmp_path: Path) -> None:
        from PIL import Image

        Image.fromarray(np.eye(8, dtype=np.uint8) * 255).save(tmp_path / "mask.png")
        run = build_run(CLUSTERS, view=View(fit="pad", mask=tmp_path / "mask.png"))
        (tmp_path / "mask.png").unlink()
        assert run.view.mask == run.mask
        assert run.view.describe() == run.manifest["view"]

    def test_images(self, run: Run) -> None:
        assert len(run) == 6
        assert run.names == run.table["name"]
        assert [run.row_of[name] for name in run.names] == list(range(6))
        assert run.labels.tolist() == list(CLUSTERS)
        assert run.labels.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            run.labels[0] = 1
        assert run.kinds == ((0, 1), (1,), (0,), (1,), (2,), (0,))

    def test_rows_of_a_cluster_are_ordered_by_typicality(self, run: Run) -> None:
        typical = run.table["typicality"]
        rows = sorted([0, 2, 5], key=lambda row: -typical[row])
        assert run.rows_of(0).tolist() == rows
        assert run.rows_of(9).tolist() == []
        even = dataclasses.replace(run, table={**run.table, "typicality": [0.5] * 6})
        assert even.rows_of(0).tolist() == [0, 2, 5]

    def test_looks_normal(self, run: Run) -> None:
        flags = ["", "looks-normal", "borderline;looks-normal", "duplicate", "looks-normal-ish", ""]
        flagged = dataclasses.replace(run, table={**run.table, "flags": flags})
        assert flagged.looks_normal.tolist() == [False, True, True, False, False, False]

    def test_heat_of_patches(self, run: Run) -> None:
        valid = np.ones(run.scores.shape, bool)
        valid[:, 3] = False
        masked = dataclasses.replace(run, valid=valid)
        wanted = np.clip((run.scores - 0.2) / 0.8, 0, 1)
        np.testing.assert_allclose(run.patch_heat(), wanted)
        np.testing.assert_allclose(run.patch_heat(4), wanted[4])
        wanted[:, 3] = 0
        np.testing.assert_allclose(masked.patch_heat(), wanted)
        np.testing.assert_allclose(masked.patch_heat(4), wanted[4])

    def test_sources(self) -> None:
        paths = ["/a/b.png", "s3://bucket/c.png", "", "d.png"]
        aside = [
            {"name": "x", "reason": "is empty", "kind": "image"},
            {"name": "y", "reason": "is empty", "kind": "normal"},
        ]
        run = build_run((0, 0, 0, 0), table={"path": paths}, manifest={"set_aside": aside})
        assert run.source(0) == Path("/a/b.png")
        # A run may name any URL: none is read that the user did not ask for.
        assert run.source(1) == RemoteFile("s3://bucket/c.png", asked=False)
        asked = dataclasses.replace(run, fetch=("s3://bucket",))
        assert asked.source(1) == RemoteFile("s3://bucket/c.png")
        with pytest.raises(UnreadableImage, match="was given as an array"):
            run.source(2)
        assert run.images.names == tuple(run.names)
        assert asked.images.sources[:2] == (Path("/a/b.png"), RemoteFile("s3://bucket/c.png"))
        assert run.images.digests == tuple(run.table["sha256"])
        assert run.images.set_aside == (SetAside("x", "is empty"),)

    def test_regions(self, run: Run) -> None:
        assert run.region_rows.tolist() == [0, 0, 2, 4]
        found = run.found_regions
        assert found.outlines is run.outlines
        assert [found.outlines[i].tolist() for i in range(4)] == [
            [6, 7, 8, 11, 12, 13], [18, 19], [5, 6, 7, 8, 9, 14], [3],
        ]  # fmt: skip
        assert found.outlines.images.tolist() == [0, 0, 2, 4]
        np.testing.assert_allclose(found.outlines.peaks, [0.95, 0.9, 0.9, 0.9])
        assert found.labels.tolist() == [0, 1, -1, 2]
        assert found.nearest.tolist() == [0, 1, 1, 2]
        assert found.confidence.tolist() == [0.5, 0.5, 0.0, 0.5]
        none = build_run(CLUSTERS).found_regions
        assert len(none) == len(none.outlines) == 0

    def test_costly_things_are_found_once(self, run: Run) -> None:
        for name in ("row_of", "labels", "images", "region_rows", "outlines", "view"):
            assert getattr(run, name) is getattr(run, name), name


class TestTake:
    def test_some_images_in_any_order(self, run: Run) -> None:
        values = np.random.default_rng(0).random((6, 3))
        run = dataclasses.replace(
            run, embeddings=values, linkage=ward_linkage(values), valid=run.scores > 0.5,
            region_embeddings=np.arange(12.0).reshape(4, 3),
            thumbnails=(b"a", b"b", b"c", b"d", b"e", b"f"),
        )  # fmt: skip
        before = fingerprint(run)
        part = run.take(np.array([4, 0, 3]))
        assert part.names == [run.names[row] for row in (4, 0, 3)]
        for name in ("scores", "valid", "weights", "embeddings", "layout"):
            np.testing.assert_array_equal(getattr(part, name), getattr(run, name)[[4, 0, 3]])
        np.testing.assert_array_equal(part.linkage, linkage_of(run.linkage, np.array([4, 0, 3])))
        assert part.thumbnails == (b"e", b"a", b"d")
        # In the order of the images, as in the whole run.
        assert part.regions["mask"] == ["3", "6-8 11-13", "18-19"]
        np.testing.assert_array_equal(part.region_embeddings, run.region_embeddings[[3, 0, 1]])
        assert part.region_rows.tolist() == [0, 1, 1]
        assert part.labels.tolist() == [2, 0, 1]
        assert part.manifest is run.manifest
        assert fingerprint(run) == before

    def test_one_image_without_regions(self, run: Run) -> None:
        part = run.take([1])
        assert (len(part), len(part.regions["name"]), part.linkage.shape) == (1, 0, (0, 4))


class TestChecks:
    def test_parts_that_do_not_belong_together(self, run: Run) -> None:
        table = {name: values[1:] for name, values in run.table.items()}
        bare = {key: run.manifest[key] for key in run.manifest if key != "heat"}
        changes: dict[str, dict[str, Any]] = {
            "has 5 images, but scores has 6": {"table": table},
            "grid is 3 x 3, but scores have 20": {"manifest": {**run.manifest, "grid": [3, 3]}},
            "missing or invalid: 'heat'": {"manifest": bare},
            "missing or invalid: 'n_clusters'": {"manifest": {**run.manifest, "clusters": {}}},
            "low must be finite": {"manifest": {**run.manifest, "heat": {"low": 2, "high": 1}}},
            "has regions of unknown images": {
                "regions": {**run.regions, "name": ["x"] * 4}
            },
            "region_embeddings has 3": {"region_embeddings": run.region_embeddings[:3]},
            r"region_embeddings has the shape \(4, 2\) instead of \(4, 3\)": {
                "region_embeddings": run.region_embeddings[:, :2]
            },
            "but layout has 5": {"layout": run.layout[:-1]},
            r"layout has the shape \(6,\) instead of \(6, 2\)": {"layout": run.layout[:, 0]},
            "but linkage has 6": {"linkage": np.zeros((6, 4))},
            "but layout has 5; thumbnails has 5": {
                "thumbnails": run.thumbnails[1:], "layout": run.layout[1:]
            },
            r"valid has the shape \(6, 19\)": {"valid": np.ones((6, 19), bool)},
            "images.parquet lacks the columns score, flags": {
                "table": {key: run.table[key] for key in run.table if key not in ("score", "flags")}
            },
            "column score of images.parquet has 2": {"table": {**run.table, "score": [1.0, 2.0]}},
            "column heat of regions.parquet has 1": {"regions": {**run.regions, "heat": [1.0]}},
            "missing or invalid: ": {"weights": None},
        }  # fmt: skip
        for said, change in changes.items():
            with pytest.raises(RunError, match=said):
                dataclasses.replace(run, **change)

    def test_no_image_at_all(self, run: Run) -> None:
        none = {name: [] for name in run.table}
        with pytest.raises(RunError, match="The run has 0 images, but"):
            dataclasses.replace(run, table=none)

    def test_the_message_names_the_folder(self, run: Run, tmp_path: Path) -> None:
        with pytest.raises(RunError, match=r"The run '.*/run' has 6 images, but layout has 5\."):
            dataclasses.replace(run, folder=tmp_path / "run", layout=run.layout[1:])


class Shown(Run):
    """A class with methods of its own, as users get it."""

    def shout(self) -> str:
        return f"{len(self)}!"


class TestSubclass:
    def test_opened_as_one(self, run: Run, tmp_path: Path) -> None:
        save_run(run, tmp_path / "run")
        opened = open_run(tmp_path / "run", Shown)
        assert type(opened) is Shown
        assert opened.shout() == "6!"
        assert type(opened.take([0, 1])) is Shown
        assert opened.take([0, 1]).folder == tmp_path / "run"

    def test_made_of_another(self, run: Run, tmp_path: Path) -> None:
        _ = run.row_of, run.outlines  # found already: they are found again
        shown = Shown.of(run, tmp_path)
        assert type(shown) is Shown
        assert shown.folder == tmp_path
        assert fingerprint(shown) == fingerprint(run)
        assert Shown.of(shown).folder == tmp_path


class TestRepr:
    def test_three_lines(self, run: Run, tmp_path: Path) -> None:
        assert repr(run) == (
            "Run: 6 images in 3 groups, with normals\n  groups: 0 (3), 1 (2), 2 (1)\n  not saved"
        )
        assert repr(dataclasses.replace(run, folder=tmp_path)).endswith(f"\n  in {tmp_path}")

    def test_however_large_it_is(self) -> None:
        large = build_run([row % 50 for row in range(3000)])
        assert len(repr(large).splitlines()) == 3
        assert len(repr(large)) < 300
        assert "7 (60), and 42 more" in repr(large)
        assert run_module.LISTED_GROUPS == 8
