"""Finished batches as files: they come back as they were or not at all, wherever they are kept."""

from __future__ import annotations

import dataclasses
import os
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort.core.errors import OptionError
from flawsort.core.records import Bags
from flawsort.core.store import FORMAT
from flawsort.embeddings.axes import MeanPatch
from flawsort.embeddings.describer import Describer, Look
from flawsort.embeddings.extent import N_EXTENTS
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.method import Method
from flawsort.fitting import parts as partfiles
from flawsort.fitting.parts import Batch, Part, PartFiles, run_setting
from flawsort.scores.engines import CpuEngine
from flawsort.scores.reference import NormalReference, PeerReference, Reference
from flawsort.scores.usual import Usual
from flawsort.scores.views import CalibratedReference, ViewReference
from helpers.bags import flawed_patches
from helpers.part_batches import DIM, a_batch, assert_same_part
from helpers.stores import PLACES, a_broken_store, needs_stores

# ---- parts ----


class TestParts:
    @pytest.mark.parametrize("masked", [True, False])
    @pytest.mark.parametrize("place", PLACES)
    def test_round_trip(self, tmp_path: Path, place: str, masked: bool) -> None:
        files = PartFiles(place.format(tmp_path), {"seed": 0})
        batch, part = a_batch(masked=masked)
        assert files.present() == set()
        assert not files.has(batch)
        assert files.load(batch) is None
        files.store(batch, part)
        again = pickle.loads(pickle.dumps(PartFiles(place.format(tmp_path), {"seed": 0})))
        assert again.present() == {files.name(batch)}
        assert again.has(batch)
        assert_same_part(again.load(batch), part)
        again.remove(batch)
        assert not again.has(batch)
        files.store(batch, part)
        files.clear()
        assert files.present() == set()
        files.clear()  # of what is not there

    @pytest.mark.parametrize("n", [0, 1])
    def test_nothing_usable_and_nothing_set_aside(self, tmp_path: Path, n: int) -> None:
        batch, part = a_batch(1)
        if n == 0:
            batch = a_batch(2)[0]
            reasons = dict(zip(batch.images.names, ("empty", "torn"), strict=True))
            part = Part((), None, None, reasons)
        files = PartFiles(str(tmp_path), {})
        files.store(batch, part)
        assert_same_part(files.load(batch), part)

    @pytest.mark.parametrize("n_extents", [0, N_EXTENTS], ids=["averages", "residuals"])
    @pytest.mark.parametrize(
        "n_regions",
        [(0, 0, 0, 0), (0, 3, 0, 2), (2, 0, 0, 0), (0, 0, 0, 1), (1, 4, 2, 3)],
        ids=str,
    )
    def test_regions(self, tmp_path: Path, n_regions: tuple[int, ...], n_extents: int) -> None:
        batch, part = a_batch(n_regions=n_regions, n_extents=n_extents)
        files = PartFiles(str(tmp_path), {})
        files.store(batch, part)
        again = files.load(batch)
        assert_same_part(again, part)
        assert again is not None
        assert again.features is not None
        regions = again.features.regions
        assert np.bincount(regions.outlines.images, minlength=4).tolist() == list(n_regions)
        # As wide as those of the images even where there are none: batches are put together.
        assert regions.vectors.shape == (sum(n_regions), DIM)
        assert regions.extents.shape == (sum(n_regions), n_extents)

    def test_what_was_read_can_be_written_to(self, tmp_path: Path) -> None:
        batch, part = a_batch(masked=True)
        files = PartFiles(str(tmp_path), {})
        files.store(batch, part)
        again = files.load(batch)
        assert again is not None
        assert again.features is not None
        regions = again.features.regions
        for values in (again.features.vectors, regions.vectors, regions.extents):
            values += 1

    def test_damage_is_not_taken_for_a_part(self, tmp_path: Path) -> None:
        batch, part = a_batch(masked=True)
        files = PartFiles(str(tmp_path), {})
        files.store(batch, part)
        path = Path(files.folder, files.name(batch))
        whole = path.read_bytes()
        for place in [*range(0, len(whole), 7), *range(len(whole) - 64, len(whole))]:
            changed = bytearray(whole)
            changed[place] ^= 1
            path.write_bytes(changed)
            assert files.load(batch) is None
        for size in (0, 1, 4, 40, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            assert files.load(batch) is None
        path.write_bytes(b"something else altogether" * 9)
        assert files.load(batch) is None
        assert not path.exists()  # so that it is computed again
        path.mkdir()
        assert files.load(batch) is None

    def test_names_follow_from_content(self, tmp_path: Path) -> None:
        batch, _ = a_batch()
        peer = Batch(batch.images, np.array([0, -1, -1, -1, -1]))
        turned = Batch(batch.images.take([1, 0, 2, 3, 4]), batch.self_rows)
        files = PartFiles("x", {"seed": 0})
        assert len({files.name(one) for one in (batch, peer, turned, a_batch(4)[0])}) == 4
        assert PartFiles("x", {"seed": 0}).name(batch) == files.name(batch)
        assert PartFiles("x", {"seed": 0}).folder == PartFiles("x/", {"seed": 0}).folder
        assert PartFiles("x", {"seed": 1}).folder != files.folder
        assert PartFiles("x", {"a": 1, "b": 2}).folder == PartFiles("x", {"b": 2, "a": 1}).folder

    def test_files_that_were_renamed_are_found(self, tmp_path: Path) -> None:
        batch, part = a_batch()
        images = dataclasses.replace(batch.images, names=tuple("abcde"))
        files = PartFiles(str(tmp_path), {})
        files.store(batch, part)
        found = files.load(dataclasses.replace(batch, images=images))
        assert_same_part(found, dataclasses.replace(part, reasons={"b": "not an image, as ö says"}))

    def test_a_new_format_does_not_take_old_parts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batch, part = a_batch()
        PartFiles(str(tmp_path), {}).store(batch, part)
        monkeypatch.setattr("flawsort.core.store.FORMAT", FORMAT + 1)
        assert not PartFiles(str(tmp_path), {}).has(batch)

    def test_deaths_are_counted(self, tmp_path: Path) -> None:
        batch, part = a_batch()
        files = PartFiles(str(tmp_path), {})
        files.store(batch, part)
        for count in range(3):
            assert files.deaths(batch) == count
            files.expect_death(batch)
        assert files.present() == {files.name(batch)}
        files.forget_deaths(batch)
        assert files.deaths(batch) == 0
        assert_same_part(files.load(batch), part)


@pytest.mark.parametrize(
    ("what", "attempt"),
    [
        ("listed", lambda files, batch, part: files.present()),
        ("looked up", lambda files, batch, part: files.has(batch)),
        ("written", lambda files, batch, part: files.store(batch, part)),
        ("removed", lambda files, batch, part: files.remove(batch)),
        ("read", lambda files, batch, part: files.deaths(batch)),
        ("read", lambda files, batch, part: files.expect_death(batch)),
        ("removed", lambda files, batch, part: files.forget_deaths(batch)),
    ],
)
class TestOutOfReach:
    TOLD = "^The parts cannot be {} in '{}': {}. Name a folder or a URL that every worker can"

    def test_on_a_disk(self, tmp_path: Path, what: str, attempt: Any) -> None:
        files = PartFiles(str(tmp_path), {})
        Path(files.folder).write_text("a file where a folder should be")
        if what == "looked up":  # it is not there, and that is all there is to say
            assert not attempt(files, *a_batch())
            return
        with pytest.raises(OptionError, match=self.TOLD.format(what, files.folder, ".*")):
            attempt(files, *a_batch())

    @needs_stores
    def test_in_a_store(self, monkeypatch: pytest.MonkeyPatch, what: str, attempt: Any) -> None:
        a_broken_store(monkeypatch, "ls", "exists", "rm_file", "cat_file", "mv")
        files = PartFiles("memory://bucket", {})
        with pytest.raises(OptionError, match=self.TOLD.format(what, files.folder, "slow down")):
            attempt(files, *a_batch())


@needs_stores
def test_a_store_that_fails_costs_no_finished_run(monkeypatch: pytest.MonkeyPatch) -> None:
    a_broken_store(monkeypatch, "exists", "cat_file")
    files = PartFiles("memory://bucket", {})
    assert files.load(a_batch()[0]) is None
    files.clear()


# ---- abandoned ones ----


def aged(folder: Path, days: float) -> Path:
    (folder / "x").mkdir(parents=True)
    (folder / "x" / "part").write_text("here")
    then = time.time() - days * 86_400
    os.utime(folder, (then, then))
    return folder


class TestAbandoned:
    def test_after_a_month(self, tmp_path: Path) -> None:
        files = PartFiles(str(tmp_path), {"seed": 0})
        current = aged(Path(files.folder), 99)
        old, fresh = aged(tmp_path / ("a" * 20), 31), aged(tmp_path / ("b" * 20), 29)
        foreign = aged(tmp_path / "holidays", 99)
        (tmp_path / ("c" * 20)).write_text("a file")
        files.clear_abandoned()
        assert not old.exists()
        assert all(one.exists() for one in (current, fresh, foreign, tmp_path / ("c" * 20)))

    def test_what_cannot_be_removed_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = [aged(tmp_path / (letter * 20), 31) for letter in "ab"]
        tried: list[str] = []

        def denied(path: str, *_: Any, **__: Any) -> None:
            tried.append(path)
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(partfiles.shutil, "rmtree", denied)
        PartFiles(str(tmp_path), {}).clear_abandoned()
        assert sorted(tried) == [str(one) for one in old]
        PartFiles(str(tmp_path / "nowhere"), {}).clear_abandoned()


# ---- what they are kept under ----


def a_describer(known: Bags, **method: Any) -> Describer:
    reference = NormalReference.from_bags(known, exact=True)
    look = Look(known.grid, known.dim)
    return Describer(Method(**method), (look,), reference, 0.5, 0.2, HeatScale(0.1, 0.9))


def with_look(describer: Describer, **changes: Any) -> Describer:
    """With changes to its only view."""
    return dataclasses.replace(
        describer, looks=(dataclasses.replace(describer.looks[0], **changes),)
    )


def calibrated(reference: Reference, usual: Usual, n_views: int = 1) -> CalibratedReference:
    return CalibratedReference((ViewReference(reference, usual, (4, 4)),) * n_views)


class TestSetting:
    KNOWN = Bags(flawed_patches([0] * 4, n_patches=16, seed=0), (4, 4))

    def test_everything_that_decides_is_in_it(self) -> None:
        known, batches = self.KNOWN, [a_batch()[0]]
        describer = a_describer(known)
        lists = a_describer(known)
        assert isinstance(lists.reference, NormalReference)
        lists.reference.exact = False
        peers, fewer, other = (
            dataclasses.replace(describer, reference=reference)
            for reference in (
                PeerReference(known.patches, 0.2, engine=CpuEngine()),
                PeerReference(known.patches[:3], 0.2, engine=CpuEngine()),
                PeerReference(known.patches, 0.2, engine=CpuEngine("int8")),
            )
        )
        whitening, centre = np.eye(known.dim, dtype=np.float32), np.ones(known.dim, np.float32)
        places = np.linspace(0, 1, 16, dtype=np.float32)
        assert describer.reference is not None
        usual = [
            dataclasses.replace(describer, reference=calibrated(describer.reference, *given))
            for given in ((Usual(places, 1.0),), (Usual(2 * places, 1.0),), (Usual(places, 2.0),))
        ]
        twice = dataclasses.replace(
            describer,
            looks=describer.looks * 2,
            reference=calibrated(describer.reference, Usual(places, 1.0), 2),
        )
        settings = [
            run_setting({}, describer, batches),
            run_setting({"backbone": "x"}, describer, batches),
            run_setting({}, a_describer(known.take(range(3))), batches),
            run_setting({}, a_describer(known, pooling="average"), batches),
            run_setting({}, dataclasses.replace(describer, temperature=0.6), batches),
            run_setting({}, dataclasses.replace(describer, spread=0.3), batches),
            run_setting({}, dataclasses.replace(describer, heat=HeatScale(0.2, 0.9)), batches),
            run_setting({}, dataclasses.replace(describer, heat=HeatScale(0.1, 0.8)), batches),
            run_setting({}, with_look(describer, whitening=whitening), batches),
            run_setting({}, with_look(describer, whitening=2 * whitening), batches),
            run_setting({}, with_look(peers, whitening=whitening), batches),
            run_setting({}, with_look(describer, mean=MeanPatch(centre)), batches),
            run_setting({}, with_look(describer, mean=MeanPatch(2 * centre)), batches),
            run_setting({}, with_look(describer, mean=MeanPatch(centre, whitening)), batches),
            *(run_setting({}, one, batches) for one in (*usual, twice)),
            run_setting({}, dataclasses.replace(describer, reference=None), batches),
            run_setting({}, describer, [a_batch(4)[0]]),
            run_setting({}, describer, batches, "GPU"),
            *(run_setting({}, one, batches) for one in (lists, peers, fewer, other)),
        ]
        folders = {PartFiles("x", setting).folder for setting in settings}
        assert len(folders) == len(settings)

    def test_it_is_the_same_tomorrow(self) -> None:
        batches = [a_batch()[0]]
        one, other = (run_setting({}, a_describer(self.KNOWN), batches) for _ in range(2))
        assert one == other
        white, again = (
            run_setting(
                {},
                with_look(
                    a_describer(self.KNOWN), whitening=np.eye(self.KNOWN.dim, dtype=np.float32)
                ),
                batches,
            )
            for _ in range(2)
        )
        assert white == again
