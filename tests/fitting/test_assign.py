"""New images in batches: the same answers as all at once, with little in memory."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort import AnomalyClusterer, Bags, InputError, Method, OptionError, View
from flawsort.backbones import DEFAULT_BACKBONE, BackboneChoice, load_backbone
from flawsort.backbones.cache import BagCache
from flawsort.backbones.embed import Embedded, embed
from flawsort.clusters.assign import SURE, Assignment, Groups
from flawsort.clusters.kinds import Regions
from flawsort.embeddings.regions import Outlines
from flawsort.fitting import assign as assign_module
from flawsort.fitting import source as source_module
from flawsort.fitting.memory import Sizes
from flawsort.images.find import array_images, find_images
from flawsort.scores.engines import cpu
from helpers.plates import SIDE, plate, plate_arrays, settings, write_plates

KINDS = ("streak", "dent", "good") * 4 + ("dent",)
FIELDS = ("labels", "nearest", "confidence", "novelty")
BATCH = 4


@pytest.fixture
def batched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Small batches; gives their sizes as they are embedded."""
    sizes: list[int] = []
    real = source_module.embed_batch

    def watched(images: Any, *others: Any) -> Any:
        sizes.append(len(images))
        return real(images, *others)

    monkeypatch.setattr(AnomalyClusterer, "sizes", Sizes(batch_images=BATCH))
    monkeypatch.setattr(source_module, "embed_batch", watched)
    return sizes


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """13 images and three copies of one of them, among four files of no use, three alike."""
    folder = tmp_path_factory.mktemp("newcomers") / "new"
    folder.mkdir()
    for number, kind in enumerate(KINDS):  # none of the run's: ranks among those have no ties
        Image.fromarray(plate(kind, 50 + number)).save(folder / f"{kind}{number:02d}.png")
    for name in ("a-copy", "m-copy", "z-copy"):
        shutil.copy(folder / "dent04.png", folder / f"{name}.png")
    whole = (folder / "good02.png").read_bytes()
    for name in ("cut", "f-the-same-cut", "zz-cut"):
        (folder / f"{name}.png").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.png").touch()
    return folder


def model_of(plates: Path, way: str) -> AnomalyClusterer:
    parameters: dict[str, Any] = {"n_clusters": 2}
    if way == "padded":
        parameters["view"] = View(fit="pad", roi=(0, 0, 1, 0.5))
    if way == "two views":
        parameters["backbone"] = [BackboneChoice(DEFAULT_BACKBONE, image_size=s) for s in (64, 96)]
    if way == "uniform":
        parameters["method"] = Method(weights="uniform", pooling="average")
    if way == "lists":
        parameters["method"] = Method(exact=False)
    normal = plates / "good" if way in ("normals", "padded", "lists", "two views") else None
    return AnomalyClusterer(**settings(**parameters)).fit(plates / "parts", normal=normal)


def at_once(model: AnomalyClusterer, folder: Path) -> tuple[Embedded, Assignment, Any]:
    """The plain way: all bags in memory, described and sorted together."""
    backbones = model._same_backbones(model.fitted_)
    embedded, *others = (embed(find_images(folder), one, model.view_) for one in backbones)
    bags = dataclasses.replace(embedded.bags, beside=tuple(one.bags for one in others))
    described = model.describer_.describe(bags)
    groups = Groups.of(model.embeddings_, model.labels_)
    found = groups.assign(described.embeddings)
    scores, valid = described.scores, embedded.bags.valid
    scores = scores if valid is None else np.where(valid, scores, scores.min())
    labels = found.labels.tolist()
    if (below := model.heat_.normal_below) is not None:
        good = scores.max(axis=1) <= below  # one patch in a hundred is one patch here
        labels = np.where(good & (found.labels < 0), -2, found.labels).tolist()
    kinds = [[label] for label in labels]
    like = groups.assign(described.region_embeddings).labels.tolist()
    for image, label in zip(described.outlines.images.tolist(), like, strict=True):
        if label not in (-1, *kinds[image], *model.fitted_.plain_groups) and kinds[image][0] != -2:
            kinds[image].append(label)
    found = dataclasses.replace(found, labels=np.array(labels), kinds=tuple(map(tuple, kinds)))
    return embedded, found, scores


@pytest.mark.parametrize("way", ["normals", "peers", "padded", "two views"])
def test_images_of_the_run_are_described_as_they_were(
    plates: Path, tmp_path: Path, way: str
) -> None:
    model = model_of(plates, way)
    model.save(tmp_path / "run")
    loaded = AnomalyClusterer.load(tmp_path / "run")
    loaded.cache = None
    names = sorted(path.name for path in (plates / "parts").iterdir())
    for one in (model, loaded):
        images, found, scores = one.assign([plates / "parts" / name for name in names])
        again = Groups.of(one.embeddings_, one.labels_).assign(one.embeddings_)
        np.testing.assert_array_equal(found.labels, again.labels)
        np.testing.assert_allclose(found.novelty, again.novelty, atol=1e-9)
        assert (found.labels >= 0).all()
        assert found.kinds == one.kinds_
        assert images.digests == one.images_.digests
        seen = np.ones(scores.shape, bool) if one.valid_ is None else one.valid_
        np.testing.assert_array_equal(scores[seen], one.scores_[seen])


def test_many_images_do_not_push_others_out_of_the_users_cache(
    plates: Path, new: Path, batched: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = model_of(plates, "normals")
    monkeypatch.setenv("FLAWSORT_CACHE", str(tmp_path / "cache"))
    model.cache = "auto"
    model.sizes = Sizes(batch_images=BATCH, in_memory=1)
    model.assign(new)
    assert not list((tmp_path / "cache").rglob("*.bag*"))
    model.cache = tmp_path / "named"
    model.assign(new)
    assert any(path.is_file() for path in (tmp_path / "named").rglob("*"))


def test_an_image_that_comes_again_has_the_regions_of_the_run() -> None:
    def outlines(images: list[int]) -> Outlines:
        return Outlines.of([(image, 1.0, np.array([0])) for image in images])

    def regions(images: list[int], labels: list[int]) -> Regions:
        found = np.array(labels)
        return Regions(outlines(images), found[:, None] * np.ones(2), found, found, found / 10)

    # The second of the batch is the third of the run, the fourth its eighth, the sixth its first.
    found = assign_module._with_known(
        regions([0, 0, 1, 3, 4], [0, 1, 2, 3, 4]),
        regions([2, 2, 7, 9], [5, 6, 7, 8]),
        {1: 2, 3: 7, 5: 0},
    )
    assert list(zip(found.outlines.images.tolist(), found.labels.tolist(), strict=True)) == [
        (0, 0), (0, 1), (1, 5), (1, 6), (3, 7), (4, 4),
    ]  # fmt: skip
    np.testing.assert_array_equal(found.embeddings[:, 0], found.labels)
    np.testing.assert_array_equal(found.confidence, found.labels / 10)


def spotted(kinds: list[tuple[int, ...]], *, seed: int) -> Bags:
    """Bags of 12 by 12 patches with a spot of two by two for each of their kinds, 1 and 2, those
    of an image in different halves."""
    rng = np.random.default_rng(seed)
    common = np.random.default_rng(2)
    background, flaws = common.standard_normal((12, 12, 16)), 3 * common.standard_normal((3, 16))
    patches = background + 0.1 * rng.standard_normal((len(kinds), 12, 12, 16))
    for bag, spots in zip(patches, kinds, strict=True):
        for half, kind in enumerate(spots):
            row, column = rng.integers(1, 9), 6 * half + rng.integers(1, 4)
            bag[row : row + 2, column : column + 2] = flaws[kind] + 0.1 * rng.standard_normal(16)
    patches /= np.linalg.norm(patches, axis=3, keepdims=True)
    return Bags(patches.reshape(len(kinds), 144, 16).astype(np.float16), (12, 12))


def test_images_of_two_kinds(batched: list[int]) -> None:
    """Also where they come again, before and after others in a batch."""
    known = spotted([(1,)] * 8 + [(2,)] * 8 + [()] * 16, seed=1)
    normals = spotted([()] * 12, seed=2)
    # So few normals say little of how the mean patch varies.
    method = Method(mean_share=0)
    model = AnomalyClusterer(n_clusters=3, method=method).fit(known, normal=normals)
    none, one, two = (int(model.labels_[row]) for row in (16, 0, 8))
    assert len({none, one, two}) == 3
    assert model.kinds_ == ((one,),) * 8 + ((two,),) * 8 + ((none,),) * 16
    new = spotted([(1, 2), (2,), (2, 1), ()], seed=3)
    mixed = Bags(np.concatenate([new.patches[:2], known.patches[[9]], new.patches[2:]]), (12, 12))
    found = model.assign(mixed)[1]
    assert [group for group, *_ in found.kinds] == found.labels.tolist()
    shown = [set(groups) - {-1} for groups in found.kinds]
    assert shown == [{one, two}, {two}, {two}, {one, two}, {none}]
    # All of it again, as part of the run.
    both = Bags(np.concatenate([known.patches, new.patches[[0, 2]]]), (12, 12))
    model = AnomalyClusterer(n_clusters=3, method=method).fit(both, normal=normals)
    assert [len(groups) for groups in model.kinds_] == [1] * 32 + [2] * 2
    order = np.random.default_rng(4).permutation(34)
    again = model.assign(both.take(order))[1]
    assert again.kinds == tuple(model.kinds_[row] for row in order)
    # Among peers, too, where compared with itself nothing of it is unusual.
    model = AnomalyClusterer(n_clusters=6, method=method).fit(both)
    again = model.assign(both.take(order))[1]
    assert again.kinds == tuple(model.kinds_[row] for row in order)
    assert max(map(len, again.kinds)) > 1


@pytest.mark.parametrize("way", ["normals", "peers", "padded", "uniform", "lists", "two views"])
def test_batches_are_as_all_at_once(plates: Path, new: Path, batched: list[int], way: str) -> None:
    model = model_of(plates, way)
    batched.clear()
    images, found, scores = model.assign(new)
    # Each content once in each view, the one of no use and its copies too, but in the first only.
    again = [4, 4, 4, 1] if way == "two views" else []
    assert sorted(batched) == sorted([4, 4, 4, 2, *again])
    embedded, expected, all_scores = at_once(model, new)
    assert images == embedded.images
    assert len(images) == 16
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert -2 in found.labels or way in ("peers", "uniform")
    for name in FIELDS:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-5)
    np.testing.assert_allclose(found.placed.distance, expected.placed.distance, atol=1e-5)
    np.testing.assert_array_equal(found.placed.runner_up, expected.placed.runner_up)
    assert found.kinds == expected.kinds
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, all_scores, rtol=1e-5, atol=1e-4)
    rows = [images.names.index(f"{name}.png") for name in ("a-copy", "m-copy", "dent04")]
    assert (scores[rows] == scores[rows[0]]).all()
    assert len(set(found.novelty[rows])) == 1


def judge(vectors: Any, looks_normal: Any = None) -> Any:
    """(n, 2): a made-up chance of a kind, and the rest for none of them."""
    chance = 1 / (1 + np.abs(np.asarray(vectors, np.float64)).max(axis=1, keepdims=True))
    return np.concatenate([chance, 1 - chance], axis=1)


@pytest.mark.parametrize("way", ["normals", "peers", "padded"])
def test_a_judge_sees_the_embeddings_and_vectors_are_kept(
    plates: Path, new: Path, batched: list[int], way: str
) -> None:
    model = model_of(plates, way)
    plain = model.assign(new)[1]
    assert plain.judged is None
    assert plain.vectors is None
    shapes: list[tuple[int, ...]] = []

    def watched(vectors: Any, looks_normal: Any) -> Any:
        assert looks_normal.shape == (len(vectors),)
        shapes.append(vectors.shape)
        return judge(vectors)

    images, found, _ = model.assign(new, judge=watched, keep_vectors=20)
    assert sum(n for n, _ in shapes) == 13  # each content once, a batch at a time
    assert max(n for n, _ in shapes) <= BATCH
    assert found.vectors is not None
    assert found.judged is not None
    assert (found.vectors.dtype, found.vectors.shape) == (np.float16, (16, shapes[0][1]))
    assert found.judged.dtype == np.float32
    np.testing.assert_allclose(found.judged, judge(found.vectors), atol=2e-3)
    embedded = at_once(model, new)[0]
    described = model.describer_.describe(embedded.bags)
    np.testing.assert_allclose(found.vectors, described.embeddings, atol=2e-3)
    np.testing.assert_array_equal(found.labels, plain.labels)
    # What is strange is now what the judge says, but never an image that looks normal.
    assert found.looks_normal is not None
    none = (found.judged[:, 1] > 0.5) | (found.judged[:, 0] < SURE) & (found.labels < 0)
    np.testing.assert_array_equal(found.strange, none & ~found.looks_normal)
    assert found.looks_normal.any() == (way != "peers")
    np.testing.assert_allclose(found.unseen, found.vectors[found.strange], atol=2e-3)
    again = [images.names.index(f"{name}.png") for name in ("a-copy", "m-copy", "dent04")]
    assert len(np.unique(found.judged[again], axis=0)) == 1
    # Of the first eight files given two are of no use.
    names = [path.name for path in sorted(new.iterdir())][:8]
    assert {"cut.png", "empty.png"} <= set(names)
    few = model.assign(new, keep_vectors=8)[1].vectors
    assert few is not None
    np.testing.assert_array_equal(few, found.vectors[:6])


@pytest.mark.parametrize("way", ["normals", "padded", "lists", "two views"])
def test_copies_of_the_normals_are_no_new_kind(
    plates: Path, batched: list[int], way: str, tmp_path: Path
) -> None:
    model = model_of(plates, way)
    model.save(tmp_path / "run")
    shutil.copytree(plates / "good", tmp_path / "new")
    Image.fromarray(np.full((SIDE, SIDE, 3), (9, 250, 30), np.uint8)).save(tmp_path / "new/x.png")
    loaded = AnomalyClusterer.load(tmp_path / "run")
    loaded.cache = None
    for one in (model, loaded):
        found = one.assign(tmp_path / "new", judge=judge)[1]
        assert found.labels.tolist() == [-2] * 10 + [-1]
        assert found.kinds == ((-2,),) * 10 + ((-1,),)
        assert found.looks_normal is not None
        assert found.looks_normal.tolist() == [True] * 10 + [False]
        assert not found.strange[:-1].any()
        assert one.predict(tmp_path / "new").tolist() == [-2] * 10 + [-1]


def test_copies_of_the_normals_by_their_content_alone(batched: list[int]) -> None:
    """Of a single normal it is not known how unusual a good image may be."""
    bags, normal = spotted([(1,)] * 4 + [(2,)] * 4, seed=1), spotted([()], seed=2)
    model = AnomalyClusterer(n_clusters=2, method=Method(mean_share=0)).fit(bags, normal=normal)
    assert model.heat_.normal_below is None
    mixed = Bags(np.concatenate([normal.patches, bags.patches[:1]]), (12, 12))
    assert model.predict(mixed).tolist() == [-2, int(model.labels_[0])]


def test_files_of_no_use_are_told_in_their_order(
    fitted: AnomalyClusterer, new: Path, batched: list[int]
) -> None:
    images = fitted.assign(new)[0]
    told = {entry.name: entry.reason for entry in images.set_aside}
    assert sorted(told) == ["cut.png", "empty.png", "f-the-same-cut.png", "zz-cut.png"]
    assert "truncated" in told["f-the-same-cut.png"]
    with pytest.raises(InputError, match=r"^4 of the images cannot be used, the first 'empty.png'"):
        fitted.predict(new)


def test_a_batch_without_any_use(
    fitted: AnomalyClusterer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnomalyClusterer, "sizes", Sizes(batch_images=1))
    write_plates(tmp_path / "new", ("dent", "streak"))
    (tmp_path / "new" / "text.png").write_text("no image")
    shutil.copy(tmp_path / "new" / "text.png", tmp_path / "new" / "again.png")
    images, found, scores = fitted.assign(tmp_path / "new")
    assert images.names == ("dent00.png", "streak01.png")
    assert {entry.name for entry in images.set_aside} == {"text.png", "again.png"}
    assert len(found.labels) == len(scores) == 2


@pytest.mark.parametrize("size", [1, 64])
def test_nothing_of_use(
    fitted: AnomalyClusterer, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnomalyClusterer, "sizes", Sizes(batch_images=size))
    whole = Path(__file__).read_bytes()
    for name in ("b", "c", "a"):
        (tmp_path / f"{name}.png").write_bytes(name.encode() + whole)
    images = find_images(tmp_path)
    backbone = load_backbone("efficientnet-lite2", image_size=SIDE)
    with pytest.raises(InputError, match=r"^No usable image: all 3 were set aside\. The") as told:
        embed(images, backbone, View())
    with pytest.raises(InputError) as refused:
        fitted.assign(images)
    assert str(refused.value) == str(told.value)


def test_names_and_their_order_change_nothing(fitted: AnomalyClusterer, batched: list[int]) -> None:
    arrays = plate_arrays(KINDS)
    order = np.random.default_rng(3).permutation(len(arrays))
    first, second = fitted.assign(arrays), fitted.assign([arrays[row] for row in order])
    np.testing.assert_array_equal(first[2][order], second[2])
    np.testing.assert_array_equal(first[1].novelty[order], second[1].novelty)


@pytest.mark.parametrize("masked", [False, True])
def test_bags(batched: list[int], masked: bool) -> None:
    backbone = load_backbone("efficientnet-lite2", image_size=SIDE)
    bags = embed(array_images(plate_arrays(KINDS)), backbone, View()).bags
    if masked:
        valid = np.random.default_rng(0).random(bags.patches.shape[:2]) > 0.3
        valid[:5] = True  # a first batch with nothing hidden
        bags = Bags(bags.patches, bags.grid, valid)
    model = AnomalyClusterer(n_clusters=3).fit(bags)
    rows = [2, 0, 1, *range(13), 2]
    given = bags.take(rows)
    before = given.patches.copy()
    images, found, scores = model.assign(given)
    np.testing.assert_array_equal(given.patches, before)
    assert images.names[-1] == "bag-00016"
    single = [model.assign(bags.take([row])) for row in range(13)]
    np.testing.assert_array_equal(found.labels, [single[row][1].labels[0] for row in rows])
    there = np.ones(scores.shape, bool) if given.valid is None else given.valid
    alone = np.concatenate([single[row][2] for row in rows])
    np.testing.assert_allclose(scores[there], alone[there], atol=1e-5)
    assert (scores[~there] == scores.min()).all()


def test_progress_is_of_all_images(plates: Path, new: Path, batched: list[int]) -> None:
    told: list[tuple[str, int, int]] = []
    model = model_of(plates, "peers")
    model.progress = lambda *stage: told.append(stage)
    model.assign(new)
    assert told == [("sorting", done, 14) for done in (0, 4, 8, 12, 14)]


@pytest.mark.parametrize("way", ["normals", "padded"])
def test_many_scores_are_kept_in_half_precision(
    plates: Path, new: Path, batched: list[int], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(plates, way)
    images, found, scores = model.assign(new)
    bag = 2 * 64 * model.n_dims_
    model.sizes = Sizes(batch_images=BATCH, in_memory=14 * bag)
    assert model.assign(new)[2].dtype == np.float32
    model.sizes = Sizes(batch_images=BATCH, in_memory=14 * bag - 1)
    again, halved, halves = model.assign(new)
    assert (again, halves.dtype) == (images, np.float16)
    np.testing.assert_array_equal(halved.novelty, found.novelty)
    np.testing.assert_array_equal(halves, scores.astype(np.float16))


def test_one_arithmetic_for_all_batches(
    plates: Path, batched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(plates, "peers")
    reference = model.describer_.reference
    n_peers, n_patches, dim = reference.views[0].reference.peers.shape  # type: ignore[union-attr]
    flop = 2.0 * n_peers * n_patches**2 * dim
    arrays = [plate("dent", number) for number in range(20, 29)]
    used: list[str] = []
    real = cpu.CpuEngine.fold_references

    def watched(self: cpu.CpuEngine, *others: Any, **options: Any) -> Any:
        used.append(self.name)
        return real(self, *others, **options)

    monkeypatch.setattr(cpu.CpuEngine, "fold_references", watched)
    for limit, name in ((9, "NumPy on the CPU, float32"), (8.9, "onnxruntime on the CPU, int8")):
        limits = cpu.CpuLimits(singles_flop=limit * flop)
        model.describer_.reference.engine = cpu.CpuEngine("auto", limits=limits)
        used.clear()
        model.assign([*arrays, arrays[0]])
        assert used == [name] * 3
    # What the model itself has is not changed by it.
    assert model.describer_.reference.engine.name == "the CPU, int8 where the work is large"  # type: ignore[union-attr]


class TestCache:
    @pytest.mark.parametrize("named", [False, True])
    def test_bags_are_kept_and_found(
        self, fitted: AnomalyClusterer, saved: Path, new: Path, tmp_path: Path, named: bool,
        batched: list[int], monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setenv("FLAWSORT_CACHE", str(tmp_path / "own"))
        model = AnomalyClusterer.load(saved)
        model.cache = tmp_path / "named" if named else "auto"
        first = model.assign(new)
        kept = tmp_path / ("named" if named else "own")
        assert len(list(kept.glob("*/*.bag"))) == 13
        assert len(list(tmp_path.glob("*/*/*.bag"))) == 13

        def fail(*_: object) -> None:
            raise AssertionError("computed again")

        good = [path for path in new.iterdir() if path.name[-6:-4].isdigit()]
        monkeypatch.setattr("flawsort.backbones.embed.decode", fail)
        images, _, scores = model.assign(sorted(good))
        rows = [first[0].names.index(name) for name in images.names]
        np.testing.assert_allclose(scores, first[2][rows], atol=1e-6)

    def test_it_is_pruned_on_the_way_and_at_the_end(
        self, saved: Path, new: Path, tmp_path: Path, batched: list[int],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        pruned: list[int] = []
        monkeypatch.setattr(BagCache, "prune", lambda _: pruned.append(len(batched)))
        model = AnomalyClusterer.load(saved)
        model.sizes = Sizes(batch_images=BATCH, batches_between_pruning=3)
        model.cache = tmp_path
        model.assign(new)
        assert pruned == [3, 4]
        model.cache = None
        model.assign(new)
        assert pruned == [3, 4]


# ---- interruptions ----

MANY = Sizes(batch_images=BATCH, in_memory=1)


def stop_after(done: int) -> Any:
    def progress(stage: str, count: int, _: int) -> None:
        if stage == "sorting" and count >= done:
            raise KeyboardInterrupt

    return progress


class TestInterrupted:
    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The user's own cache, empty."""
        monkeypatch.setenv("FLAWSORT_CACHE", str(tmp_path / "home"))
        return tmp_path / "home"

    @pytest.fixture
    def model(self, saved: Path, batched: list[int]) -> AnomalyClusterer:
        """A loaded model to which 14 images are many."""
        model = AnomalyClusterer.load(saved)
        model.cache, model.sizes = "auto", MANY
        return model

    def parts(self, home: Path) -> list[Path]:
        return sorted(home.glob("parts/*/*.part"))

    @pytest.mark.parametrize("way", ["normals", "peers", "padded"])
    def test_it_goes_on_where_it_stopped(
        self, plates: Path, new: Path, batched: list[int], home: Path, way: str
    ) -> None:
        model = model_of(plates, way)
        model.sizes = MANY
        whole = model.assign(new, judge=judge, keep_vectors=5)
        model.cache, model.progress = "auto", stop_after(8)
        with pytest.raises(KeyboardInterrupt):
            model.assign(new)
        assert len(self.parts(home)) == 2
        batched.clear()
        model.progress = None
        # What was finished without a judge is not computed again for one.
        images, found, scores = model.assign(new, judge=judge, keep_vectors=5)
        assert batched == [4, 2]
        assert images == whole[0]
        np.testing.assert_array_equal(scores, whole[2])
        assert scores.dtype == whole[2].dtype == np.float16
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(found, name), getattr(whole[1], name))
        for name in ("unseen", "judged", "vectors", "looks_normal"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole[1], name))
        assert found.kinds == whole[1].kinds
        assert self.parts(home) == []  # the caller has the results

    def test_another_process_goes_on(
        self, model: AnomalyClusterer, saved: Path, new: Path, batched: list[int], home: Path
    ) -> None:
        model.progress = stop_after(12)
        with pytest.raises(KeyboardInterrupt):
            model.predict(new)
        batched.clear()
        again = AnomalyClusterer.load(saved)
        again.cache, again.sizes = "auto", MANY
        again.assign(new)
        assert batched == [2]

    def test_parts_are_kept_for_a_caller_who_stores_the_results(
        self, model: AnomalyClusterer, new: Path, batched: list[int], home: Path
    ) -> None:
        model.assign(new, keep_parts=True)
        assert len(self.parts(home)) == 4
        batched.clear()
        model.assign(new, keep_parts=True)
        assert batched == []
        model.discard_parts()
        assert self.parts(home) == []

    def test_without_a_cache_nothing_is_kept(
        self, model: AnomalyClusterer, new: Path, home: Path
    ) -> None:
        model.cache, model.progress = None, stop_after(8)
        with pytest.raises(KeyboardInterrupt):
            model.assign(new)
        assert not home.exists()

    def test_few_images_are_found_in_the_cache_instead(
        self, model: AnomalyClusterer, new: Path, home: Path
    ) -> None:
        model.sizes = Sizes(batch_images=BATCH)
        model.progress = stop_after(8)
        with pytest.raises(KeyboardInterrupt):
            model.assign(new)
        assert self.parts(home) == []
        assert len(list(home.glob("*/*.bag"))) in (7, 8)

    def test_the_parts_of_a_fit_are_not_touched(
        self, plates: Path, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not even by the same images, which are compared with the same normals."""
        monkeypatch.setattr(AnomalyClusterer, "sizes", MANY)
        model = AnomalyClusterer(**settings(n_clusters=2, cache="auto"))
        model.fit(plates / "parts", normal=plates / "good")
        of_the_fit = self.parts(home)
        assert len(of_the_fit) == 4
        model.assign(plates / "parts")
        assert self.parts(home) == of_the_fit
        model.discard_parts()
        assert self.parts(home) == []


# ---- the runner ----


class TestRunner:
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"runner": "spark"}, "runner must be 'local' or 'ray'. Got 'spark'."),
            ({"n_workers": 2}, "n_workers needs the runner 'ray', but the runner is 'local'"),
            ({"parts": "x"}, "parts needs the runner 'ray'"),
            (
                {"runner": "ray", "address": "auto"},
                "parts must be given with the address of a running cluster",
            ),
        ],
    )
    def test_options_are_checked_as_those_of_a_fit(
        self, saved: Path, options: dict[str, Any], told: str
    ) -> None:
        with pytest.raises(OptionError, match=told):
            AnomalyClusterer.load(saved, **options)
        model = AnomalyClusterer.load(saved).set_params(**options)
        with pytest.raises(OptionError, match=told):
            model.assign("there is no such folder")

    def test_bags_stay_at_home(self) -> None:
        bags = spotted([(1,)] * 4, seed=0)
        model = AnomalyClusterer(n_clusters=2).fit(bags).set_params(runner="ray")
        with pytest.raises(OptionError, match="needs images as files or URLs, not as Bags"):
            model.assign(bags)

    def test_a_loaded_model_compares_on_the_cpu_of_its_workers(self, saved: Path) -> None:
        model = AnomalyClusterer.load(saved, runner="ray", n_workers=2, parts="work")
        assert model.describer_.reference is not None
        assert "CPU" in model.describer_.reference.engine.name
        assert (model.runner, model.n_workers, model.parts, model.device) == (
            "ray", 2, "work", None,
        )  # fmt: skip
