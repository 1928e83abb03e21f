"""Every table of the paper on tiny sets, against naive computations of its numbers."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score, f1_score, normalized_mutual_info_score

import flawsort.fitting.foresight as foresight
import flawsort.images.find as files_module
import flawsort.research.paper.run as run_module
import flawsort.research.paper.shared as shared_module
from flawsort.backbones import load_backbone
from flawsort.core.errors import FlawsortError, InputError, OptionError
from flawsort.images.view import View
from flawsort.research.paper.deep_rows import Training
from flawsort.research.paper.measurements import Job, run_job
from flawsort.research.paper.methods import (
    PAPER,
    ROWS,
    Representation,
    represent,
    represent_subsets,
)
from flawsort.research.paper.protocol import find_tasks, missing_from, subset_rows
from flawsort.research.paper.render import as_csv, as_json, as_latex, as_text
from flawsort.research.paper.run import PICTURES, Outcome, Setting, listing, run_paper
from flawsort.research.paper.shared import PreparedSet
from flawsort.research.paper.tables import TABLES, Cell, Filled, Options, fill
from flawsort.scores.engines import CpuEngine
from helpers.oracles import naive_average, naive_softmax, naive_table
from helpers.paper_sets import make_mvtec, make_tiles

SIZE = 64
FEW = Options(n_seeds=3)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sets")
    return make_mvtec(folder / "mvtec"), make_tiles(folder / "tiles")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def prepared(sets: tuple[Path, Path], work: Path) -> list[PreparedSet]:
    backbone = load_backbone("efficientnet-lite2", image_size=SIZE)
    return [PreparedSet(task, backbone, work) for task in find_tasks(sets)]


def setting(sets: tuple[Path, ...], output: Path, **others: Any) -> Setting:
    chosen = {"backbones": ("efficientnet-lite2",), "image_size": SIZE, "options": FEW, **others}
    return Setting(data=sets, output=output, **chosen)


def cell(filled: Filled, set_: str, row: str, metric: str = "nmi") -> Cell:
    (found,) = (c for c in filled.cells if (c.set, c.row, c.metric) == (set_, row, metric))
    return found


def ward(vectors: NDArray[Any], k: int) -> NDArray[Any]:
    found: NDArray[Any] = fcluster(linkage(pdist(vectors), "ward"), k, "maxclust")
    return found


def judged(truth: tuple[str | None, ...], labels: NDArray[Any]) -> float:
    """NMI over the images that count."""
    kept = [i for i, name in enumerate(truth) if name is not None]
    return float(normalized_mutual_info_score([truth[i] for i in kept], labels[kept]))


class TestProtocol:
    def test_sets_come_in_the_order_of_the_tables(self, sets: tuple[Path, Path]) -> None:
        tasks = find_tasks((sets[1], sets[0]))
        assert [task.name for task in tasks] == ["bottle", "leather", "mtd"]
        assert [task.group for task in tasks] == ["object", "texture", "mtd"]
        assert [task.n_classes for task in tasks] == [3, 3, 3]

    def test_combined_may_be_left_out_before_clustering(self, sets: tuple[Path, Path]) -> None:
        (kept, *_), (bottle, *_) = (find_tasks(sets, leave_out=one) for one in (False, True))
        rows = [row for row, label in enumerate(kept.data.labels) if label != "combined"]
        assert len(rows) < len(kept.truth)
        assert bottle.data.labels == tuple(kept.data.labels[row] for row in rows)
        assert bottle.data.images.digests == tuple(kept.data.images.digests[row] for row in rows)
        assert bottle.data.masks == tuple(kept.data.masks[row] for row in rows)
        assert (bottle.n_classes, bottle.data.normals) == (kept.n_classes, kept.data.normals)
        assert list(bottle.counted) == list(range(len(rows)))

    def test_combined_is_clustered_and_not_counted(self, sets: tuple[Path, Path]) -> None:
        bottle = find_tasks(sets)[0]
        assert len(bottle.truth) == 13
        assert bottle.truth.count(None) == 1
        assert len(bottle.counted) == 12
        assert "combined" not in bottle.truth

    def test_normals_of_the_tiles_follow_the_seed(self, sets: tuple[Path, Path]) -> None:
        drawn = [find_tasks(sets[1:], split_seed=seed)[0].data.normals for seed in (0, 0, 1)]
        names = [found.names for found in drawn if found is not None]
        assert len(names[0]) == 8
        assert names[0] == names[1] != names[2]

    def test_a_set_given_twice_is_refused(self, sets: tuple[Path, Path]) -> None:
        with pytest.raises(InputError, match=r"once. Got bottle, leather more than once"):
            find_tasks((sets[0], sets[0]))

    def test_what_is_missing_is_named(self, sets: tuple[Path, Path]) -> None:
        missing = missing_from(find_tasks(sets))
        assert len(missing["object"]) == 9
        assert len(missing["texture"]) == 4
        assert "mtd" not in missing

    def test_subsets_are_ninety_percent_and_differ(self) -> None:
        first, again, other = subset_rows(100, 0), subset_rows(100, 0), subset_rows(100, 1)
        assert len(first) == 90
        assert (np.diff(first) > 0).all()
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_only_the_layout_makes_tiles(self, tmp_path: Path) -> None:
        folder = make_mvtec(tmp_path / "mine", ("part",))
        for old, new in (("hole", "Crack"), ("cut", "Break")):
            (folder / "part" / "test" / old).rename(folder / "part" / "test" / new)
        (task,) = find_tasks([folder])
        assert (task.name, task.group) == ("part", "other")

    def test_a_set_of_one_type_is_refused(self, tmp_path: Path) -> None:
        folder = make_mvtec(tmp_path / "mine", ("bottle",))
        for kind in ("hole", "cut"):
            for path in (folder / "bottle" / "test" / kind).iterdir():
                path.unlink()
        with pytest.raises(InputError, match=r"at least 2 types .* 'bottle' has 1; leave it out"):
            find_tasks([folder])

    def test_an_empty_file_is_named(self, tmp_path: Path) -> None:
        folder = make_mvtec(tmp_path / "mine", ("bottle",))
        (folder / "bottle" / "test" / "hole" / "002.png").write_bytes(b"")
        with pytest.raises(InputError, match=r"1 images that cannot be used.*hole/002.png'"):
            find_tasks([folder])


class TestRows:
    """The numbers of the rows, each against a naive computation from the bags."""

    @pytest.fixture(scope="class")
    @staticmethod
    def bottle(prepared: list[PreparedSet]) -> PreparedSet:
        return prepared[0]

    @pytest.fixture(scope="class")
    @staticmethod
    def minima(bottle: PreparedSet) -> NDArray[np.float64]:
        return naive_table(bottle.bags.patches, bottle.bags.patches)

    def nmi(self, bottle: PreparedSet, row: str) -> float:
        return float(run_job(bottle, Job(row=row))["nmi"])  # type: ignore[arg-type]

    def test_average(self, bottle: PreparedSet) -> None:
        means = bottle.bags.patches.astype(np.float64).mean(axis=1)
        assert self.nmi(bottle, "average") == pytest.approx(
            judged(bottle.task.truth, ward(means, 3))
        )

    @pytest.mark.parametrize("row", ["wa", "wa-max", "wa-min"])
    def test_weights_from_peers(
        self, bottle: PreparedSet, minima: NDArray[np.float64], row: str
    ) -> None:
        n = len(minima)
        others = [[j for j in range(n) if j != i] for i in range(n)]
        fold = {"wa": np.mean, "wa-max": np.max, "wa-min": np.min}[row]
        scores = np.stack([fold(minima[i][others[i]], axis=0) for i in range(n)])
        pooled = naive_average(bottle.bags.patches, naive_softmax(scores, 0.3 * scores.std()))
        found = represent(bottle, row)
        np.testing.assert_allclose(found.values, pooled, atol=2e-3)
        assert self.nmi(bottle, row) == pytest.approx(judged(bottle.task.truth, ward(pooled, 3)))

    def test_extra_normals_among_the_peers(
        self, bottle: PreparedSet, minima: NDArray[np.float64]
    ) -> None:
        n = len(minima)
        everybody = np.concatenate([bottle.bags.patches, bottle.normals.patches])
        all_minima = naive_table(bottle.bags.patches, everybody)
        scores = np.stack([np.delete(all_minima[i], i, axis=0).mean(axis=0) for i in range(n)])
        np.testing.assert_allclose(bottle.peers_with_normals(), scores, atol=2e-3)

    def test_weights_from_normals(self, bottle: PreparedSet) -> None:
        bank = bottle.normals.patches.reshape(-1, bottle.normals.dim).astype(np.float64)
        queries = bottle.bags.patches.astype(np.float64)
        scores = np.stack(
            [np.sqrt(((bag[:, None] - bank) ** 2).sum(axis=2)).min(axis=1) for bag in queries]
        )
        np.testing.assert_allclose(bottle.normal_scores(), scores, atol=2e-3)
        pooled = naive_average(bottle.bags.patches, naive_softmax(scores, 0.3 * scores.std()))
        np.testing.assert_allclose(represent(bottle, "wa-semi").values, pooled, atol=4e-3)

    def test_fewer_normals_are_part_of_more(self, bottle: PreparedSet) -> None:
        some, more = bottle.normal_scores(0.4, seed=1), bottle.normal_scores(0.8, seed=1)
        assert (more <= some + 1e-6).all()
        assert (more < some - 1e-6).any()

    def test_weights_from_masks(self, bottle: PreparedSet) -> None:
        rows, columns = bottle.bags.grid
        shares = bottle.mask_shares.reshape(-1, rows, columns)
        hole = bottle.task.truth.index("hole")
        assert shares[hole].max() == pytest.approx(1.0)
        assert shares[hole].mean() == pytest.approx((14 / 64) ** 2, abs=1e-6)
        assert shares[bottle.task.truth.index("good")].sum() == 0
        weights = bottle.mask_shares / np.maximum(bottle.mask_shares.sum(1, keepdims=True), 1e-12)
        good = weights.sum(axis=1) == 0
        weights[good] = 1 / (rows * columns)
        pooled = np.stack([w @ b for w, b in zip(weights, bottle.bags.patches, strict=True)])
        np.testing.assert_allclose(represent(bottle, "wa-mask").values, pooled, atol=2e-3)

    @pytest.mark.parametrize("high", [1, 90, 255])
    @pytest.mark.parametrize("size", [(70, 45), (20, 90)])
    def test_masks_are_averaged_by_area(
        self, prepared: list[PreparedSet], tmp_path: Path, size: tuple[int, int], high: int
    ) -> None:
        """size: width and height, of no whole number of pixels to a patch."""
        folder = make_mvtec(tmp_path / "mvtec", ("bottle",))
        mask = np.random.default_rng(0).random((size[1], size[0])) < 0.3
        faint = np.where(mask, high, high // 2).astype(np.uint8)  # half of it is not marked
        Image.fromarray(faint).save(folder / "bottle" / "ground_truth" / "cut" / "000_mask.png")
        (task,) = find_tasks([folder])
        one = PreparedSet(task, prepared[0].backbone, tmp_path)
        rows, columns = one.bags.grid
        found = one.mask_shares[task.truth.index("cut")].reshape(rows, columns)
        # Each pixel is cut into as many parts as there are patches, so that parts fill patches.
        fine = np.kron(mask, np.ones((rows, columns)))
        cells = fine.reshape(rows, size[1], columns, size[0])
        np.testing.assert_allclose(found, cells.mean(axis=(1, 3)), atol=1e-6)

    def test_max_hausdorff(self, bottle: PreparedSet, minima: NDArray[np.float64]) -> None:
        directed = minima.max(axis=2)
        both = np.maximum(directed, directed.T)
        np.fill_diagonal(both, 0)
        np.testing.assert_allclose(represent(bottle, "max-hausdorff").values, both, atol=3e-3)
        labels = fcluster(linkage(squareform(both, checks=False), "ward"), 3, "maxclust")
        assert self.nmi(bottle, "max-hausdorff") == pytest.approx(judged(bottle.task.truth, labels))

    def test_holistic_is_the_mean_of_the_maps(self, bottle: PreparedSet) -> None:
        from flawsort.images.view import decode

        source = bottle.task.data.images.sources[0]
        frames = decode(source, bottle.view, (SIZE, SIZE)).frames
        parts = [one.mean(axis=(2, 3))[0] for one in bottle.backbone.feature_maps(frames)]
        whole = np.concatenate([part / np.linalg.norm(part) for part in parts]) / np.sqrt(2)
        np.testing.assert_allclose(bottle.holistic[0], whole, atol=2e-3)

    def test_metrics_count_what_the_protocol_counts(self, bottle: PreparedSet) -> None:
        figures = run_job(bottle, Job(row="wa-semi"))
        labels = represent(bottle, "wa-semi").labels(3)
        kept = bottle.task.counted
        truth = [bottle.task.truth[i] for i in kept]
        assert figures["ari"] == pytest.approx(adjusted_rand_score(truth, labels[kept]))
        assert set(figures) == {"nmi", "ari", "f1", "f1_micro", "purity"}
        classes = sorted({str(name) for name in truth})
        best = max(
            f1_score(truth, [order[label] for label in labels[kept]], average="weighted")
            for order in (
                [classes[a], classes[b], classes[c]]
                for a, b, c in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
            )
        )
        assert figures["f1"] == pytest.approx(best, abs=0.05)

    def test_subsets_see_only_their_peers(
        self, bottle: PreparedSet, minima: NDArray[np.float64]
    ) -> None:
        scores = bottle.subset_scores(3)
        for seed in range(3):
            rows = subset_rows(len(minima), seed)
            for i in rows[:4]:
                others = [j for j in rows if j != i]
                expected = minima[i][others].mean(axis=0)
                np.testing.assert_allclose(scores[seed, i], expected, atol=2e-3)

    @pytest.mark.parametrize("row", ["average", "max-hausdorff", "wa"])
    def test_subsets_have_their_images_alone(self, bottle: PreparedSet, row: str) -> None:
        whole = represent(bottle, row)
        for seed, (rows, part) in enumerate(represent_subsets(bottle, row, PAPER, 2)):
            assert np.array_equal(rows, subset_rows(13, seed))
            assert len(part.values) == len(rows) == 12
            if row != "wa":
                assert np.array_equal(part.values, whole.take(rows).values)

    def test_unknown_rows_are_refused(self, bottle: PreparedSet) -> None:
        with pytest.raises(OptionError, match=r"one of average, .*Got 'nearest'"):
            represent(bottle, "nearest")

    @pytest.mark.parametrize("row", ROWS)
    def test_every_row_gives_groups(self, bottle: PreparedSet, row: str) -> None:
        figures = run_job(bottle, Job(row=row))
        assert 0 <= float(figures["nmi"]) <= 1  # type: ignore[arg-type]

    def test_the_best_temperature_is_the_best(self, bottle: PreparedSet) -> None:
        best = run_job(bottle, Job(row="wa", best=True))
        tried = [
            run_job(bottle, Job(row="wa", method=replace(PAPER, temperature=value)))["nmi"]
            for value in (0.1, 0.3, 1.0)
        ]
        assert float(best["nmi"]) >= max(tried)  # type: ignore[arg-type,type-var]


class TestTables:
    @pytest.fixture(scope="class")
    @staticmethod
    def outcomes(
        sets: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
    ) -> dict[str, Outcome]:
        output = tmp_path_factory.mktemp("results")
        names = [*TABLES, *PICTURES]
        few = setting(sets, output, dpi=50)  # PNG files in few pixels, which take less time
        return {one.name: one for one in run_paper(names, few)}

    @pytest.mark.parametrize("name", TABLES)
    def test_every_table_is_filled(self, outcomes: dict[str, Outcome], name: str) -> None:
        (filled,) = outcomes[name].filled
        for one in filled.cells:
            ran = not one.row.startswith("deep/")
            assert (one.value is not None) == ran, one
        assert filled.skipped == ()
        assert {path.suffix for path in outcomes[name].files} >= {".txt", ".csv", ".json", ".tex"}
        assert all(path.stat().st_size for path in outcomes[name].files)
        assert "Not given of the paper's object sets: cable, " in outcomes[name].text

    @pytest.mark.parametrize("name", PICTURES)
    def test_every_picture_is_drawn(self, outcomes: dict[str, Outcome], name: str) -> None:
        assert {path.suffix for path in outcomes[name].files} == {".svg", ".png"}
        assert len(outcomes[name].files) == 6

    def test_published_numbers_stand_beside_ours(self, outcomes: dict[str, Outcome]) -> None:
        (main,) = outcomes["main"].filled
        assert cell(main, "object", "wa").paper == 0.451
        assert cell(main, "mtd", "wa-semi", "f1").paper == 0.490
        (whole,) = outcomes["per-category"].filled
        assert cell(whole, "leather", "wa-mask").paper == 0.712
        (subsets,) = outcomes["poolings"].filled
        gem = cell(subsets, "texture", "gem", "ari")
        assert (gem.paper, gem.paper_stderr) == (0.482, 0.004)
        (deep,) = outcomes["clusterers"].filled
        assert cell(deep, "mtd", "deep/scan").paper == 0.071
        (pixels,) = outcomes["localisation"].filled
        assert cell(pixels, "overall", "wa-semi", "pixel-auroc-weights").paper == 0.973
        assert cell(pixels, "overall", "wa-semi", "pixel-auroc").paper is None

    def test_the_papers_mean_over_the_same_sets(self, outcomes: dict[str, Outcome]) -> None:
        (main,) = outcomes["main"].filled
        assert cell(main, "object", "wa").paper_same == 0.495  # bottle alone
        assert cell(main, "mtd", "wa").paper_same is None
        three = (0.607 + 0.787 + 0.390) / 3
        assert cell(main, "overall", "wa-semi").paper_same == pytest.approx(three)
        (each,) = outcomes["per-category"].filled
        assert cell(each, "object", "wa-mask").paper_same == 0.531
        assert "(=0.495)" in outcomes["main"].text
        assert "After =, the paper's mean over the same sets" in outcomes["main"].text
        assert "are over 10 and 5 categories" in outcomes["hausdorff"].text

    def test_means_are_over_sets_and_over_images(self, outcomes: dict[str, Outcome]) -> None:
        (filled,) = outcomes["main"].filled
        one = cell(filled, "overall", "wa")
        values = [float(filled.figures[name, "wa"]["nmi"]) for name in filled.n_images]  # type: ignore[arg-type]
        assert one.of == 3
        assert one.value == pytest.approx(np.mean(values))
        counts = list(filled.n_images.values())
        assert counts == [12, 12, 10]
        assert one.over_images == pytest.approx(np.average(values, weights=counts))

    def test_standard_errors_are_over_subsets(self, outcomes: dict[str, Outcome]) -> None:
        (filled,) = outcomes["poolings"].filled
        names = list(filled.n_images)
        values = np.array([filled.figures[name, "max"]["nmi"] for name in names])
        assert values.shape == (3, FEW.n_seeds)
        one = cell(filled, "overall", "max")
        means = values.mean(axis=0)
        assert one.value == pytest.approx(means.mean())
        assert one.stderr == pytest.approx(means.std(ddof=1) / np.sqrt(3))

    def test_text_says_what_an_oracle_is(self, outcomes: dict[str, Outcome]) -> None:
        text = outcomes["main"].text
        assert "k is the true number of types in each set: an oracle" in text
        assert re.search(r"object \(1 of 10\)", text)
        assert re.search(r"wa-semi +\d\.\d{3} \(0\.390\)", text)

    def test_other_layers_than_the_last_are_named(
        self, outcomes: dict[str, Outcome], sets: tuple[Path, Path]
    ) -> None:
        text = outcomes["patch-vs-holistic"].text
        assert text.startswith("Patches against the whole image, not of the last layer (Table 4")
        assert "The last hidden layer of efficientnet-lite2 is not known" in text
        files = {path.suffix: path for path in outcomes["patch-vs-holistic"].files}
        assert "The last hidden layer" in files[".tex"].read_text()
        assert "(not its last layer)" in files[".svg"].read_text()
        (main,) = outcomes["main"].filled
        assert main.table.remark == ""

    @pytest.mark.parametrize("name", ["resnet18", "resnet18:last"])
    def test_the_last_layer_of_a_network_is_known(self, name: str) -> None:
        table = TABLES["patch-vs-holistic"]
        assert run_module._layer(name, table) == (table, "resnet18:last")
        assert run_module._layer(name, TABLES["main"]) == (TABLES["main"], name)

    def test_csv_json_and_latex_hold_the_same_numbers(self, outcomes: dict[str, Outcome]) -> None:
        filled = outcomes["hausdorff"].filled
        rows = list(csv.DictReader(io.StringIO(as_csv(filled))))
        parts = json.loads(as_json(filled))
        assert len(rows) == len(parts[0]["cells"]) == len(filled[0].cells)
        for row, entry, one in zip(rows, parts[0]["cells"], filled[0].cells, strict=True):
            assert float(row["value"]) == entry["value"] == one.value
            assert row["paper"] == ("" if one.paper is None else str(one.paper))
        latex = as_latex(filled[0])
        assert latex.count("\\begin{tabular}") == latex.count("\\end{tabular}") == 1
        body = re.search(r"\\midrule\n(.*)\\bottomrule", latex, re.DOTALL)
        assert body is not None
        lines = body.group(1).strip().splitlines()
        assert [line.split(" & ")[0] for line in lines] == [
            "mean-mean", "max-min max", "max-min mean", "min-min", "mean-min max", "mean-min mean",
        ]  # fmt: skip
        assert all(line.count("&") == 4 and line.endswith(" \\\\") for line in lines)

    def test_purity_curves_are_kept(self, outcomes: dict[str, Outcome]) -> None:
        (filled,) = outcomes["purity"].filled
        curve = filled.figures["bottle", "average"]["curve"]
        assert isinstance(curve, list)
        assert len(curve) == 13
        assert curve[-1] == 1
        assert curve == sorted(curve)

    def test_localisation_finds_the_planted_flaws(self, outcomes: dict[str, Outcome]) -> None:
        (filled,) = outcomes["localisation"].filled
        found = cell(filled, "object", "wa-semi", "pixel-auroc").value
        assert found is not None
        assert found > 0.9


class TestRunning:
    def test_nothing_is_computed_twice(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chosen = setting(sets[1:], tmp_path)
        (first,) = run_paper(["main"], chosen)

        def refuse(*args: object, **options: object) -> None:
            raise AssertionError("computed again")

        for name in ("embed", "NormalReference"):
            monkeypatch.setattr(shared_module, name, refuse)
        monkeypatch.setattr(CpuEngine, "fold_peers", refuse)
        (again,) = run_paper(["main"], chosen)
        assert again.text == first.text
        assert again.filled[0].figures == first.filled[0].figures

    def test_an_interrupted_table_goes_on(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chosen = setting(sets[:1], tmp_path)

        def stop(stage: str, done: int, total: int) -> None:
            if stage.startswith("table main") and done == 6:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_paper(["main"], chosen, progress=stop)
        computed: list[str] = []
        compare = PreparedSet._compare_peers

        def count(self: PreparedSet) -> Any:
            computed.append(self.task.name)
            return compare(self)

        monkeypatch.setattr(PreparedSet, "_compare_peers", count)
        (done,) = run_paper(["main"], chosen)
        assert computed == []
        (whole,) = run_paper(["main"], setting(sets[:1], tmp_path / "other"))
        assert computed == ["bottle", "leather"]
        assert done.filled[0].cells == whole.filled[0].cells

    def test_progress_counts_sets_rows_and_seeds(
        self, prepared: list[PreparedSet], tmp_path: Path
    ) -> None:
        told: list[tuple[str, int, int]] = []
        backbone = prepared[0].backbone
        fresh = [PreparedSet(one.task, backbone, tmp_path) for one in prepared[:2]]
        table = replace(
            TABLES["poolings"],
            rows=lambda options: [
                ("max", Job(row="max", measure="subsets", n_seeds=3)),
                ("average", Job(row="average")),
                ("wa-semi 0.5", Job(row="wa-semi", share=0.5)),
            ],
        )
        for _ in range(2):
            fill(table, fresh, FEW, progress=lambda *one: told.append(one))
        name = "table poolings"
        first = [(stage, done) for stage, done, _ in told[:13]]
        assert first == [
            (f"{name} (bottle, max)", 0),
            (f"{name} (bottle, max, seed 1 of 3)", 1),
            (f"{name} (bottle, max, seed 2 of 3)", 2),
            (f"{name} (bottle, max, seed 3 of 3)", 3),
            (f"{name} (bottle, max)", 3),
            (f"{name} (bottle, average)", 3),
            (f"{name} (bottle, average)", 4),
            (f"{name} (bottle, wa-semi 0.5)", 4),
            (f"{name} (bottle, wa-semi 0.5, seed 1 of 3)", 5),
            (f"{name} (bottle, wa-semi 0.5, seed 2 of 3)", 6),
            (f"{name} (bottle, wa-semi 0.5, seed 3 of 3)", 7),
            (f"{name} (bottle, wa-semi 0.5)", 7),
            (f"{name} (leather, max)", 7),
        ]
        assert {total for _, _, total in told} == {14}
        # The second time everything is there: a row is one leap.
        again = [(stage, done) for stage, done, _ in told[24:]]
        assert again[:3] == [
            (f"{name} (bottle, max)", 0),
            (f"{name} (bottle, max)", 3),
            (f"{name} (bottle, average)", 3),
        ]
        assert again[-1] == (f"{name} (leather, wa-semi 0.5)", 14)

    def test_what_is_skipped_counts_as_done(
        self, prepared: list[PreparedSet], tmp_path: Path
    ) -> None:
        folder = make_mvtec(tmp_path / "mvtec", ("bottle",))
        for path in (folder / "bottle" / "train" / "good").iterdir():
            path.unlink()
        (task,) = find_tasks([folder])
        bare = PreparedSet(task, prepared[0].backbone, tmp_path)
        told: list[tuple[str, int, int]] = []
        fill(TABLES["labelled-normals"], [bare], FEW, progress=lambda *one: told.append(one))
        assert told[-1] == ("table labelled-normals (bottle, wa-semi 1)", 20, 20)

    @pytest.mark.parametrize(
        "job",
        [
            Job(row="wa", measure="subsets", n_seeds=5),
            Job(row="max-hausdorff", measure="subsets", n_seeds=5, clusterer="spectral"),
            Job(row="wa-semi", share=0.5),
        ],
        ids=["weights", "distances", "normals"],
    )
    @pytest.mark.parametrize("damage", [None, b"", b'[{"nmi": 0.', b"{}", b'[{"nmi": 1.0}]'])
    def test_an_interrupted_row_goes_on_at_its_seed(
        self,
        prepared: list[PreparedSet],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        job: Job,
        damage: bytes | None,
    ) -> None:
        task, backbone = prepared[0].task, prepared[0].backbone
        whole = run_job(prepared[0], job)
        clustered: list[str] = []
        labels = Representation.labels

        def count(self: Representation, k: int, clusterer: str = "ward", seed: int = 0) -> Any:
            clustered.append(clusterer)
            return labels(self, k, clusterer, seed)

        monkeypatch.setattr(Representation, "labels", count)

        def stop(done: int) -> None:
            if done == 2:
                raise KeyboardInterrupt

        chosen = PreparedSet(task, backbone, tmp_path)
        shutil.copytree(prepared[0].home / "bags", chosen.home / "bags")
        with pytest.raises(KeyboardInterrupt):
            run_job(chosen, job, drawn=stop)
        (part,) = (chosen.folder / "figures").iterdir()
        way = chosen.search if job.row == "wa-semi" else ""  # how normals were searched
        assert part.name == f"{job.key()}{way}.part"
        if damage is not None:
            part.write_bytes(damage)
        clustered.clear()
        told: list[int] = []
        assert run_job(chosen, job, drawn=told.append) == whole
        there = 2 if damage is None else 0
        assert clustered == [job.clusterer] * (job.n_draws - there)
        assert told == list(range(2 if there else 1, job.n_draws + 1))
        assert [path.name for path in (chosen.folder / "figures").iterdir()] == [
            f"{job.key()}{way}.json"
        ]

    def test_seeds_of_another_count_are_no_part(
        self, prepared: list[PreparedSet], tmp_path: Path
    ) -> None:
        chosen = PreparedSet(prepared[0].task, prepared[0].backbone, tmp_path)
        told: list[int] = []
        few, many = (Job(row="average", measure="subsets", n_seeds=n) for n in (2, 4))
        assert len(run_job(chosen, few)["nmi"]) == 2  # type: ignore[arg-type]
        assert len(run_job(chosen, many, drawn=told.append)["nmi"]) == 4  # type: ignore[arg-type]
        assert told == [1, 2, 3, 4]

    def test_damaged_files_are_computed_again(
        self, sets: tuple[Path, Path], tmp_path: Path
    ) -> None:
        chosen = setting(sets[1:], tmp_path)
        (first,) = run_paper(["main"], chosen)
        for path in tmp_path.rglob("computed/**/*.*"):
            path.write_bytes(path.read_bytes()[:20])
        (again,) = run_paper(["main"], chosen)
        assert again.filled[0].cells == first.filled[0].cells

    def test_other_settings_have_their_own_results(
        self, sets: tuple[Path, Path], tmp_path: Path
    ) -> None:
        narrow = Options(method=replace(PAPER, temperature=0.01), n_seeds=3)
        (first,) = run_paper(["main"], setting(sets[1:], tmp_path))
        (other,) = run_paper(["main"], setting(sets[1:], tmp_path, options=narrow))
        kept = list(tmp_path.rglob("figures/*.json"))
        assert len(kept) == 6  # average and Hausdorff are shared
        assert cell(first.filled[0], "mtd", "average") == cell(other.filled[0], "mtd", "average")

    def test_the_best_temperature_is_marked(self, sets: tuple[Path, Path], tmp_path: Path) -> None:
        best = Options(best=True, n_seeds=3)
        for name, marked in (("main", True), ("clusterers", True), ("labelled-normals", False)):
            (found,) = run_paper([name], setting(sets[1:], tmp_path, options=best))
            assert ("best of several for each set by NMI: an oracle" in found.text) is marked
            assert ("The best temperature is not looked for here; 0.3" in found.text) is not marked

    def test_other_labels_are_another_set(
        self, prepared: list[PreparedSet], tmp_path: Path
    ) -> None:
        folder = make_mvtec(tmp_path / "mvtec", ("bottle",))
        keys = []
        for change in ("nothing", "label", "mask"):
            if change == "label":
                (folder / "bottle" / "test" / "cut").rename(folder / "bottle" / "test" / "scratch")
            if change == "mask":
                mask = folder / "bottle" / "ground_truth" / "hole" / "000_mask.png"
                mask.write_bytes(mask.with_name("001_mask.png").read_bytes())
            (task,) = find_tasks([folder])
            keys.append(PreparedSet(task, prepared[0].backbone, tmp_path).key)
        assert len(set(keys)) == 3

    def test_images_are_resized_as_asked(self, sets: tuple[Path, Path], tmp_path: Path) -> None:
        chosen = setting(sets[1:], tmp_path, view=View(resample="bicubic"))
        run_paper(["main"], chosen)
        run_paper(["main"], setting(sets[1:], tmp_path))
        assert len(list((tmp_path / "computed").iterdir())) == 2

    def test_what_a_set_lacks_is_named_and_skipped(
        self, prepared: list[PreparedSet], tmp_path: Path
    ) -> None:
        folder = make_mvtec(tmp_path / "mvtec", ("bottle", "leather"))
        for path in (folder / "bottle" / "train" / "good").iterdir():
            path.unlink()
        for path in (folder / "leather" / "ground_truth").rglob("*.png"):
            path.unlink()
        backbone = prepared[0].backbone
        bare = [PreparedSet(task, backbone, tmp_path) for task in find_tasks([folder])]
        filled = fill(TABLES["per-category"], bare, FEW)
        assert filled.skipped == (
            "bottle, wa-semi: no normal images",
            "leather, wa-mask: no masks",
        )
        assert cell(filled, "bottle", "wa-semi").value is None
        overall = cell(filled, "overall", "wa-semi")
        assert overall.of == 1
        assert overall.paper_same == 0.787  # leather alone, as ours
        assert overall.value == cell(filled, "leather", "wa-semi").value
        assert "Skipped: bottle, wa-semi: no normal images." in as_text(filled)

    def test_an_image_that_cannot_be_read_is_named(
        self, prepared: list[PreparedSet], tmp_path: Path
    ) -> None:
        folder = make_mvtec(tmp_path / "mvtec", ("bottle",))
        path = folder / "bottle" / "test" / "hole" / "001.png"
        path.write_bytes(path.read_bytes()[:60])
        (task,) = find_tasks([folder])
        broken = PreparedSet(task, prepared[0].backbone, tmp_path)
        with pytest.raises(InputError, match=r"'bottle' has 1 image that cannot be read.*001.png"):
            run_job(broken, Job(row="average"))

    def test_deep_images_get_a_window(self, prepared: list[PreparedSet], tmp_path: Path) -> None:
        folder = make_mvtec(tmp_path / "mvtec", ("bottle",))
        for path in (folder / "bottle").rglob("*.png"):
            if "ground_truth" not in path.parts:
                grey = np.asarray(Image.open(path).convert("L")).astype(np.uint16)
                Image.fromarray(grey * 16 + 1000).save(path)
        (task,) = find_tasks([folder])
        deep = PreparedSet(task, prepared[0].backbone, tmp_path)
        assert deep.view.window is not None
        assert deep.view.window[0] >= 1000
        assert 0 <= float(run_job(deep, Job(row="wa-semi"))["nmi"]) <= 1  # type: ignore[arg-type]

    @pytest.mark.parametrize("row", ["average", "holistic"])
    def test_every_row_needs_all_images(
        self, prepared: list[PreparedSet], tmp_path: Path, row: str
    ) -> None:
        folder = make_mvtec(tmp_path / "mvtec", ("bottle",))
        path = folder / "bottle" / "test" / "hole" / "001.png"
        path.write_bytes(path.read_bytes()[:60])
        (task,) = find_tasks([folder])
        with pytest.raises(InputError, match="1 image that cannot be read"):
            run_job(PreparedSet(task, prepared[0].backbone, tmp_path), Job(row=row))

    def test_masks_that_are_missing_or_damaged_are_named(
        self, prepared: list[PreparedSet], tmp_path: Path
    ) -> None:
        folder = make_mvtec(tmp_path / "mvtec", ("bottle",))
        mask = folder / "bottle" / "ground_truth" / "hole" / "001_mask.png"
        mask.write_bytes(b"no image")
        (task,) = find_tasks([folder])
        with pytest.raises(InputError, match=r"The mask '.*001_mask.png' cannot be read"):
            run_job(PreparedSet(task, prepared[0].backbone, tmp_path), Job(row="wa-mask"))
        mask.unlink()
        (task,) = find_tasks([folder])
        assert Job(row="wa-mask").lacks(task) == "masks for 1 of its flawed images"

    def test_masks_of_ones_mark_as_those_of_255(
        self, prepared: list[PreparedSet], tmp_path: Path
    ) -> None:
        folder = make_mvtec(tmp_path / "mvtec", ("bottle",))
        for path in (folder / "bottle" / "ground_truth").rglob("*.png"):
            values = np.asarray(Image.open(path))
            Image.fromarray((values > 0).astype(np.uint8)).save(path)
        (task,) = find_tasks([folder])
        found = PreparedSet(task, prepared[0].backbone, tmp_path).mask_shares
        np.testing.assert_array_equal(found, prepared[0].mask_shares)

    def test_without_matplotlib_there_are_tables(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        shown: list[str] = []
        chosen = setting(sets[1:], tmp_path)
        outcomes = run_paper(
            ["tau", "attention"], chosen, done=lambda outcome: shown.append(outcome.name)
        )
        assert shown == ["tau", "attention"]
        assert all("flawsort[paper]" in outcome.text for outcome in outcomes)
        assert (tmp_path / "tau.csv").is_file()

    @pytest.mark.parametrize(
        ("name", "others", "stem"),
        [
            ("main", {}, "main"),
            ("main", {"options": Options(best=True)}, "main_temperature-best"),
            (
                "main",
                {"options": Options(method=replace(PAPER, temperature=0.5), n_seeds=7)},
                "main_temperature-0.5",
            ),
            (
                "poolings",
                {
                    "options": Options(
                        method=replace(PAPER, temperature=None, absolute_temperature=0.02),
                        n_seeds=7,
                    ),
                    "exact": False,
                },
                "poolings_tau-0.02_seeds-7_approximate",
            ),
            ("tau", {"options": Options(method=replace(PAPER, temperature=0.5))}, "tau"),
            (
                "clusterers",
                {"training": Training(times=5, scan_rate=5.0), "leave_out": True},
                "clusterers_deep-times-5_deep-scan-rate-5_without-combined",
            ),
            ("main", {"training": Training(times=5)}, "main"),
            ("main", {"view": View(resample="bicubic")}, "main_resample-bicubic"),
            ("tau", {"view": View(resample="bicubic")}, "tau_resample-bicubic"),
            ("attention", {"split_seed": 3}, "attention_split-seed-3"),
            (
                "clusterers",
                {"training": Training(weights=Path("of mine/resnet50 (v2).pth"))},
                "clusterers_deep-weights-resnet50--v2-",
            ),
            ("main", {"training": Training(weights=Path("resnet50.pth"))}, "main"),
        ],
    )
    def test_files_are_named_by_what_is_not_usual(
        self, tmp_path: Path, name: str, others: dict[str, Any], stem: str
    ) -> None:
        assert Setting(data=(), output=tmp_path, **others).stem(name) == stem

    def test_another_setting_overwrites_nothing(
        self, sets: tuple[Path, Path], tmp_path: Path
    ) -> None:
        run_paper(["hausdorff"], setting(sets[:1], tmp_path))
        before = (tmp_path / "hausdorff.txt").read_bytes()
        run_paper(["hausdorff"], setting(sets[:1], tmp_path, leave_out=True))
        assert (tmp_path / "hausdorff.txt").read_bytes() == before
        text = (tmp_path / "hausdorff_without-combined.txt").read_text("utf-8")
        assert "combined left out before clustering" in text

    def test_a_sweep_names_no_temperature(self, sets: tuple[Path, Path], tmp_path: Path) -> None:
        (outcome,) = run_paper(["tau-absolute"], setting(sets[1:], tmp_path))
        (part,) = json.loads((tmp_path / "tau-absolute.json").read_text("utf-8"))
        assert not {"temperature", "tau"} & set(part["settings"])
        (filled,) = outcome.filled
        assert cell(filled, "mtd", "wa 0.02").value is not None

    def test_settings_are_written(self, sets: tuple[Path, Path], tmp_path: Path) -> None:
        run_paper(["main"], setting(sets[1:], tmp_path))
        (part,) = json.loads((tmp_path / "main.json").read_text("utf-8"))
        assert part["settings"] == {
            "temperature": 0.3,
            "subsets": 3,
            "input": "64 x 64",
            "resample": "bilinear",
            "search among normals": "exact",
            "split seed": 0,
        }
        assert "Settings: temperature 0.3, " in (tmp_path / "main.txt").read_text("utf-8")

    def test_an_approximate_search_is_told_with_what_it_found(
        self, sets: tuple[Path, Path], tmp_path: Path
    ) -> None:
        chosen = setting(sets, tmp_path, exact=False)
        (main, shares, hausdorff) = run_paper(["main", "labelled-normals", "hausdorff"], chosen)
        said = (
            "Normals were searched approximately, in inverted lists. The highest-scoring patches "
            r"whose nearest one was found: bottle [0-9.]+% of {0}, leather [0-9.]+% of {0}, "
            r"mtd [0-9.]+% of {0}\."
        )
        assert re.search(said.format("80"), main.text)
        # Three draws of each of six shares, and all.
        assert re.search(said.format("1,520"), shares.text)
        assert "inverted lists." not in hausdorff.text
        (part,) = json.loads((tmp_path / "main_approximate.json").read_text("utf-8"))
        assert part["settings"]["search among normals"] == "approximate, in inverted lists"
        (again,) = run_paper(["main"], chosen)
        assert again.text == main.text
        (exact,) = run_paper(["main"], setting(sets, tmp_path))
        assert "inverted lists" not in exact.text
        assert "search among normals exact" in exact.text

    def test_long_comparisons_are_foretold(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(foresight, "SLOWEST", 0.0)
        pair = 2 * 64 * 64 * 168
        monkeypatch.setattr(foresight, "comparing_rate", lambda *given: pair / 60)
        told: list[str] = []
        some, chosen = ["main", "hausdorff", "top-k"], setting(sets[1:], tmp_path)
        run_paper(some, chosen, notice=told.append)
        engine = "Patches are compared exactly (NumPy on the CPU, float32), which takes about"
        # 10 images with each other and with 8 normals; then the mean-mean distances of all pairs.
        assert told == [
            f"main: {engine} 2.1 hours. --approximate is faster, and then the results say how much "
            "of it is right.",
            f"hausdorff: {engine} 45 minutes.",
        ]
        run_paper(some, chosen, notice=told.append)
        assert len(told) == 2

    def test_only_some_of_the_sets(self, sets: tuple[Path, Path], tmp_path: Path) -> None:
        (found,) = run_paper(["main"], setting(sets, tmp_path, only=("leather",)))
        assert list(found.filled[0].n_images) == ["leather"]
        with pytest.raises(OptionError, match=r"among bottle, leather, mtd. Got tile"):
            run_paper(["main"], setting(sets, tmp_path, only=("tile",)))

    def test_files_of_sets_left_out_are_never_opened(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = make_mvtec(tmp_path / "mvtec")
        (folder / "bottle" / "test" / "hole" / "000.png").write_bytes(b"")  # refused if looked at
        opened: list[Path] = []
        hashed = files_module.digest_of

        def note(path: Path) -> tuple[str, str]:
            opened.append(path)
            return hashed(path)

        for module in (files_module, shared_module):
            monkeypatch.setattr(module, "digest_of", note)
        data = (folder, sets[1])
        with pytest.raises(OptionError, match=r"^only must name sets among bottle, leather, mtd"):
            find_tasks(data, only=("leather", "tile"))
        assert opened == []
        for only, home in (("leather", folder / "leather"), ("mtd", sets[1])):
            chosen = setting(data, tmp_path / "results", only=(only,))
            (found,) = run_paper(["main"], chosen)
            assert list(found.filled[0].n_images) == [only]
            assert opened
            assert all(path.is_relative_to(home) for path in opened)
            opened.clear()
        with pytest.raises(InputError, match=r"hole/000.png"):
            find_tasks(data, only=("bottle",))

    @pytest.mark.parametrize(
        ("names", "others", "message"),
        [
            (["table"], {}, r"table must be all or some of main, .*Got 'table'"),
            (["main"], {"backbones": ("a", "b"), "weights": Path("x")}, "fits one backbone. Got 2"),
            (["main"], {"backbones": ("no such",)}, "backbone must be"),
        ],
    )
    def test_errors(
        self,
        sets: tuple[Path, Path],
        tmp_path: Path,
        names: list[str],
        others: dict[str, Any],
        message: str,
    ) -> None:
        with pytest.raises(FlawsortError, match=message):
            run_paper(names, setting(sets, tmp_path, **others))

    def test_pictures_do_not_hide_a_wrong_option(
        self, sets: tuple[Path, Path], tmp_path: Path
    ) -> None:
        chosen = setting(sets[1:], tmp_path, weights=Path("net.pth"))
        with pytest.raises(OptionError, match="weights are for the networks"):
            run_paper(["attention"], chosen)

    def test_without_torch_another_way_is_named(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("torch", "timm"):
            monkeypatch.setitem(sys.modules, name, None)
        chosen = Setting(data=sets[1:], output=tmp_path)
        with pytest.raises(FlawsortError, match=r"flawsort\[torch\].*--backbone efficientnet"):
            run_paper(["main"], chosen)

    def test_several_extractors_and_one_that_is_not_there(
        self, sets: tuple[Path, Path], tmp_path: Path
    ) -> None:
        chosen = setting(
            sets[1:], tmp_path, backbones=("efficientnet-lite2", str(tmp_path / "none.onnx"))
        )
        (found,) = run_paper(["feature-extractors"], chosen)
        assert [part.backbone for part in found.filled] == ["efficientnet-lite2"]
        assert "Skipped: Cannot read the backbone file" in found.text
        none = setting(sets[1:], tmp_path, backbones=("one.onnx", "two.onnx"))
        with pytest.raises(FlawsortError, match=r"Cannot read the backbone file 'two\.onnx'"):
            run_paper(["feature-extractors"], none)


def test_the_listing_names_everything() -> None:
    rows = listing()
    assert [row[0] for row in rows] == [*TABLES, *PICTURES]
    assert all(all(part for part in row) for row in rows)
