"""What a new run starts from: everything is read first, and examples are embedded later."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort import InputError
from flawsort.core.records import Floats, ImageSet, SetAside
from flawsort.images.find import find_images
from flawsort.labels.beginning import Known
from flawsort.labels.example_checks import packed
from flawsort.labels.session import Session
from flawsort.labels.start import Start, may_replace
from helpers.plates import plate, write_plates


@pytest.fixture
def here(plates: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """parts/ and run/, kinds/ with examples of two kinds, and known.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").symlink_to(plates / "parts")
    shutil.copytree(saved, tmp_path / "run")
    write_plates(tmp_path / "kinds" / "ring", ["ring"] * 3)
    write_plates(tmp_path / "kinds" / "good", ["good"] * 2)
    (tmp_path / "known.csv").write_text("name,label\ndent00.png,dent\nstreak07.png,good\n")
    return tmp_path


def embed(images: ImageSet) -> tuple[ImageSet, Floats]:
    """The rows of an identity matrix for embeddings."""
    return images, np.eye(len(images), 4)


def never(images: ImageSet) -> tuple[ImageSet, Floats]:
    raise AssertionError(f"asked for {len(images)} images")


def test_nothing_given() -> None:
    assert Start.read(ImageSet((), (), ())) is None


def test_names_that_differ_in_case_only(here: Path) -> None:
    images = find_images("parts")
    (here / "kinds" / "ring").rename(here / "kinds" / "DENT")
    with pytest.raises(InputError, match="Got 'dent' and 'DENT'"):
        Start.read(images, labels=Path("known.csv"), examples=Path("kinds"))
    with Session(here / "run") as session:
        session.edit("name", {"group": 0, "name": "Dent"}, 0)
    with pytest.raises(InputError, match="Got 'Dent' and 'dent'"):
        Start.read(images, labels_from=Path("run"), labels=Path("known.csv"))


def test_labels_and_examples(here: Path) -> None:
    images = find_images("parts")
    start = Start.read(images, labels=Path("known.csv"), examples=Path("kinds"))
    assert start is not None
    assert start.known_here
    assert start.notes == (
        "From known.csv: 2 labels of 2 kinds.", "From kinds: 5 examples of 2 kinds.",
    )  # fmt: skip
    known, notes = start.known(images, embed)
    assert notes == []
    assert isinstance(known, Known)
    assert {one.title: one.id for one in known.groups.values()} == {
        "dent": 0,
        "normal": 1,
        "ring": 2,
    }
    digest = dict(zip(images.names, images.digests, strict=True))
    assert known.decided == {digest["dent00.png"]: 0, digest["streak07.png"]: 1}
    assert known.spent == 7
    found = {Path(one.name).relative_to(here).as_posix(): one.group for one in known.examples}
    assert found == {
        "kinds/good/good00.png": 1, "kinds/good/good01.png": 1,
        "kinds/ring/ring00.png": 2, "kinds/ring/ring01.png": 2, "kinds/ring/ring02.png": 2,
    }  # fmt: skip
    assert {one.vector.dtype for one in known.examples} == {np.dtype(np.float32)}
    assert np.stack([one.vector for one in known.examples])[:4].tolist() == np.eye(4).tolist()


def test_an_example_that_is_an_image_of_the_run_is_decided(here: Path) -> None:
    shutil.rmtree("kinds")
    Path("kinds/dull spot").mkdir(parents=True)
    shutil.copy("parts/dent03.png", "kinds/dull spot/elsewhere.png")
    images = find_images("parts")
    start = Start.read(images, examples=Path("kinds"))
    assert start is not None
    known, _ = start.known(images, never)
    assert known is not None
    assert known.decided == {images.digests[images.names.index("dent03.png")]: 0}
    assert known.groups[0].name == "dull spot"
    assert (known.examples, known.spent) == ((), 1)
    Path("known.csv").write_text("name,label\ndent03.png,dent\n")
    message = (
        r"The example 'dull spot/elsewhere\.png' has two labels: it is in the folder of 'dull "
        r"spot', and its label in the CSV file is 'dent'\. Keep one of them\."
    )
    with pytest.raises(InputError, match=message):
        Start.read(images, labels=Path("known.csv"), examples=Path("kinds"))


def test_examples_that_cannot_be_used_do_not_end_the_work(here: Path) -> None:
    images = find_images("parts")
    start = Start.read(images, examples=Path("kinds"))
    assert start is not None

    def some(given: ImageSet) -> tuple[ImageSet, Floats]:
        bad = SetAside(given.names[0], "is truncated")
        return given.without([bad]), np.eye(len(given) - 1, 4)

    known, notes = start.known(images, some)
    assert known is not None
    assert len(known.examples) == 4
    assert len(notes) == 1
    assert notes[0].startswith(f"The example {here / 'kinds'}")
    assert notes[0].endswith(".png is left out: it is truncated.")

    def none(given: ImageSet) -> tuple[ImageSet, Floats]:
        raise InputError("None of the 5 images can be used.")

    known, notes = start.known(images, none)
    assert known is not None
    assert known.examples == ()
    assert notes == ["The examples are left out: None of the 5 images can be used."]


def test_examples_of_an_earlier_run_are_embedded_again(here: Path) -> None:
    outside = find_images("kinds")
    with Session(here / "run") as session:
        vector = np.zeros(session.run.embeddings.shape[1])
        for name, digest in zip(outside.names, outside.digests, strict=True):
            to = {"to": "normal"} if name.startswith("good") else {"to": 0}
            example = packed(str(here / "kinds" / name), digest, vector)
            session.edit("teach", {"examples": [example], **to}, session.version)
        session.edit("verdict", {"threshold": 0.3}, session.version)
        normal = session.labelling.with_role("normal")[0]
    images = find_images(["parts", "kinds/good/good00.png"])
    Image.fromarray(plate("ring", 77)).save("kinds/ring/ring00.png")
    Path("kinds/ring/ring01.png").unlink()
    start = Start.read(images, labels_from=Path("run"))
    assert start is not None
    assert not start.known_here
    assert start.notes == ("From run: no names, no decided images and 5 examples.",)
    known, notes = start.known(images, embed)
    assert known is not None
    # One of them is an image of the run now, and two are gone.
    assert known.decided == {images.digests[images.names.index("good00.png")]: normal}
    assert {Path(one.name).name: one.group for one in known.examples} == {
        "good01.png": normal, "ring02.png": 0,
    }  # fmt: skip
    assert {len(one.vector) for one in known.examples} == {4}
    assert known.threshold == 0.3
    ring = here / "kinds" / "ring"
    assert notes == [
        "2 examples of run are left out, because the files are gone or changed, the first "
        f"{ring / 'ring00.png'}."
    ]
    # What is said now goes before what was said then.
    again = Start.read(images, labels_from=Path("run"), examples=Path("kinds"))
    assert again is not None
    known, _ = again.known(images, embed)
    assert known is not None
    named = {Path(one.name).name: known.groups[one.group].title for one in known.examples}
    assert named == {"good01.png": "normal", "ring00.png": "ring", "ring02.png": "ring"}


def test_an_earlier_run_that_nobody_edited(here: Path) -> None:
    images = find_images("parts")
    start = Start.read(images, labels_from=Path("run"))
    assert start is not None
    assert start.known(images, never) == (None, [])
    assert start.again() is start
    with Session(here / "run") as session:
        session.edit("name", {"group": 0, "name": "meanwhile"}, 0)
    later, _ = start.again().known(images, never)
    assert later is not None
    assert later.groups[0].name == "meanwhile"


def test_which_runs_may_be_replaced(here: Path) -> None:
    run = here / "run"
    assert may_replace(run, Path("run"), known_here=False)
    assert may_replace(run, None, known_here=True)
    with Session(run) as session:
        session.edit("name", {"group": 0, "name": "mine"}, 0)
    assert may_replace(run, Path("kinds/../run"), known_here=False)
    assert not may_replace(run, None, known_here=True)
    assert not may_replace(run, Path("parts"), known_here=True)
