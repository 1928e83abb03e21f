"""benchmarks/teach.py: the simulated person, the ways to use answers, the tables, a whole run."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from flawsort import AnomalyClusterer
from flawsort.embeddings.weights import image_scores
from flawsort.images.view import View
from helpers.plates import plate


@pytest.fixture(scope="module")
def ways(quality: ModuleType) -> ModuleType:
    return importlib.import_module("teach_ways")


@pytest.fixture(scope="module")
def tables(quality: ModuleType) -> ModuleType:
    return importlib.import_module("teach_tables")


@pytest.fixture(scope="module")
def teach(quality: ModuleType) -> ModuleType:
    return importlib.import_module("teach")


@pytest.fixture(scope="module")
def truth() -> NDArray[np.int64]:
    return np.repeat(np.arange(3), (12, 12, 3))


@pytest.fixture(scope="module")
def embeddings(truth: NDArray[np.int64]) -> NDArray[np.float64]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 8))[truth] * 3 + rng.normal(size=(len(truth), 8))


class TestAnswers:
    def test_some_of_every_kind_and_at_most_half(
        self, ways: ModuleType, truth: NDArray[np.int64]
    ) -> None:
        answers = list(ways.order_of(truth, 5, np.random.default_rng(0)))
        rows, kinds = np.array(answers).T
        assert np.bincount(kinds).tolist() == [5, 5, 1]
        assert (truth[rows] == kinds).all()
        assert len(set(rows)) == len(rows)

    def test_another_draw_has_other_images(
        self, ways: ModuleType, truth: NDArray[np.int64]
    ) -> None:
        one, other = (list(ways.order_of(truth, 3, np.random.default_rng(seed))) for seed in (0, 1))
        assert one != other

    def test_a_few_answers_are_wrong(self, ways: ModuleType) -> None:
        answers = [(row, 0) for row in range(2000)]
        found = ways.with_errors(answers, 5, np.random.default_rng(0))
        assert [row for row, _ in found] == list(range(2000))
        # One of five errors names the right kind by chance.
        assert np.mean([kind != 0 for _, kind in found]) == pytest.approx(0.04, abs=0.01)


class TestNewImages:
    def test_named_as_assign_does(self, ways: ModuleType) -> None:
        judged = np.array(
            [[0.95, 0.05, 0], [0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.2, 0.2, 0.6]]
        )
        far = np.array([-1, -1, 0, 0, -1])
        looks = np.array([False, False, False, False, True])
        new = ways.Seen(np.zeros(5, np.int64), 1, np.zeros((5, 2)), looks)
        assert ways.as_assigned(judged, far, new).tolist() == [0, -1, 0, -1, 1]

    def test_a_kind_that_the_run_does_not_have(
        self, ways: ModuleType, teach: ModuleType, truth: NDArray[np.int64]
    ) -> None:
        middles = 6 * np.eye(8)[:3]
        shares: list[float] = []
        for seed in range(4):
            rng = np.random.default_rng(seed)
            seen = [
                ways.Seen(
                    truth, None, middles[truth] + rng.normal(size=(len(truth), 8)) * 0.5, truth < 0
                )
                for _ in range(2)
            ]
            assert (ways.far_from(seen[0], seen[1]) == 0).mean() > 0.9
            found = teach.unseen(*seen, 2)
            shares += found["unseen found"]
            # Hardly any other image is called a new kind.
            assert max(found["unseen wrong"]) < 0.1
        # About .62. Single sets and numbers of answers range from .4 to .8.
        assert 0.35 < np.mean(shares) < 0.9
        assert min(shares) > 0.2


class TestWays:
    def test_clusters_have_the_name_that_most_answers_say(self, ways: ModuleType) -> None:
        embeddings = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [9.0], [9.1]])
        clusters = np.array([0, 0, 0, 1, 1, 2, 2])
        found = ways.by_clusters(embeddings, clusters, [(0, 1), (1, 2), (2, 2), (3, 0)])
        # The last cluster has no answers; the second is nearer to it than the first.
        assert found.tolist() == [2, 2, 2, 0, 0, 0, 0]

    def test_the_nearest_answer(self, ways: ModuleType) -> None:
        embeddings = np.array([[0.0], [1.0], [4.0], [5.0]])
        assert ways.by_nearest(embeddings, [(0, 7), (3, 2)]).tolist() == [7, 7, 2, 2]

    def test_clear_kinds_are_sorted_by_all_ways(
        self, ways: ModuleType, truth: NDArray[np.int64], embeddings: NDArray[np.float64]
    ) -> None:
        answers = list(ways.order_of(truth, 4, np.random.default_rng(0)))
        assert (ways.by_regression(embeddings, answers) == truth).mean() > 0.9
        seen = ways.Seen(truth, None, embeddings, np.zeros(len(truth), bool))
        student = ways.Student.of(seen)
        judged = student.judge(student.fit(answers))
        assert judged.shape == (len(truth), 4)
        assert (judged.argmax(axis=1) == truth).mean() > 0.9

    def test_a_kind_that_nobody_named_has_no_probability(
        self, ways: ModuleType, truth: NDArray[np.int64], embeddings: NDArray[np.float64]
    ) -> None:
        seen = ways.Seen(truth, 0, embeddings, np.zeros(len(truth), bool))
        student = ways.Student.of(seen)
        taught = student.fit([(0, 0), (1, 0), (26, 2)])
        judged = student.judge(taught, seen.take(np.array([12, 13])))
        assert (judged[:, 1] == 0).all()
        np.testing.assert_allclose(judged.sum(axis=1), 1)

    def test_the_calibration_error_by_hand(self, ways: ModuleType) -> None:
        probability = np.array([0.92, 0.98, 0.55, 0.51, 1.0])
        right = np.array([True, False, True, True, True])
        # The bin from .9 has 2.9 expected of 2 right; the bin from .5 has 1.06 of 2.
        assert ways.calibration_error(probability, right) == pytest.approx((0.9 + 0.94) / 5)


class TestOrders:
    def test_answers_teach_in_any_order(
        self, teach: ModuleType, ways: ModuleType, truth: NDArray[np.int64]
    ) -> None:
        far = np.eye(3, 8)[truth] * 9
        embeddings = far + np.random.default_rng(1).normal(size=far.shape)
        looks_normal = truth == 0
        seen = ways.Seen(truth, 0, embeddings, looks_normal)
        found = teach.reviewed(seen, truth[::-1].copy(), 2)
        orders = {"each", "drawn", "queue", "queue 60%"}
        assert set(found) == orders | {f"{name} rest" for name in orders}
        assert found["each"][2] == found["queue"][2] == 1
        assert all(np.diff(found["queue"]) >= 0)
        assert found == teach.reviewed(seen, truth[::-1].copy(), 2)


class TestTables:
    def row(self, tables: ModuleType, name: str, taught: float) -> object:
        names = (*tables.SHARES, *tables.ORDERS, *tables.RESTS, *tables.OTHERS)
        figures = {one: [0.5] * len(tables.COUNTS) for one in names}
        figures |= {
            "queue 60%": [0.4, 0.6, 0.5, 0.6],
            "taught": [taught] * len(tables.COUNTS),
            "all": [0.9],
        }
        return tables.Row(
            set=name,
            mode="normals",
            preset="fast",
            seeds=2,
            images=9,
            version="1",
            figures=figures,
        )

    def test_rows_come_back_from_their_file(self, tables: ModuleType, tmp_path: Path) -> None:
        path, rows = tmp_path / "new" / "rows", [self.row(tables, one, 0.6) for one in "ab"]
        assert tables.read_rows(path) == []
        tables.append_row(path, rows[0])
        path.write_text(path.read_text("utf-8") + '{"half', "utf-8")
        tables.append_row(path, rows[1])
        assert tables.read_rows(path) == rows

    def test_every_set_counts_the_same(self, tables: ModuleType) -> None:
        found = tables.means_of([self.row(tables, "a", 0.6), self.row(tables, "b", 0.8)])
        assert found["taught"] == pytest.approx([0.7] * 4)
        assert found["all"] == pytest.approx([0.9])

    @pytest.mark.parametrize(("taught", "words"), [(0.61, ["yes", "yes"]), (0.58, ["no", "yes"])])
    def test_what_is_wanted(self, tables: ModuleType, taught: float, words: list[str]) -> None:
        lines = tables.verdicts(tables.means_of([self.row(tables, "a", taught)]))
        assert [line.rpartition(" ")[2] for line in lines[:3]] == [*words, "yes"]
        assert all("at 3, 5, 10 of 1, 3, 5, 10" in line for line in lines[3:])
        assert f"{100 * (taught - 0.5):+.1f} points to clusters" in lines[0]


def test_new_photos_in_tiles_look_normal_by_their_worst_tile(teach: ModuleType) -> None:
    kinds = [*["dent"] * 7, *["streak"] * 7, *["good"] * 6]
    view = View(tiles=(4, 4))
    model = AnomalyClusterer(n_clusters=2, method="fast", image_size=64, view=view, cache=None)
    plates = [plate(kind, number) for number, kind in enumerate(kinds)]
    model.fit(plates, normal=[plate("good", number) for number in range(20, 30)])
    fitted = model.fitted_
    between = float(np.sort(model.image_scores_)[9:11].mean())
    heat = replace(fitted.describer.heat, normal_below=between)
    model.fitted_ = replace(fitted, describer=replace(fitted.describer, heat=heat))
    seen = teach.seen_as_new(model, model.images_, kinds, ["dent", "streak", "good"])
    assert seen.looks_normal.tolist() == (model.image_scores_ <= between).tolist()
    whole = image_scores(model.scores_, model.valid_) <= between
    assert seen.looks_normal.tolist() != whole.tolist()


def test_a_small_set_from_end_to_end(
    teach: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for start, folder in enumerate(("test/good", "test/dent", "test/streak", "train/good")):
        (tmp_path / "part" / folder).mkdir(parents=True)
        for number in range(10):
            image = Image.fromarray(plate(folder.rpartition("/")[2], 100 * start + number))
            image.save(tmp_path / "part" / folder / f"{number}.png")
    results = tmp_path / "rows"
    arguments = ["--data", str(tmp_path / "part"), "--results", str(results)]
    arguments += ["--seeds", "1", "--preset", "fast"]
    teach.main([*arguments, "--cache", str(tmp_path / "cache")])
    first = capsys.readouterr().out
    assert "part, without normals, 30 images" in first
    assert "Mean of 1 sets, with normals" in first
    assert len(results.read_text("utf-8").splitlines()) == 2
    teach.main(arguments)  # from the results, without embedding anything
    assert capsys.readouterr().out == first
