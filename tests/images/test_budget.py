"""What decoding takes is known before it begins, and all threads keep within one budget."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from flawsort.images import budget as budget_module
from flawsort.images import decode as decode_module
from flawsort.images.budget import BUDGET, LEAST, Budget
from flawsort.images.decode import UnreadableImage, load, upright_size
from flawsort.images.find import LOOKED_AT_FIRST, digest_of
from flawsort.images.originals import whole_picture
from flawsort.images.tiles import photo_size
from flawsort.images.view import View, decode
from flawsort.images.window import measure_window
from helpers.picture_files import png16
from helpers.plates import LONG, run_code

MB = 2**20
DEEP = View(window=(0, 65535))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """16 million pixels of 16 bits in a small file."""
    path = tmp_path / "large.png"
    path.write_bytes(png16(np.zeros((4000, 4000, 1), np.uint16)))
    return path


# ---- the budget ----


def test_it_waits_until_there_is_room() -> None:
    budget, first, second = Budget(100 * MB), threading.Event(), threading.Event()

    def wait() -> None:
        with budget.held(60 * MB):
            second.set()

    with budget.held(60 * MB):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not second.wait(0.2)
        first.set()
    assert second.wait(LONG)
    waiting.join()
    assert budget._used == 0


def test_a_thread_that_holds_some_never_waits() -> None:
    budget = Budget(100 * MB)
    with budget.held(80 * MB), budget.held(80 * MB):
        assert budget._used == 160 * MB
    with pytest.raises(ValueError, match="inside"), budget.held(MB):
        raise ValueError("inside")
    assert budget._used == 0


def test_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    budget = Budget()
    assert budget.given is None
    with budget.limited(200 * MB):
        assert budget.limit == budget.given == 200 * MB
        with budget.limited(None):
            assert budget.limit == 200 * MB
        with budget.limited(-1):
            assert budget.limit == LEAST
    assert budget.given is None
    (tmp_path / "max").write_text("1000000000\n", "ascii")
    monkeypatch.setattr(budget_module, "_CGROUP", tmp_path / "max")
    assert budget.limit == 500_000_000
    (tmp_path / "max").write_text("max\n", "ascii")
    assert budget.limit > 2**28


def test_threads_together_keep_within_it(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, done = [0], []
    known = decode(large, DEEP, (64, 64)).needs
    framed = Image.Image.resize

    def watched(*given: Any, **options: Any) -> Any:
        most[0] = max(most[0], BUDGET._used)
        return framed(*given, **options)

    monkeypatch.setattr(Image.Image, "resize", watched)
    with BUDGET.limited(int(2.5 * known)):
        work = [
            threading.Thread(target=lambda: done.append(decode(large, DEEP, (64, 64))))
            for _ in range(6)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    assert len(done) == 6
    assert known <= most[0] <= 2 * known


# ---- what does not fit ----


def test_what_does_not_fit_is_not_decoded(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = decode(large, DEEP, (64, 64)).needs
    assert known > LEAST
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("decoded"))
    with BUDGET.limited(known - 1), pytest.raises(UnreadableImage, match="too large: decoding"):
        decode(large, DEEP, (64, 64))
    with BUDGET.limited(LEAST):
        for work in (
            lambda: decode(large, DEEP, (64, 64)),
            lambda: load(large, 10**9),
            lambda: whole_picture(large, DEEP),
            lambda: upright_size(large, 10**9, decodable=True),
        ):
            with pytest.raises(UnreadableImage) as seen:
                work()
            assert re.fullmatch(
                r"too large: decoding it takes \d+ MB, and --max-memory leaves 32 MB for decoding",
                str(seen.value),
            )
        assert measure_window([large]) is None
        assert photo_size([large], View()) is None
    assert upright_size(large, 10**9) == (4000, 4000)


def test_a_jpeg_is_decoded_smaller_where_that_fits(tmp_path: Path) -> None:
    for name in ("large.jpg", "large.png"):
        Image.new("RGB", (4000, 4000), (9, 9, 9)).save(tmp_path / name)
    with BUDGET.limited(LEAST):
        assert decode(tmp_path / "large.jpg", View(), (64, 64)).frames.max() < 0.1
        with pytest.raises(UnreadableImage, match="too large"):
            decode(tmp_path / "large.png", View(), (64, 64))
        with pytest.raises(UnreadableImage, match="too large"):  # at full size
            decode(tmp_path / "large.jpg", View(roi=(0, 0, 0.5, 0.5)), (64, 64))


def test_coefficients_of_a_progressive_jpeg_count(tmp_path: Path) -> None:
    needs = {}
    for progressive in (False, True):
        path = tmp_path / f"{progressive}.jpg"
        Image.new("RGB", (1600, 1600)).save(path, progressive=progressive)
        needs[progressive] = decode(path, View(), (32, 32)).needs
    assert needs[True] - needs[False] == 2 * 3 * 1600 * 1600


def test_large_files_are_looked_at_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nothing.png"
    with path.open("wb") as file:
        file.truncate(8 * 2**30)  # takes no space
    assert LOOKED_AT_FIRST < 8 * 2**30
    monkeypatch.setattr("hashlib.file_digest", lambda *given: pytest.fail("read"))
    with BUDGET.limited(16 * 2**30):
        digest, reason = digest_of(path)
    assert digest == ""
    assert reason.startswith("not an image")
    with BUDGET.limited(2**30):
        assert digest_of(path)[1] == (
            "too large: the file has 8.0 GB, and --max-memory leaves 1.0 GB for decoding"
        )


def test_a_file_is_the_one_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("L", (8, 8)).save(path)
    digest, _ = digest_of(path)
    assert decode(path, View(), (8, 8), digest=digest).frames.max() == 0
    Image.new("L", (8, 8), 9).save(path)
    for source in (path, path.read_bytes()):
        with pytest.raises(UnreadableImage, match="it changed while it was being read"):
            decode(source, View(), (8, 8), digest=digest)


# ---- headers ----


def test_the_header_of_a_png_says_how_it_is_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pillow looks for it behind the pixels, which it decodes to come there."""
    exif = Image.Exif()
    exif[0x0112] = 6
    first, last = tmp_path / "first.png", tmp_path / "last.png"
    image = Image.new("L", (30, 20))
    image.putpixel((0, 0), 200)
    image.save(first, exif=exif)
    content = first.read_bytes()
    start = content.index(b"eXIf") - 4
    chunk = content[start : start + 12 + int.from_bytes(content[start : start + 4], "big")]
    end = content.index(b"IEND") - 4
    last.write_bytes(content[:start] + content[start + len(chunk) : end] + chunk + content[end:])
    one, other = (np.asarray(load(path, 10**6).pixels8) for path in (first, last))
    np.testing.assert_array_equal(one, other)
    assert one.shape == (30, 20)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("decoded"))
    assert [upright_size(path, 10**6) for path in (first, last)] == [(20, 30)] * 2
    last.write_bytes(last.read_bytes()[:-20])
    assert upright_size(last, 10**6) in ((20, 30), (30, 20))  # cut short, and no error


# ---- what is known is enough ----

MEASURE = """
import sys
from pathlib import Path
import numpy as np
from flawsort.images.view import View, decode

view = View(window=(0, 65535))
decode(np.zeros((64, 64), np.uint16), view, (64, 64))

def peak():
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

for path in sorted(Path(sys.argv[1]).iterdir()):
    for canvas in (64, 1500):
        Path("/proc/self/clear_refs").write_text("5", "ascii")
        before = peak()
        known = decode(path, view, (canvas, canvas)).needs
        print(path.name, canvas, peak() - before, known)
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the system has no such file"
)
def test_decoding_takes_no_more_than_is_known(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        from hostile_files import make_layouts
    finally:
        sys.path.pop(0)
    make_layouts(tmp_path, 1500)
    answer = run_code(MEASURE, tmp_path)
    assert answer.code == 0, answer.err
    lines = [line.split() for line in answer.out.splitlines()]
    assert len(lines) == 2 * len(list(tmp_path.iterdir())) > 40
    # The allocator takes memory in blocks, and keeps some.
    over = [line for line in lines if int(line[2]) > int(line[3]) + 12 * MB]
    assert over == []
    assert any(int(line[2]) > 30 * MB for line in lines)


def test_planes_in_strips_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(0, 2**16, (37, 11, 3)).astype(np.uint16)
    opacity = np.random.default_rng(1).random((37, 11)).astype(np.float32)
    raster = decode_module.Raster(pixels16=values, opacity=opacity)
    whole = [np.asarray(plane) for plane in raster.planes((100, 60_000))]
    monkeypatch.setattr(decode_module, "ROWS_AT_ONCE", 5)
    strips = [np.asarray(plane) for plane in raster.planes((100, 60_000))]
    np.testing.assert_array_equal(whole, strips)
    expected = np.clip((values[..., 0].astype(np.float32) - 100) / 59_900, 0, 1)
    np.testing.assert_array_equal(whole[0], expected * opacity + (1 - opacity))
