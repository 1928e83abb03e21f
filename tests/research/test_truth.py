"""Layouts that carry truth, and truth for the images of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flawsort.core.errors import InputError
from flawsort.images.find import array_images, find_images
from flawsort.research.truth import (
    EXCLUDED_LABELS,
    LabelledSet,
    find_datasets,
    load_datasets,
    read_truth,
)

REAL = Path(__file__).resolve().parents[3] / "shared" / "data"


def fill(root: Path, *names: str) -> Path:
    """Makes files that hold their own name: nothing here decodes them."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name, encoding="utf-8")
    return root


def category(root: Path) -> Path:
    return fill(
        root,
        "test/crack/000.png",
        "test/crack/001.png",
        "test/good/000.png",
        "test/combined/000.png",
        "train/good/000.png",
        "train/good/001.png",
        "ground_truth/crack/000_mask.png",
        "ground_truth/crack/001.png",
        "license.txt",
    )


def tiles(root: Path, *, listed: tuple[str, ...] = ()) -> Path:
    fill(root, *(f"MT_Free/Imgs/f{i}.jpg" for i in range(10)))
    fill(root, *(f"MT_Free/Imgs/f{i}.png" for i in range(10)))
    fill(root, "MT_Crack/Imgs/c.JPG", "MT_Crack/Imgs/c.png", "MT_Fray/Imgs/a.jpg")
    if listed:
        (root / "train_normal.txt").write_text("\ufeff" + "\r\n".join(listed) + "\n\n")
    return root


def labels_of(found: LabelledSet) -> dict[str, str]:
    return dict(zip(found.images.names, found.labels, strict=True))


def test_mvtec_category(tmp_path: Path) -> None:
    (found,) = load_datasets(category(tmp_path / "bottle"))
    assert found.name == "bottle"
    assert labels_of(found) == {
        "combined/000.png": "combined",
        "crack/000.png": "crack",
        "crack/001.png": "crack",
        "good/000.png": "good",
    }
    truth = tmp_path / "bottle/ground_truth"
    assert found.masks == (None, truth / "crack/000_mask.png", truth / "crack/001.png", None)
    assert found.normals is not None
    assert found.normals.names == ("good/000.png", "good/001.png")
    assert set(EXCLUDED_LABELS) < set(found.labels)


def test_mvtec_category_without_train_or_masks(tmp_path: Path) -> None:
    root = fill(tmp_path / "x", "test/a/1.png", "test/b/1.png", "test/loose.png", "train/good/note")
    (found,) = load_datasets(root)
    assert found.normals is None
    assert found.masks == (None, None)
    assert [entry.name for entry in found.images.set_aside] == ["loose.png"]


def test_folder_of_categories(tmp_path: Path) -> None:
    for name in ("screw", "bottle"):
        category(tmp_path / name)
    fill(tmp_path, "readme.txt", ".git/test/x/1.png")
    assert [found.name for found in load_datasets(tmp_path)] == ["bottle", "screw"]


def test_sets_are_found_by_their_folders_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("opened")

    category(tmp_path / "mvtec" / "bottle")
    tiles(tmp_path / "mt", listed=("f1.jpg",))
    fill(tmp_path / "mine", "crack/1.png", "dent/1.png")
    for name in ("open", "read_bytes", "read_text"):
        monkeypatch.setattr(Path, name, refuse)
    expected = (("mvtec", "bottle", "category"), ("mt", "mt", "tiles"), ("mine", "mine", "folders"))
    for folder, name, layout in expected:
        (found,) = find_datasets(tmp_path / folder)
        assert (found.name, found.layout) == (name, layout)
    assert find_datasets(tmp_path / "mvtec/bottle") == find_datasets(tmp_path / "mvtec")
    with pytest.raises(AssertionError, match="opened"):
        load_datasets(tmp_path / "mine")  # or nothing was guarded here


def test_magnetic_tiles(tmp_path: Path) -> None:
    (found,) = load_datasets(tiles(tmp_path / "mt", listed=("f3.jpg", "f1.jpg")))
    assert found.normals is not None
    assert found.normals.names == ("MT_Free/Imgs/f1.jpg", "MT_Free/Imgs/f3.jpg")
    expected = {"MT_Crack/Imgs/c.JPG": "Crack", "MT_Fray/Imgs/a.jpg": "Fray"}
    expected |= {f"MT_Free/Imgs/f{i}.jpg": "Free" for i in range(10) if i not in (1, 3)}
    assert labels_of(found) == expected
    masks = dict(zip(found.images.names, found.masks, strict=True))
    assert masks["MT_Crack/Imgs/c.JPG"] == tmp_path / "mt/MT_Crack/Imgs/c.png"
    assert masks["MT_Fray/Imgs/a.jpg"] is None


def test_magnetic_tiles_without_the_list_split_the_same_way_each_time(tmp_path: Path) -> None:
    (first,) = load_datasets(tiles(tmp_path / "a"))
    assert first.normals is not None
    assert len(first.normals) == 8
    for name in "bcd":
        (again,) = load_datasets(tiles(tmp_path / name))
        assert again.normals is not None
        assert again.normals.names == first.normals.names
    assert all(name.startswith("MT_Free/") for name in first.normals.names)
    assert sorted(first.labels) == ["Crack", "Fray", "Free", "Free"]


def test_magnetic_tiles_with_a_foreign_list(tmp_path: Path) -> None:
    tiles(tmp_path, listed=("nothing.jpg",))
    with pytest.raises(InputError, match=r"None of the 1 files .*among the 12 images"):
        load_datasets(tmp_path)


def test_folder_per_label(tmp_path: Path) -> None:
    fill(tmp_path, "crack/deep/1.png", "crack/2.png", "dent/1.png", "empty/notes.md", "loose.png")
    (found,) = load_datasets(tmp_path)
    assert labels_of(found) == {
        "crack/2.png": "crack",
        "crack/deep/1.png": "crack",
        "dent/1.png": "dent",
    }
    assert found.normals is None
    assert [entry.reason for entry in found.images.set_aside] == [
        "has no label: it is in no folder"
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("a.png", "b.png"), r"has no labels: 0 of its folders.*Known layouts: an MVTec AD"),
        (("one/a.png",), r"has no labels: 1 of its folders .*one folder for each label"),
        (("notes.md",), r"No images under"),
    ],
)
def test_other_folders_are_refused(tmp_path: Path, files: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_datasets(fill(tmp_path, *files))


def test_not_a_folder_and_lengths(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'.*gone' is not a folder\. Datasets are folders"):
        load_datasets(tmp_path / "gone")
    with pytest.raises(InputError, match=r"same length\. Got 1, 0 and 1"):
        LabelledSet("x", array_images(np.zeros((1, 2, 2), np.uint8)), (), (None,), None)


def test_truth_of_a_folder_by_path_then_by_content(tmp_path: Path) -> None:
    truth = fill(tmp_path / "truth", "crack/1.png", "dent/2.png", "dent/3.png")
    (truth / "crack/twin.png").write_text("same")
    (truth / "dent/twin.png").write_text("same")
    (truth / "crack/1-again.png").write_text("crack/1.png")
    run = fill(tmp_path / "run", "unknown.png")
    (run / "moved.png").write_text("crack/1.png")
    (run / "torn.png").write_text("same")
    (run / "link.png").symlink_to(truth / "dent/2.png")
    images = find_images([run, truth / "dent/twin.png"])
    labels = dict(zip(images.names, read_truth(truth, images), strict=True))
    assert labels == {
        "link.png": "dent",
        "moved.png": "crack",
        "torn.png": None,
        "twin.png": "dent",
        "unknown.png": None,
    }


def test_truth_of_layouts_includes_their_normals(tmp_path: Path) -> None:
    for root, good, label in (
        (category(tmp_path / "bottle"), "train/good/000.png", "good"),
        (tiles(tmp_path / "mt"), "MT_Free/Imgs/f0.jpg", "Free"),
    ):
        assert read_truth(root, find_images(root / good)) == (label,)


@pytest.mark.parametrize(
    "text",
    [
        "path,label\nlot/1.png,crack\n{root}/lot/2.png,dent\n3.png,dent\n",
        "\ufeffLabel;File;note\r\ncrack;1.png;x\r\ndent;./2.png;\r\ndent;other/3.png;\r\n",
        "image\tclass\n1.png\tcrack\n2.png\tdent\nD:\\pics\\3.png\tdent\n",
    ],
)
def test_truth_of_a_table(tmp_path: Path, text: str) -> None:
    root = fill(tmp_path, "lot/1.png", "lot/2.png", "lot/3.png", "lot/4.png")
    (root / "t.csv").write_text(text.format(root=root), encoding="utf-8", newline="")
    found = read_truth(root / "t.csv", find_images(root / "lot"))
    assert found == ("crack", "dent", "dent", None)


def test_table_with_ambiguous_or_empty_rows(tmp_path: Path) -> None:
    root = fill(tmp_path, "lot/a/1.png", "lot/b/1.png", "lot/2.png", "lot/3.png", "lot/4.png")
    (root / "t.csv").write_text(
        "name,label\nx/1.png,crack\n2.png,crack\n2.png,dent\n3.png,\nq/4.png,ok\nr/4.png,ok\n"
        'a/1.png,"with, comma"\n'
    )
    images = find_images(root / "lot")
    labels = dict(zip(images.names, read_truth(root / "t.csv", images), strict=True))
    assert labels == {
        "2.png": None,
        "3.png": None,
        "4.png": None,
        "a/1.png": "with, comma",
        "b/1.png": None,
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"path,label\nother.png,dent\n", r"None of the 1 images has a label among the 1 of"),
        (b"a,b\n1,2\n", r"must have a column path or name or file or image .*Got a, b\."),
        (b"", r"Got no header\."),
        (b"path,label\n\xff\xfe,x\n", r"cannot be read: .*Save it as CSV in UTF-8"),
    ],
)
def test_tables_that_do_not_help(tmp_path: Path, content: bytes, message: str) -> None:
    images = find_images(fill(tmp_path, "lot/1.png") / "lot")
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_truth(tmp_path / "t.csv", images)


def test_truth_that_is_missing_or_foreign(tmp_path: Path) -> None:
    images = find_images(fill(tmp_path, "lot/1.png") / "lot")
    with pytest.raises(InputError, match=r"truth '.*gone' does not exist\. Name a CSV file"):
        read_truth(tmp_path / "gone", images)
    other = fill(tmp_path / "other", "a/x.png", "b/y.png")
    with pytest.raises(InputError, match=r"None of the 1 images has a label among the 2 of"):
        read_truth(other, images)


def test_arrays_take_their_labels_from_a_table(tmp_path: Path) -> None:
    images = array_images(np.zeros((2, 4, 4), np.uint8))
    (tmp_path / "t.csv").write_text("name,truth\nimage-00001,dent\n")
    assert read_truth(tmp_path / "t.csv", images) == (None, "dent")


@pytest.mark.skipif(not (REAL / "magnetic-tile").is_dir(), reason="the real images are not here")
def test_real_magnetic_tiles() -> None:
    (found,) = load_datasets(REAL / "magnetic-tile")
    assert found.normals is not None
    assert (len(found.images), len(found.normals), len(set(found.labels))) == (583, 761, 6)
    assert all(mask is not None for mask in found.masks)
