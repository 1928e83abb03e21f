"""A real Ray cluster of two workers comes to what one machine comes to, whoever dies meanwhile."""

from __future__ import annotations

import dataclasses
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flawsort import AnomalyClusterer, BackboneError, InputError, OptionError, View
from flawsort.backbones import DEFAULT_BACKBONE, Backbone, BackboneChoice, load_backbone
from flawsort.backbones.embed import cache_setting, embed
from flawsort.core.records import Bags, ImageSet
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.method import Method
from flawsort.fitting import ray_workers as fleet
from flawsort.fitting.comparing import KnownGood
from flawsort.fitting.fit import DescribedSet, describe_set
from flawsort.fitting.memory import Sizes
from flawsort.fitting.options import FitOptions
from flawsort.fitting.parts import PartFiles, run_setting
from flawsort.fitting.ray_cluster import check_one_machine, connected
from flawsort.fitting.ray_workers import RayRunner, engine_here, ray_runner
from flawsort.fitting.runner import LocalRunner
from flawsort.fitting.source import FileSource
from flawsort.images.find import array_images, find_images
from flawsort.images.inputs import distinct_rows
from flawsort.scores.engines import CpuEngine, choose_engine
from flawsort.scores.reference import NormalReference
from helpers.mortal_workers import DiaryWorker, OnceMortalWorker, PoisonedWorker
from helpers.part_batches import a_batch, assert_same_values
from helpers.plates import KINDS, SIDE, plate_arrays, settings, write_plates

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None or find_spec("pyarrow") is None,
    reason="Ray is not installed: pip install 'flawsort[ray]'",
)
# A library's warnings about itself are not ours to fix.
pytestmark = pytest.mark.filterwarnings("default")
VIEW = View()
SMALL = Sizes(batch_images=2, sample_images=6)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return load_backbone(DEFAULT_BACKBONE, image_size=SIDE)


@pytest.fixture(scope="module")
def plates_and_a_bad_one(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    """14 plates and a file that is no image, distinct contents in the order of content."""
    folder = tmp_path_factory.mktemp("fleet") / "parts"
    write_plates(folder, KINDS)
    (folder / "broken.png").write_bytes(b"not a picture")
    images = find_images(folder)
    return images.take(distinct_rows(images))


@pytest.fixture(scope="module")
def known(backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Bags:
    folder = tmp_path_factory.mktemp("fleet") / "good"
    write_plates(folder, ("good",) * 4)
    return embed(find_images(folder), backbone, VIEW).bags


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two workers, as a process each; they find the workers of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # others fill this machine's memory
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        options = {"log_to_driver": False, "include_dashboard": False}
        ray.init(address="local", num_cpus=2, object_store_memory=10**8, **options)
        yield
        ray.shutdown()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnomalyClusterer, "sizes", SMALL)


@pytest.fixture
def fit(
    backbone: Backbone, plates_and_a_bad_one: ImageSet, known: Bags
) -> Callable[..., DescribedSet]:
    """The set fitted by some workers, None for this process."""

    def run(workers: Any, *, normals: bool = True, images: ImageSet | None = None) -> DescribedSet:
        reference = None
        if normals:
            reference = KnownGood((NormalReference.from_bags(known),), means=(None,))
        source = FileSource(images or plates_and_a_bad_one, (backbone,), VIEW)
        options = FitOptions(Method(n_peers=4), CpuEngine(), sizes=SMALL)
        return describe_set(source, reference, options, workers or LocalRunner(source))

    return run


def some_workers(
    backbone: Backbone, parts: str | Path | None, image_size: int = SIDE, **others: Any
) -> RayRunner:
    return ray_runner(
        backbones=[BackboneChoice(DEFAULT_BACKBONE, image_size=image_size)],
        setting={"views": [cache_setting(backbone, VIEW)]},
        view=VIEW,
        parts=parts,
        **{"n_workers": 2, **others},
    )


def diarists(backbone: Backbone, parts: Path, kind: type = DiaryWorker) -> RayRunner:
    parts.mkdir(exist_ok=True)
    return dataclasses.replace(some_workers(backbone, parts), worker=kind)


def diary(parts: Path) -> list[tuple[str, str]]:
    """Who did which batch, by process and first name."""
    lines = (parts / "diary").read_text().splitlines()
    return [(line.split()[0], line.split()[1]) for line in lines]


def assert_same(one: DescribedSet, other: DescribedSet) -> None:
    for name in ("scores", "weights", "embeddings"):
        np.testing.assert_array_equal(
            getattr(one.described, name), getattr(other.described, name), err_msg=name
        )
    assert one.images == other.images
    assert one.grid == other.grid
    assert one.how == other.how
    assert_same_values(one.described.outlines, other.described.outlines)
    assert_same_values(one.described.region_embeddings, other.described.region_embeddings)
    assert len(one.described.outlines)
    assert one.describer.heat == other.describer.heat


@needs_ray
@pytest.mark.usefixtures("cluster")
class TestCluster:
    @pytest.mark.parametrize("normals", [True, False], ids=["normals", "peers"])
    def test_a_killed_worker_changes_nothing(
        self, backbone: Backbone, fit: Callable[..., DescribedSet], tmp_path: Path, normals: bool
    ) -> None:
        parts = tmp_path / "parts"
        found = fit(diarists(backbone, parts, OnceMortalWorker), normals=normals)
        assert (parts / "died").exists()
        assert_same(found, fit(None, normals=normals))
        assert [entry.name for entry in found.images.set_aside] == ["broken.png"]
        entries = diary(parts)
        assert len({name for _, name in entries}) == 8  # of 15 images
        # Only what the lost worker was at is done again, by another process.
        again = [name for _, name in entries if [n for _, n in entries].count(name) > 1]
        assert len(set(again)) == 1
        assert len(entries) == 9
        assert len({process for process, _ in entries}) == 3
        lines = (parts / "diary").read_text().splitlines()
        assert {line.split()[2] for line in lines} == {"1"}  # threads, for a CPU a worker

    def test_parts_that_are_there_are_not_computed_again(
        self, backbone: Backbone, fit: Callable[..., DescribedSet], tmp_path: Path
    ) -> None:
        parts = tmp_path / "parts"
        first = fit(diarists(backbone, parts))
        assert len(diary(parts)) == 8
        (folder,) = (path for path in parts.iterdir() if path.is_dir())
        files = sorted(folder.iterdir())
        assert len(files) == 8
        files[0].unlink()
        files[3].write_bytes(files[3].read_bytes()[:-100])
        changed = bytearray(files[5].read_bytes())
        for place in range(10, len(changed) // 2, 7):
            changed[place] ^= 1
        files[5].write_bytes(changed)
        workers = diarists(backbone, parts)
        again = fit(workers)
        assert_same(first, again)
        assert len(diary(parts)) == 8 + 3
        workers.clear()
        assert not folder.exists()

    def test_urls_in_and_out(
        self,
        backbone: Backbone,
        fit: Callable[..., DescribedSet],
        plates_and_a_bad_one: ImageSet,
        tmp_path: Path,
    ) -> None:
        one = plates_and_a_bad_one.sources[0]
        assert isinstance(one, Path)
        found = find_images(f"file://{one.parent}")
        images = found.take(distinct_rows(found))
        result = fit(some_workers(backbone, f"file://{tmp_path}/parts"), images=images)
        here = fit(None)
        np.testing.assert_array_equal(result.described.embeddings, here.described.embeddings)
        assert result.images.names == here.images.names
        assert len(list((tmp_path / "parts").glob("*/*.part"))) == 8

    def test_a_batch_that_kills_every_worker_is_given_up(
        self, backbone: Backbone, fit: Callable[..., DescribedSet], tmp_path: Path
    ) -> None:
        workers = diarists(backbone, tmp_path / "parts", PoisonedWorker)
        with pytest.raises(InputError, match=r"The batch of '.*png' crashed its worker 2 times"):
            fit(workers)

    def test_another_backbone_on_a_worker(
        self, backbone: Backbone, fit: Callable[..., DescribedSet], tmp_path: Path
    ) -> None:
        workers = some_workers(backbone, tmp_path / "parts", image_size=96)
        with pytest.raises(
            BackboneError, match=r"the mask on .* differs from .* Install the same files"
        ):
            fit(workers)

    def test_parts_that_cannot_be_written(
        self, backbone: Backbone, fit: Callable[..., DescribedSet], tmp_path: Path
    ) -> None:
        (tmp_path / "parts").write_text("a file where a folder should be")
        with pytest.raises(OptionError, match=r"The parts cannot be .* in '.*parts/"):
            fit(some_workers(backbone, tmp_path / "parts"))

    def test_no_room_for_a_worker(
        self, backbone: Backbone, fit: Callable[..., DescribedSet], tmp_path: Path
    ) -> None:
        workers = some_workers(backbone, tmp_path, n_workers=None, cpus_per_worker=3)
        with pytest.raises(OptionError, match="No machine of the Ray cluster has 3 CPUs for a"):
            fit(workers)

    @pytest.mark.parametrize("cache", [None, "auto"])
    def test_a_fit_keeps_what_it_was_told_to(
        self, plates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str | None
    ) -> None:
        """Without a cache the parts are in a temporary folder, and gone when all are read."""
        home, temporary = tmp_path / "home", tmp_path / "tmp"
        temporary.mkdir()
        monkeypatch.setenv("FLAWSORT_CACHE", str(home))
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        seen: list[int] = []

        def look(stage: str, *_: int) -> None:
            if stage == "sorting":
                seen.append(len(list(temporary.glob("flawsort-*/*/*.part"))))

        given = settings(n_clusters=2, n_workers=2, runner="ray", cache=cache, progress=look)
        model = AnomalyClusterer(**given).fit(plates / "parts")
        assert model.scored_.startswith("compared with each other (")
        assert max(seen) == (7 if cache is None else 0)
        assert list(temporary.iterdir()) == []
        if cache is None:
            assert not home.exists()
            return
        assert len(list(home.glob("parts/*/*.part"))) == 7
        model.discard_parts()
        assert list((home / "parts").iterdir()) == []

    @pytest.mark.parametrize("normals", [True, False], ids=["normals", "peers"])
    def test_new_images_are_assigned_as_here(
        self, plates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, normals: bool
    ) -> None:
        monkeypatch.setenv("FLAWSORT_CACHE", str(tmp_path / "home"))
        model = AnomalyClusterer(**settings(n_clusters=2))
        model.fit(plates / "parts", normal=plates / "good" if normals else None)
        model.save(tmp_path / "run", report=False)
        write_plates(tmp_path / "new", ("dent", "streak", "good") * 3)
        (tmp_path / "new" / "broken.png").write_bytes(b"not a picture")
        here = AnomalyClusterer.load(tmp_path / "run")
        here.cache, here.sizes = None, dataclasses.replace(SMALL, in_memory=0)
        given: dict[str, Any] = {"judge": lambda vectors, _: vectors[:, :3], "keep_vectors": 7}
        expected = here.assign(tmp_path / "new", **given)
        there = AnomalyClusterer.load(
            tmp_path / "run", runner="ray", n_workers=2, parts=tmp_path / "parts"
        )
        images, found, scores = there.assign(tmp_path / "new", keep_parts=True, **given)
        assert images == expected[0]
        assert [entry.name for entry in images.set_aside] == ["broken.png"]
        np.testing.assert_array_equal(scores, expected[2])
        fields = ("labels", "nearest", "confidence", "novelty", "unseen", "judged", "vectors")
        for name in (*fields, "looks_normal"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected[1], name))
        assert found.kinds == expected[1].kinds
        files = list((tmp_path / "parts").glob("*/*.part"))
        assert len(files) == 5
        # A part that is read is touched; one that is written again is another file.
        before = {path: path.stat().st_ino for path in files}
        files[2].unlink()
        again = there.assign(tmp_path / "new", keep_parts=True)
        np.testing.assert_array_equal(again[2], scores)
        del before[files[2]]
        assert before == {path: path.stat().st_ino for path in before}
        there.discard_parts()
        assert list((tmp_path / "parts").iterdir()) == []

    def test_arrays_stay_at_home(
        self, backbone: Backbone, fit: Callable[..., DescribedSet], tmp_path: Path
    ) -> None:
        with pytest.raises(InputError, match="needs images as files or URLs"):
            fit(some_workers(backbone, tmp_path), images=array_images(plate_arrays()))


@needs_ray
class TestConnection:
    @pytest.fixture
    def ray(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Ray, not connected, and nothing started: what it was asked for is written down."""
        import ray

        asked: list[Any] = []
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", lambda **options: asked.append(options))
        monkeypatch.setattr(ray, "shutdown", lambda: asked.append("shutdown"))
        return asked

    def test_a_cluster_of_our_own_is_stopped_again(self, ray: Any) -> None:
        with suppress(KeyboardInterrupt), connected(None, 5):
            assert len(ray) == 1
            raise KeyboardInterrupt
        assert ray[0]["address"] == "local"
        assert ray[0]["num_cpus"] >= 5
        assert ray[0]["include_dashboard"] is False
        assert ray[1] == "shutdown"

    def test_a_running_cluster_is_joined(self, ray: Any) -> None:
        with connected("auto", 5):
            pass
        assert ray[0]["address"] == "auto"
        assert "num_cpus" not in ray[0]

    def test_no_cluster_there(self, ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        import ray as module

        def nobody(**_: Any) -> None:
            raise ConnectionError("Could not find any running Ray instance.")

        monkeypatch.setattr(module, "init", nobody)
        with (
            pytest.raises(OptionError, match="No Ray cluster at 'auto': Could not find any"),
            connected("auto", 1),
        ):
            pass

    @pytest.mark.parametrize("shared", [True, False])
    def test_a_cluster_that_was_there_may_have_other_machines(
        self,
        ray: Any,
        backbone: Backbone,
        known: Bags,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        shared: bool,
    ) -> None:
        import ray as module

        def stop(_: Any) -> None:
            raise KeyboardInterrupt

        machines = [("far", True), (socket.gethostname(), True), ("lost", False), ("farther", True)]
        nodes = [{"NodeManagerHostname": name, "Alive": alive} for name, alive in machines]
        monkeypatch.setattr(module, "nodes", lambda: nodes)
        monkeypatch.setattr(module, "put", stop)
        place = {"parts": tmp_path} if shared else {"parts": None, "cache": tmp_path}
        workers = some_workers(backbone, **place)
        told = (
            r"cannot access the folders of this one: 'far' and others\. Set parts to a folder that"
        )
        error: type[BaseException] = KeyboardInterrupt if shared else OptionError
        with pytest.raises(error, match=None if shared else told):
            list(workers.describe([a_batch()[0]], a_describer(known)))
        check_one_machine(SimpleNamespace(nodes=lambda: nodes[1:3]))

    @pytest.mark.parametrize("shared", [True, False])
    def test_abandoned_parts_are_removed_from_the_cache_only(
        self, ray: Any, backbone: Backbone, known: Bags, tmp_path: Path, shared: bool
    ) -> None:
        place = tmp_path / "parts"
        workers = some_workers(backbone, place if shared else None, cache=tmp_path)
        batch, part = a_batch()
        files = PartFiles(str(place), workers.setting([batch], a_describer(known)))
        files.store(batch, part)
        old = place / ("0" * 20)
        old.mkdir()
        for folder in (old, Path(files.folder)):
            os.utime(folder, (0, 0))
        (found,) = workers.describe([batch], a_describer(known))
        assert found.digests == part.digests
        assert old.exists() is shared
        assert ray == []

    def test_nothing_is_started_where_all_parts_are_there(
        self, ray: Any, backbone: Backbone, known: Bags, tmp_path: Path
    ) -> None:
        workers = some_workers(backbone, tmp_path)
        describer = a_describer(known)
        batch, part = a_batch()
        PartFiles(str(tmp_path), workers.setting([batch], describer)).store(batch, part)
        (found,) = workers.describe([batch], describer)
        assert found.digests == part.digests
        assert ray == []


def a_describer(known: Bags, **method: Any) -> Any:
    from flawsort.embeddings.describer import Describer, Look

    reference = NormalReference.from_bags(known, exact=True)
    look = Look(known.grid, known.dim)
    return Describer(Method(**method), (look,), reference, 0.5, 0.2, HeatScale(0.1, 0.9))


class TestSetting:
    @pytest.fixture
    def spec(self) -> fleet.WorkerSpec:
        return fleet.WorkerSpec((BackboneChoice("net"),), VIEW, {"backbone": "abc"}, None, 1, 0.0)

    def test_the_recipe_that_decides_is_in_it(self, spec: fleet.WorkerSpec, known: Bags) -> None:
        def setting(**changes: Any) -> dict[str, object]:
            workers = RayRunner(dataclasses.replace(spec, **changes), "parts")
            return workers.setting([a_batch()[0]], a_describer(known))

        settings = [
            setting(),
            setting(setting={"backbone": "x"}),
            setting(view=View(max_pixels=10**6)),
            setting(gpus=1),
            setting(gpus=1, arithmetic="tf32"),
        ]
        assert len({str(one) for one in settings}) == len(settings)
        assert setting(cpus=7) == setting()

    def test_a_local_run_s_parts_are_taken(self, spec: fleet.WorkerSpec, known: Bags) -> None:
        workers = RayRunner(spec, "parts")
        batch, describer = a_batch()[0], a_describer(known)
        bags = {"backbone": "abc", "max_pixels": VIEW.max_pixels}
        assert workers.setting([batch], describer) == run_setting(bags, describer, [batch])

    def test_the_run_s_engine_goes_along_on_a_cpu(self, spec: fleet.WorkerSpec) -> None:
        engine = CpuEngine("int8")
        assert engine_here(engine, spec, exact=False) is engine

    def test_an_engine_of_a_gpu_is_not_taken_to_a_cpu(self, spec: fleet.WorkerSpec) -> None:
        class Elsewhere:
            name = "Triton on a GPU, float16"

        found = engine_here(Elsewhere(), spec, exact=False)  # type: ignore[arg-type]
        assert found.name == choose_engine("cpu", "int8").name
        found = engine_here(Elsewhere(), spec, exact=True)  # type: ignore[arg-type]
        assert found.name == choose_engine("cpu", "float32").name


class TestOptions:
    def test_without_ray(self, backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fleet, "find_spec", lambda name: None)
        with pytest.raises(OptionError, match=r"needs Ray: pip install 'flawsort\[ray\]'"):
            some_workers(backbone, "parts")

    @pytest.fixture
    def _there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fleet, "find_spec", lambda name: True)

    @pytest.mark.usefixtures("_there")
    def test_places_are_absolute(self, backbone: Backbone, tmp_path: Path) -> None:
        from PIL import Image

        Image.new("L", (4, 4), 255).save(tmp_path / "mask.png")
        view = View(mask=Path(os.path.relpath(tmp_path / "mask.png")))
        choices = [
            BackboneChoice("nets/a.onnx#out", "w.pt", 96, 12),
            BackboneChoice(Path("nets/b.onnx")),
            BackboneChoice(DEFAULT_BACKBONE),
        ]
        workers = ray_runner(backbones=choices, setting={}, view=view, parts="parts")
        spec = workers.spec
        named, file, known = spec.backbones
        weights = os.path.abspath("w.pt")
        assert named == BackboneChoice(os.path.abspath("nets/a.onnx") + "#out", weights, 96, 12)
        assert str(file.name) == os.path.abspath("nets/b.onnx")
        assert known == choices[2]
        assert spec.view.mask is not None
        assert spec.view.mask.is_absolute()
        assert workers.parts == os.path.abspath("parts")
        assert some_workers(backbone, "s3://bucket/parts").parts == "s3://bucket/parts"

    @pytest.mark.usefixtures("_there")
    def test_where_parts_are(self, backbone: Backbone, tmp_path: Path) -> None:
        named = some_workers(backbone, tmp_path / "x", cache=tmp_path / "y")
        assert (named.parts, named.shared) == (str(tmp_path / "x"), True)
        cached = some_workers(backbone, None, cache=tmp_path / "y")
        assert (cached.parts, cached.shared) == (str(tmp_path / "y" / "parts"), False)
        nowhere = some_workers(backbone, None)
        assert (nowhere.parts, nowhere.shared) == (None, False)

    @pytest.mark.usefixtures("_there")
    @pytest.mark.parametrize(
        ("options", "gpus"),
        [
            ({}, 0),
            ({"device": "cpu"}, 0),
            ({"device": "cuda"}, 1),
            ({"device": "cuda", "gpus_per_worker": 0.5}, 0.5),
            ({"gpus_per_worker": 2}, 2),
        ],
    )
    def test_gpus(self, backbone: Backbone, options: dict[str, Any], gpus: float) -> None:
        assert some_workers(backbone, "parts", **options).spec.gpus == gpus

    @pytest.mark.usefixtures("_there")
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_workers": 0}, "n_workers must be at least 1. Got 0"),
            ({"cpus_per_worker": 0}, "cpus_per_worker must be at least 1. Got 0"),
            ({"gpus_per_worker": 1.5}, "gpus_per_worker must be 0 to 1, or a whole number"),
            ({"gpus_per_worker": -1}, "gpus_per_worker must be"),
        ],
    )
    def test_bad(self, backbone: Backbone, options: dict[str, Any], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            some_workers(backbone, "parts", **options)
