"""Finding, naming, hashing and setting aside; images given as arrays."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from flawsort.core.errors import InputError
from flawsort.core.records import ImageSet
from flawsort.images import find as files
from flawsort.images.find import array_images, find_images

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Makes files below tmp_path, each holding its own name."""

    def make(*names: str) -> Path:
        for name in names:
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name, encoding="utf-8")
        return tmp_path

    return make


def reasons(images: ImageSet) -> dict[str, str]:
    return {entry.name: entry.reason for entry in images.set_aside}


def test_folder_is_searched_recursively_sorted_and_hashed(tree: Tree) -> None:
    root = tree("b.png", "a/z.JPG", "a/y.tiff", "notes.md", "._b.png", ".cache/c.png", "a/B.webp")
    images = find_images(root)
    assert images.names == ("a/B.webp", "a/y.tiff", "a/z.JPG", "b.png")
    assert images.sources == tuple(root / name for name in images.names)
    assert images.digests == tuple(hashlib.sha256(n.encode()).hexdigest() for n in images.names)
    assert find_images(str(root)) == images == find_images([root])
    assert not images.set_aside


@pytest.mark.parametrize(("processors", "threads"), [(1, 4), (32, 32)])
def test_hashing_takes_every_processor(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, processors: int, threads: int
) -> None:
    asked: list[int] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, n: int) -> None:
            asked.append(n)
            super().__init__(n)

    monkeypatch.setattr(files, "n_threads", lambda: processors)
    monkeypatch.setattr(files, "ThreadPoolExecutor", Pool)
    assert len(find_images(tree("a.png", "b.png"))) == 2
    assert asked == [threads]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.png", ("a/1.png", "b/1.png")),
        ("1.*", ("a/1.jpg", "a/1.png", "b/1.png")),
        ("a/*", ("a/1.jpg", "a/1.png")),
    ],
)
def test_glob_narrows_folders(tree: Tree, glob: str, expected: tuple[str, ...]) -> None:
    root = tree("a/1.png", "a/1.jpg", "b/1.png", "b/2.jpg")
    assert find_images(root, glob=glob).names == (expected)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.png", ("0.png",)),
        ("**/*.png", ("0.png", "a/1.png", "a/b/2.png")),
        ("a/**/*.png", ("1.png", "b/2.png")),
        ("a/**", ("1.jpg", "1.png", "b/2.png")),
        ("?/1.*", ("a/1.jpg", "a/1.png")),
        ("**/b/*", ("a/b/2.png",)),
    ],
)
def test_pattern_names_are_relative_to_its_fixed_part(
    tree: Tree, pattern: str, expected: tuple[str, ...]
) -> None:
    root = tree("0.png", "a/1.png", "a/1.jpg", "a/b/2.png", "a/b/read.me", "a/.hid/3.png")
    assert find_images(f"{root}/{pattern}").names == expected


def test_existing_folder_with_brackets_is_no_pattern(tree: Tree) -> None:
    root = tree("lot[1]/x.png", "lot1/y.png")
    assert find_images(f"{root}/lot[1]").names == ("x.png",)


def test_list_file(tree: Tree) -> None:
    root = tree("lists/sub/one.dat", "two.png", "three.png")
    (root / "lists/all.txt").write_text(
        f"\ufeff# parts\n\nsub/one.dat\r\n../two.png\n{root}/three.png\n  gone.png \nsub\n",
        encoding="utf-8",
    )
    images = find_images(root / "lists/all.txt")
    assert set(images.names) == {"sub/one.dat", "../two.png", f"{root}/three.png"}
    assert reasons(images) == {"gone.png": "does not exist", "sub": "is a folder"}


def test_absolute_list_gives_names_below_the_common_folder(tree: Tree) -> None:
    root = tree("lists/x.png", "shots/a/one.png", "shots/b/two.png")
    paths = [root / "shots/a/one.png", root / "shots/b/two.png"]
    (root / "all.txt").write_text("\n".join(str(path) for path in paths), encoding="utf-8")
    assert find_images(root / "all.txt").names == ("a/one.png", "b/two.png")


def test_single_file_is_taken_whatever_its_suffix(tree: Tree) -> None:
    root = tree("scan.raw", ".hidden.png")
    assert find_images([root / "scan.raw", root / ".hidden.png"]).names == (
        ".hidden.png",
        "scan.raw",
    )


def test_same_file_counts_once(tree: Tree) -> None:
    root = tree("a/1.png", "a/sub/2.png")
    (root / "b").mkdir()
    (root / "b/link.png").symlink_to(root / "a/1.png")
    images = find_images([root / "a", root / "a/sub", root / "a/1.png", root / "b"])
    assert images.names == ("1.png", "sub/2.png")


def test_links_are_followed_and_loops_end(tree: Tree) -> None:
    root = tree("in/1.png", "else/2.png")
    (root / "in/loop").symlink_to(root / "in")
    (root / "in/more").symlink_to(root / "else")
    (root / "else/back").symlink_to(root / "in")
    (root / "in/self.png").symlink_to(root / "in/self.png")
    images = find_images(root / "in")
    assert images.names == ("1.png", "more/2.png")
    assert reasons(images) == {"self.png": "is a broken link"}
    assert find_images(f"{root}/in/**/*.png").names == images.names


def test_colliding_names_are_lengthened_for_the_whole_source(tree: Tree) -> None:
    root = tree("x/lot/1.png", "x/lot/2.png", "y/day/1.png", "z/3.png")
    images = find_images([root / "x/lot", root / "y/day", root / "z"])
    assert images.names == ("3.png", "day/1.png", "lot/1.png", "lot/2.png")
    assert images.sources[1] == root / "y/day/1.png"


def test_names_that_still_collide_become_full_paths(tree: Tree) -> None:
    root = tree("x/lot/1.png", "y/lot/1.png")
    images = find_images([root / "x/lot", root / "y/lot"])
    assert images.names == (f"{root}/x/lot/1.png", f"{root}/y/lot/1.png")


def test_unusable_files_are_set_aside(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree("good.png", "secret.png", "gone.png")
    (root / "empty.png").touch()
    (root / "broken.png").symlink_to(root / "nowhere.png")
    os.mkfifo(root / "pipe.png")
    real_open, real_stat = Path.open, Path.stat

    def guarded(self: Path, mode: str = "r") -> object:
        if self.name == "secret.png":
            raise PermissionError(13, "Permission denied")
        return real_open(self, mode)

    def vanished(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if self.name == "gone.png" and follow_symlinks:
            raise FileNotFoundError(2, "No such file or directory")
        return real_stat(self, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "open", guarded)
    monkeypatch.setattr(Path, "stat", vanished)
    images = find_images(root)
    assert images.names == ("good.png",)
    assert reasons(images) == {
        "broken.png": "is a broken link",
        "empty.png": "is empty (0 bytes)",
        "gone.png": "does not exist",
        "pipe.png": "is not a regular file",
        "secret.png": "cannot be read: permission denied",
    }


def test_odd_names(tree: Tree) -> None:
    root = tree("Teil 1 ü.png", "line\nbreak.png", "日本/x.png")
    names = find_images(root).names
    assert set(names) == {"Teil 1 ü.png", "line\nbreak.png", "日本/x.png"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_text_can_be_shown_and_stay_apart(tmp_path: Path) -> None:
    for raw in (b"a\xff.png", b"a\\udcff.png", b"\xfe/b.png"):
        file = os.fsencode(tmp_path) + b"/" + raw
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "wb") as handle:
            handle.write(raw)
    images = find_images(tmp_path)
    assert len(set(images.names)) == 3
    assert all(name.encode("utf-8") for name in images.names)
    assert "\\udcfe/b.png" in {name[-12:] for name in images.names}
    assert all(isinstance(source, Path) and source.is_file() for source in images.sources)
    with pytest.raises(InputError, match=r"does not exist") as caught:
        find_images(os.fsdecode(b"no\xff"))
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize(
    ("source", "glob", "message"),
    [
        ("nowhere", None, r"nowhere' does not exist\. Check the path"),
        (
            "text",
            None,
            r"No images under '.*'\. Looked for \.png, .*f\. Skipped 1 file: 1 ME\. Check the path",
        ),
        (
            "pics",
            "*.tif",
            r"pics/' whose name matches '\*\.tif'.* Check the path and the pattern\.$",
        ),
        ("pics/*.tif", None, r"No images match '.*pics/\*\.tif'\. Looked below"),
        ("nowhere/*.png", None, r"match '.*nowhere/\*\.png': '.*nowhere' is not a folder\. Check"),
        ("pics/empty.txt/*.png", None, r"'.*empty\.txt' is not a folder\. Check the path"),
        ("pics/empty.txt", None, r"list '.*empty\.txt' names no images\. Write one path per line"),
    ],
)
def test_errors_of_sources(tree: Tree, source: str, glob: str | None, message: str) -> None:
    root = tree("pics/1.png", "text/read.me")
    (root / "pics/empty.txt").write_text("# nothing\n\n")
    with pytest.raises(InputError, match=message):
        find_images(f"{root}/{source}", glob=glob)


def test_an_empty_path_is_not_the_current_folder() -> None:
    """As of a variable of the shell that is not set."""
    with pytest.raises(InputError, match=r"^A path is empty\. Name a folder; '\.' is the current "):
        find_images("")


@pytest.mark.parametrize("source", ["{}", "{}/*.png", "{}/**/*.png"])
def test_folders_that_cannot_be_opened(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    root = tree("shut/1.png", "half/shut/2.png", "half/shut2/3.png", "text/read.me")
    real = os.scandir

    def guarded(place: str | os.PathLike[str]) -> object:
        if Path(place).name.startswith("shut"):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(place))
        return real(place)

    monkeypatch.setattr(os, "scandir", guarded)
    told = r"^'.*/shut' cannot be opened: Permission denied\. Check its permissions\.$"
    with pytest.raises(InputError, match=told):
        find_images(source.format(root / "shut"))
    if source != "{}/*.png":  # which does not look into folders below
        told = r"'.*/half/shut' cannot be opened: Permission denied, nor can 1 more\. Check the pa"
        with pytest.raises(InputError, match=r"No images (under|match) .*f\. " + told):
            find_images(source.format(root / "half"))
    # One that has images elsewhere says nothing here: the pipeline tells what was set aside.
    (root / "half" / "4.png").write_bytes(b"4")
    assert find_images(source.format(root / "half")).names == ("4.png",)


def test_no_source_and_nothing_usable(tree: Tree) -> None:
    with pytest.raises(InputError, match=r"No source given\."):
        find_images([])
    root = tree()
    (root / "empty.png").touch()
    assert len(find_images(root)) == 0  # not an error here: the pipeline says what it needs


def test_arrays_get_names_and_digests_of_type_shape_and_values() -> None:
    stack = np.arange(2 * 4 * 6, dtype=np.uint8).reshape(2, 4, 6)
    images = array_images(stack)
    assert images.names == ("image-00000", "image-00001")
    variants = [
        stack[0],
        stack[0].reshape(6, 4),
        stack[0].astype(np.uint16),
        stack[0] > 3,
        stack[0] / np.float32(255),
        stack[1],
        np.stack([stack[0]] * 3, axis=2),
    ]
    assert len(set(array_images(variants).digests)) == len(variants)
    zeros = [np.zeros((2, 2), kind) for kind in (np.uint8, np.bool_)]
    assert len(set(array_images(zeros).digests)) == 2
    same = [np.asfortranarray(stack[0]), stack[0][::-1][::-1]]
    assert set(array_images(same).digests) == {images.digests[0]}
    swapped = stack[0].astype(">u2")
    assert array_images([swapped]).digests == array_images([stack[0].astype("<u2")]).digests


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (np.zeros((4, 4), np.uint8), r"shape \(n, height, width\).*Got \(4, 4\).*\[image\]"),
        ([np.zeros((4, 4), np.int64)], r"Image 0 must be .*Got int64 \(4, 4\)"),
        ([np.zeros((4, 4, 2), np.uint8)], r"Got uint8 \(4, 4, 2\)"),
        ([np.zeros((4, 0), np.uint8)], r"no side empty.*Got uint8 \(4, 0\)"),
        ([np.full((2, 2), 9.0)], r"between 0 and 1.*Got 9 to 9"),
        ([np.full((2, 2), np.nan)], r"between 0 and 1"),
        (["a.png"], r"Image 0 must be an array .*Got str\. To use files, pass their paths"),
        ([], r"the sequence of arrays is empty"),
    ],
)
def test_arrays_that_are_no_images(arrays: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        array_images(arrays)  # type: ignore[arg-type]
