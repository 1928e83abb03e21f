"""benchmarks/quality.py: settings, figures over subsets, and a whole run on a small set."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from flawsort import AnomalyClusterer
from flawsort.clusters.ward import cut, ward_linkage
from flawsort.embeddings.method import PRESETS
from flawsort.embeddings.weights import image_scores
from flawsort.images.view import View
from flawsort.research.metrics import agreement, auroc
from flawsort.research.truth import load_datasets
from helpers.bags import blobs
from helpers.plates import ROOT, plate


class TestCandidates:
    def test_a_field_by_its_type(self, quality: ModuleType) -> None:
        found = quality.candidate_setting(
            "sharp:temperature=0.5,n_peers=48,exact=true,pooling=average,nearest_share=1"
        )
        assert found.name == "sharp"
        assert found.method == replace(
            PRESETS["default"],
            temperature=0.5,
            n_peers=48,
            exact=True,
            pooling="average",
            nearest_share=1.0,
        )
        assert isinstance(found.method.nearest_share, float)
        assert found.estimator == {}

    def test_words_and_none(self, quality: ModuleType) -> None:
        assert quality.candidate_setting("x:n_peers=all").method.n_peers == "all"
        found = quality.candidate_setting("x:preset=paper,n_peers=none,exact=False")
        assert found.method.n_peers is None
        assert found.method.exact is False
        assert found.method.nearest_share == PRESETS["paper"].nearest_share

    def test_parameters_of_the_estimator(self, quality: ModuleType) -> None:
        found = quality.candidate_setting("big:backbone=a/b.onnx,image_size=384")
        assert found.estimator == {"backbone": "a/b.onnx", "image_size": 384}
        assert found.method == PRESETS["default"]
        assert found.record()["image_size"] == 384
        assert found.record()["method"]["pooling"] == found.method.pooling

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("sharp", r"NAME:field=value,field=value\. Got 'sharp'"),
            ("sharp:temperature", r"Got 'sharp:temperature'"),
            ("default:temperature=1", r"not that of a preset\. Got 'default'"),
            ("plain:temperature=1", r"Got 'plain'"),
            ("a name too long:exact=true", r"1 to 14 characters"),
            ("x:preset=best", r"a preset is one of .*, plain\. Got 'best'"),
            ("x:heat=1", r"a field is one of preset, weights.*image_size\. Got 'heat'"),
            ("x:temperature=warm", r"temperature must be float \| None\. Got 'warm'"),
            ("x:exact=1", r"exact must be bool \| None\. Got '1'"),
            ("x:nearest_share=none", r"nearest_share must be .*float.*Got 'none'"),
            ("x:nearest_share=2", r"'x:nearest_share=2' is no method: .*at most 1"),
        ],
    )
    def test_what_is_no_candidate(self, quality: ModuleType, text: str, message: str) -> None:
        with pytest.raises(argparse.ArgumentTypeError, match=message):
            quality.candidate_setting(text)

    def test_one_name_for_two_settings_or_two_names_for_one(
        self, quality: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = ["--data", str(tmp_path), "--presets", "default", "--candidate"]
        for more, message in (
            (["x:exact=true", "x:exact=false"], "two settings are called 'x'"),
            (["x:exact=none"], "'default' and 'x' are the same setting"),
        ):
            with pytest.raises(SystemExit):
                quality.main([*given, *more])
            assert message in capsys.readouterr().err


class TestDocuments:
    def test_every_command_is_one_that_runs(self, quality: ModuleType) -> None:
        pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        command = re.compile(r"python benchmarks/quality\.py((?:[^\n`]|(?<=\\)\n)*)")
        found = [line for page in pages for line in command.findall(page.read_text("utf-8"))]
        assert any("--leave-one-out" in one and "--candidate" in one for one in found)
        parser = quality.make_parser()
        for one in found:
            options = parser.parse_args(one.replace("\\\n", " ").split())
            assert quality.chosen_settings(options, parser)


class TestSubsets:
    LABELS = ("a",) * 10 + ("b",) * 10 + ("combined",) * 5

    def test_against_a_plain_loop(self, quality: ModuleType) -> None:
        vectors = np.random.default_rng(0).normal(size=(25, 3))
        vectors[10:20] += 1.5
        found = []
        for seed in range(3):
            some = sorted(np.random.default_rng(seed).permutation(25)[:22].tolist())
            groups = cut(ward_linkage(vectors[some]), 2)
            pairs = [(self.LABELS[i], g) for i, g in zip(some, groups, strict=True) if i < 20]
            found.append(agreement([a for a, _ in pairs], [g for _, g in pairs]).nmi)
        mean, error = quality.subset_figures(vectors, self.LABELS, 3)
        assert 0 < mean < 1
        assert mean == pytest.approx(np.mean(found))
        assert error == pytest.approx(np.std(found) / np.sqrt(3))

    def test_clear_groups_and_no_subsets(self, quality: ModuleType) -> None:
        vectors = blobs([10, 10])
        mean, error = quality.subset_figures(vectors, self.LABELS[:20], 4)
        assert (mean, error) == (pytest.approx(1), pytest.approx(0))
        assert quality.subset_figures(vectors, self.LABELS[:20], 0) == (None, None)


@pytest.fixture(scope="module")
def category(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MVTec AD category of plates, with masks of the dents alone."""
    folder = tmp_path_factory.mktemp("sets") / "plates"
    for kind, places in (("dent", range(7)), ("streak", range(7, 14)), ("good", range(14, 20))):
        (folder / "test" / kind).mkdir(parents=True)
        for number in places:
            Image.fromarray(plate(kind, number)).save(folder / "test" / kind / f"{number}.png")
    (folder / "ground_truth" / "dent").mkdir(parents=True)
    for number in range(7):
        dark = plate("dent", number).max(axis=2) < 30
        Image.fromarray(dark).save(folder / "ground_truth" / "dent" / f"{number}_mask.png")
    (folder / "train" / "good").mkdir(parents=True)
    for number in range(20, 30):
        Image.fromarray(plate("good", number)).save(folder / "train" / "good" / f"{number}.png")
    return folder


class TestWholeRun:
    CANDIDATES = ("small:image_size=64", "flat:preset=plain,image_size=64")

    def test_rows_are_measured_once(
        self,
        quality: ModuleType,
        results: ModuleType,
        category: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        path = tmp_path / "rows.jsonl"
        given = ["--data", str(category.parent), "--results", str(path), "--subsets", "2",
                 "--leave-one-out", "--presets", "--candidate", *self.CANDIDATES]  # fmt: skip
        quality.main(given)
        first = capsys.readouterr().out
        rows = {(one.name, one.mode): one for one in results.read_rows(path)}
        # Uniform weights compare nothing: no normals, no scores.
        assert set(rows) == {("small", "none"), ("small", "normals"), ("flat", "none")}
        known, flat = rows["small", "normals"], rows["flat", "none"]
        assert (known.images, known.normals, known.kinds) == (20, 10, 3)
        assert (flat.auroc, flat.pixel_auroc, flat.precision) == (None, None, None)
        assert known.auroc > 0.9
        assert known.pixel_auroc > 0.9
        assert 0 <= known.precision <= 1
        assert rows["small", "none"].precision is None
        assert "(an oracle)" in first
        assert max(len(line) for line in first.splitlines()) <= 120

        monkeypatch.setattr(quality, "measure", None)  # would fail if it were called
        quality.main(given)
        assert capsys.readouterr().out == first
        # One setting of the file is enough to see all of them in the means.
        quality.main([*given[:-1], "--modes", "none"])
        means = capsys.readouterr().out.partition("Mean NMI")[2]
        assert "none    flat " in means

    def test_a_row_is_the_fit_that_users_get(self, quality: ModuleType, category: Path) -> None:
        (data,) = load_datasets(category)
        setting = quality.candidate_setting(self.CANDIDATES[0])
        model = AnomalyClusterer(n_clusters=3, image_size=64, cache=None)
        model.fit(data.images, normal=data.normals)
        identity = dict(set="plates", mode="normals", setting={}, subsets=0, version="",
                        images=20, normals=10)  # fmt: skip
        options = argparse.Namespace(cache=None, max_memory=None, subsets=0)
        found = quality.measure(data, setting, identity, options)
        assert found.nmi == agreement(data.labels, model.labels_).nmi
        assert found.advised == model.advice_.k

    def test_the_score_of_a_photo_in_tiles_is_that_of_its_worst_tile(
        self, quality: ModuleType, category: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (data,) = load_datasets(category)
        # By turns, so that nearly every change of the order of the scores shows.
        data = replace(data, labels=tuple("good" if i % 2 else "dent" for i in range(20)))
        model = AnomalyClusterer(
            n_clusters=2, method="fast", image_size=64, view=View(tiles=(4, 4)), cache=None
        ).fit(data.images)
        monkeypatch.setattr(quality, "fit", lambda *_: (model, 1.0))
        identity = dict(set="plates", mode="none", setting={}, subsets=0, version="",
                        images=20, normals=0)  # fmt: skip
        setting = quality.candidate_setting(self.CANDIDATES[0])
        found = quality.measure(data, setting, identity, argparse.Namespace(subsets=0))
        flawed = np.array(data.labels) != "good"
        assert found.auroc == auroc(model.image_scores_, flawed)
        assert found.auroc != auroc(image_scores(model.scores_, model.valid_), flawed)

    def test_flawed_images_without_a_mask_have_no_say(
        self, quality: ModuleType, category: Path
    ) -> None:
        (data,) = load_datasets(category)
        # The masks themselves as scores, and streaks, which have none, hotter than everything.
        scores = np.zeros((20, 64 * 64))
        for i, mask in enumerate(data.masks):
            if mask is not None:
                scores[i] = np.asarray(Image.open(mask)).ravel()
        scores[[label == "streak" for label in data.labels]] = 2
        assert quality.pixel_figure(scores, (64, 64), data) > 0.99
        unmarked = replace(data, masks=(None,) * 20)
        assert quality.pixel_figure(scores, (64, 64), unmarked) is None

    def test_sets_by_name(self, quality: ModuleType, category: Path) -> None:
        (found,) = quality.load_sets([category.parent], ["plates"])
        assert found.name == "plates"
        with pytest.raises(SystemExit, match=r"no set is called 'neu'\. Found: plates"):
            quality.load_sets([category.parent], ["neu"])
        with pytest.raises(SystemExit, match="Two sets are called 'plates'"):
            quality.load_sets([category, category.parent], [])
