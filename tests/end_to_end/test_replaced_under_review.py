"""A run that is clustered again into its own folder while people review it: no edit that was
acknowledged is lost, and none hits images that its author did not see."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flawsort import AnomalyClusterer, OptionError, open_run
from flawsort.core import storage
from flawsort.images.find import find_images
from flawsort.labels.attributes import GroupAttributes
from flawsort.labels.session import read_settled
from flawsort.labels.start import Start
from flawsort.labels.store import EditStore
from flawsort.review.app import make_app
from flawsort.runs.folder import EDITS, save_run
from helpers.plates import KINDS, settings, write_plates
from helpers.review_client import RunClient, closing_libraries, copied

# Seconds to see that somebody waits. One who does not wait is through long before.
MOMENT = 1.0


@pytest.fixture(scope="module", autouse=True)
def _let_go() -> Iterator[None]:
    with closing_libraries():
        yield


@pytest.fixture(scope="module")
def named(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which a few images are decided."""
    folder = copied(saved, tmp_path_factory.mktemp("named"))
    client = RunClient(make_app([folder]))
    for row, name in ((0, "first"), (13, "second")):
        assert client.edit("move", images=[row], to="new", name=name).status == 200
    return folder


@pytest.fixture
def folder(named: Path, tmp_path: Path) -> Path:
    return copied(named, tmp_path)


@pytest.fixture(scope="module")
def model(named: Path, plates: Path, tmp_path_factory: pytest.TempPathFactory) -> AnomalyClusterer:
    """The plates clustered again, and one more, from what was said of the run."""
    parts = tmp_path_factory.mktemp("more") / "parts"
    write_plates(parts, ("dent", *KINDS))
    images = find_images([parts])
    start = Start.read(images, labels_from=named)
    return AnomalyClusterer(n_clusters=3, **settings()).fit(images, start, normal=plates / "good")


def again(model: AnomalyClusterer, folder: Path) -> None:
    """Replaces the run in a folder by one that starts from it, as flawsort cluster does."""
    here = Start.read(model.fitted_.images, labels_from=folder)
    model._start, (model._begun, _) = here, model._begin(here)  # type: ignore[arg-type]
    model.save(folder, overwrite=True, report=False)


def titles(folder: Path) -> dict[str, str]:
    """The title of each image's group, by the content of the image."""
    run = open_run(folder)
    now = read_settled(folder, run).settled
    return {
        digest: now.groups[int(group)].title
        for digest, group in zip(run.table["sha256"], now.labels, strict=True)
    }


def name_image(client: RunClient, row: int, name: str) -> Any:
    """Put an image into a new group, as the page of this moment does: gives the answer."""
    state = client.state()
    payload = {"images": [row], "to": "new", "name": name}
    on = {"version": state["version"], "basis": state["basis"]}
    return client.post("/r/run/api/edits", {**on, "kind": "move", "payload": payload})


def after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, then: Callable[[], None]) -> None:
    original = getattr(owner, name)

    def changed(*given: Any, **options: Any) -> Any:
        found = original(*given, **options)
        then()
        return found

    monkeypatch.setattr(owner, name, changed)


def test_an_edit_after_the_labels_were_taken(
    model: AnomalyClusterer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last moment at which an edit can be made of the old run."""
    client, digests = RunClient(make_app([folder])), open_run(folder).table["sha256"]
    answers = []

    def late() -> None:
        if not answers:  # the first time the groups are written
            answers.append(name_image(client, 5, "late"))

    after(monkeypatch, GroupAttributes, "write_groups", late)
    again(model, folder)
    assert [answer.status for answer in answers] == [200]
    assert titles(folder)[digests[5]] == "late"
    assert {"first", "second", "late"} <= set(titles(folder).values())


def test_an_edit_while_the_folders_are_exchanged(
    model: AnomalyClusterer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, digests = RunClient(make_app([folder])), open_run(folder).table["sha256"]
    state, answers = client.state(), []

    def meanwhile() -> None:
        answers.append(client.edit("move", 2, images=[5], to="new", name="meanwhile"))

    thread = threading.Thread(target=meanwhile)

    def exchange(*given: Any) -> bool:
        thread.start()
        thread.join(MOMENT)
        return exchanged(*given)

    exchanged = storage._exchange
    monkeypatch.setattr(storage, "_exchange", exchange)
    again(model, folder)
    thread.join()
    (answer,) = answers
    # Either it was taken and is there, or it was refused, and its author looks again.
    assert answer.status == 409, answer
    assert "meanwhile" not in titles(folder).values()
    assert answer.data["version"] > state["version"]
    assert name_image(client, 5, "now").status == 200
    assert len(client.state()["labels"]) == len(digests) + 1


def test_people_who_edit_all_the_time(model: AnomalyClusterer, folder: Path) -> None:
    """Each edit that a client was told is saved is in the run that is there in the end."""
    client, saved, stop = RunClient(make_app([folder])), list[str](), threading.Event()

    def work() -> None:
        while not stop.is_set():
            name = f"group {len(saved)}"
            if name_image(client, 5, name).status == 200:
                saved.append(name)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(3):
            again(model, folder)
    finally:
        stop.set()
        thread.join()
    assert saved
    groups = {group["name"] for group in client.state()["groups"]}
    assert set(saved) <= groups, sorted(set(saved) - groups)


def test_versions_go_on(model: AnomalyClusterer, folder: Path) -> None:
    """No version means two things, so a client that names no basis conflicts as well."""
    client = RunClient(make_app([folder]))
    before = client.state()
    again(model, folder)
    now = client.state()
    assert (before["version"], now["version"]) == (2, 3)
    assert now["basis"] != before["basis"]
    assert client.edit("name", 2, group=2, name="x").status == 409
    assert client.edit("name", 3, group=2, name="x").status == 200


def test_an_edit_of_a_run_that_nobody_had_edited(
    saved: Path, fitted: AnomalyClusterer, tmp_path: Path
) -> None:
    """Both runs have version 0. The page says on which of them its edit is based."""
    folder = copied(saved, tmp_path)
    client = RunClient(make_app([folder]))
    before = client.state()
    run = open_run(folder)
    other = run.take([*range(len(run))][::-1])
    save_run(other, folder, overwrite=True)
    on = {"version": 0, "basis": before["basis"]}
    body = {**on, "kind": "name", "payload": {"group": 0, "name": "x"}}
    for target, what in (
        ("edits", body),
        ("undo", on),
        ("redo", on),
    ):
        answer = client.post(f"/r/run/api/{target}", what)
        assert answer.status == 409, answer
        assert "was replaced meanwhile" in answer.detail
    assert client.state()["version"] == 0
    again_body = {**body, "basis": client.state()["basis"]}
    assert client.post("/r/run/api/edits", again_body).status == 200


def test_an_edit_that_the_new_run_does_not_take_over(
    fitted: AnomalyClusterer, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made in the last moment in a run that had none: the new run is kept beside it."""
    folder = copied(saved, tmp_path)
    client = RunClient(make_app([folder]))

    def late() -> None:
        client.edit("name", 0, group=0, name="late")

    after(monkeypatch, GroupAttributes, "write_groups", late)
    with pytest.raises(Exception, match=r"complete but could not be moved.*holds edits"):
        fitted.save(folder, overwrite=True, report=False)
    assert client.state()["version"] == 1
    monkeypatch.undo()
    shutil.rmtree(next(tmp_path.glob(".run.finished-*")))
    with pytest.raises(OptionError, match="holds edits"):
        fitted.save(folder, overwrite=True, report=False)


def test_the_files_beside_the_new_edits_stay(model: AnomalyClusterer, folder: Path) -> None:
    """SQLite removes the files beside a database by their names when it is closed. A process that
    has the old run open must not do that to the new one, whose newest edits are in such a file."""
    old = EditStore(folder / EDITS)
    assert old.version() == 2
    again(model, folder)
    with EditStore(folder / EDITS) as new:
        version = new.version()
        client = RunClient(make_app([folder]))
        assert client.edit("name", version, group=2, name="kept").status == 200
        beside = folder / f"{EDITS}-wal"
        size = beside.stat().st_size
        assert size
        old.close()
        assert beside.stat().st_size == size
    assert "kept" in {group["name"] for group in RunClient(make_app([folder])).state()["groups"]}


def test_a_run_that_could_not_be_replaced_can_be_edited(
    fitted: AnomalyClusterer, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for the exchange leaves no trace: no edit, and nothing that looks like one."""
    folder = copied(saved, tmp_path)

    def broken(*_: Any) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(storage, "_exchange", broken)
    with pytest.raises(Exception, match="Input/output error"):
        fitted.save(folder, overwrite=True, report=False)
    monkeypatch.undo()
    shutil.rmtree(next(tmp_path.glob(".run.finished-*")))
    fitted.save(folder, overwrite=True, report=False)
    assert not (folder / EDITS).exists()
    assert RunClient(make_app([folder])).edit("name", 0, group=0, name="x").status == 200
