"""The pictures of a run: thumbnails, images as they were analysed, heat maps, and close-ups.

Requests name rows only. The run knows the file of each row, and the file is shown only if its
content is still what was clustered.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from flawsort.core.errors import InputError
from flawsort.core.records import RemoteFile
from flawsort.core.store import FORMAT, Store, prune
from flawsort.core.threads import n_threads
from flawsort.embeddings.heat import heat_picture
from flawsort.images.closeups import picture_size, whole_pixels
from flawsort.images.decode import upright_size
from flawsort.images.find import digest_of
from flawsort.images.originals import aspect_of, cut, jpeg, whole_picture
from flawsort.images.view import Box, UnreadableImage, frame_of, thumbnail
from flawsort.runs.looking import Looking
from flawsort.runs.run import Run, source_of

THUMBNAIL_SIDE = 192
IMAGE_SIDE = 1600
# Of whole images at their own resolution: more than browsers show in one piece.
FULL_SIDE = 12_000
# Of the close-ups that are shown beside an image.
CLOSE_SIDE = 512
THUMBNAIL_QUALITY, IMAGE_QUALITY, FULL_QUALITY = 82, 90, 92
CACHE_LIMIT = 2 * 2**30
STORES_BETWEEN_PRUNES = 2000
MEMORY_LIMIT = 48 * 2**20
HEATS = ("heat", "flaw-heat")
WHOLE = ("thumb", "image", "full", "heat")

SUFFIX = ".jpg"
# In the cache folder.
THUMBNAILS = "thumbnails"

# thumb, image, full: the whole image as it was analysed, in three sizes; heat lies over them. flaw:
# its most unusual place, over which flaw-heat lies. close, match: that place again, larger, and the
# place that matches it best.
What: TypeAlias = Literal["thumb", "image", "full", "heat", "flaw", "flaw-heat", "close", "match"]
SIDES = {"thumb": THUMBNAIL_SIDE, "flaw": THUMBNAIL_SIDE, "image": IMAGE_SIDE, "full": FULL_SIDE}
# An image of 200 megapixels takes a gigabyte while it is decoded.
_DECODING = threading.BoundedSemaphore(n_threads())


class Pictures:
    """The pictures of a run. cache: a folder for thumbnails, or None."""

    def __init__(self, run: Run, cache: Path | None):
        self._run, self.looking = run, Looking(run)
        self._thumbnails = None if cache is None else PictureFiles(cache / THUMBNAILS)
        self._recent = _Recent(MEMORY_LIMIT)

    def tag(self, what: What, row: int) -> str:
        """Changes whenever the picture would change; computed without making the picture."""
        run, stored = self._run, self._stored(what, row)
        if stored:
            parts = [hashlib.sha256(stored).hexdigest()]
        elif what in HEATS:
            parts = [json.dumps([run.manifest["grid"], run.manifest["heat"]])]
            rows = [run.scores[row]] + ([] if run.valid is None else [run.valid[row]])
            parts += [np.ascontiguousarray(values).tobytes().hex() for values in rows]
        else:
            view = [run.manifest["view"], run.input_size, SIDES.get(what, CLOSE_SIDE)]
            parts = [run.table["sha256"][row], json.dumps(view, sort_keys=True)]
        if what not in WHOLE and not stored:
            parts.append(f"{self.looking.match(row)} {self.looking.patches[row].tolist()}")
        return hashlib.sha256("\n".join([f"{FORMAT} {what}", *parts]).encode()).hexdigest()[:40]

    def picture(self, what: What, row: int) -> bytes:
        """A picture as a file. InputError if the image is missing, changed or unreadable."""
        stored = self._stored(what, row)
        if stored:
            return stored
        tag, make = self.tag(what, row), lambda: self._made(what, row)
        if what in ("thumb", "flaw") and self._thumbnails is not None:
            return self._thumbnails.get(tag, make)
        return self._recent.get(tag, make)

    def box(self, row: int) -> Box:
        """The close-up of an image: left, top, right, bottom in fractions of its picture."""
        return self.looking.box(row, self._aspect(row))

    def _stored(self, what: What, row: int) -> bytes:
        """The picture that the run itself has; empty bytes for others."""
        if what == "thumb":
            return self._run.thumbnails[row]
        close_ups = self._run.close_ups
        return close_ups[row] if what == "flaw" and close_ups is not None else b""

    def _made(self, what: What, row: int) -> bytes:
        if what == "heat":
            return heat_picture(self._run.patch_heat(row), self._run.grid)
        if what == "flaw-heat":
            return heat_picture(self._run.patch_heat(row), self._run.grid, self.box(row))
        if what in ("flaw", "close", "match"):
            return self._close_up(what, row)
        quality = THUMBNAIL_QUALITY if what == "thumb" else IMAGE_QUALITY
        source = self._source(row)
        if what == "full":
            return full_jpeg(self._run, source)
        return jpeg_of(self._run, source, SIDES[what], quality)

    def _close_up(self, what: What, row: int) -> bytes:
        """A close-up or its match, from the files; from the run if these are gone."""
        run, matching = self._run, None
        with contextlib.suppress(InputError):
            matching = self._matching(row)
        try:
            source = self._source(row)
            with _DECODING:
                here, there = self.looking.pair(row, source, matching, SIDES.get(what, CLOSE_SIDE))
        except InputError:
            if what == "flaw":
                raise
            here, there = (b"" if one is None else one[row] for one in (run.close_ups, run.matches))
        if what != "flaw":
            self._recent.put(self.tag("close", row), here)
            self._recent.put(self.tag("match", row), there)
        content = there if what == "match" else here
        if not content:
            raise InputError(f"The image '{run.names[row]}' has no such picture.")
        return content

    def _source(self, row: int) -> Path | RemoteFile:
        name, digest = self._run.names[row], self._run.table["sha256"][row]
        return checked_source(lambda: self._run.source(row), name, digest)

    def _matching(self, row: int) -> Path | RemoteFile | None:
        """The file with the best matching place; None if nothing matches or it was no file."""
        run, match = self._run, self.looking.match(row)
        if match is None:
            return None
        if not run.manifest["n_normals"]:
            return self._source(run.row_of[match.name])
        path, digest = run.normal_paths[match.name]
        if not path:
            return None
        return checked_source(lambda: source_of(path, run.fetch), match.name, digest)

    def _aspect(self, row: int) -> float:
        """Width over height of what the view shows of an image."""
        run = self._run
        if run.thumbnails[row]:
            return aspect_of(run.thumbnails[row])
        wide, high = _seen(run, self._source(row))
        return wide / high


def jpeg_of(run: Run, source: Path | RemoteFile, side: int, quality: int) -> bytes:
    """An image as the run sees it, as a JPEG of at most `side` pixels."""
    with _DECODING:
        # Never larger than what is seen of the file: that would only be slower.
        side = min(side, max(_seen(run, source)))
        picture = thumbnail(source, run.view, run.input_size, side)
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=quality)
    return content.getvalue()


def full_jpeg(run: Run, source: Path | RemoteFile) -> bytes:
    """What the run sees of an image, in the pixels of its file."""
    with _DECODING:
        whole = whole_picture(source, run.view)
        frame = frame_of(run.view, run.input_size, whole.size)
        return jpeg(cut(whole, frame, picture_size(whole_pixels(frame), FULL_SIDE)), FULL_QUALITY)


def _seen(run: Run, source: Path | RemoteFile) -> tuple[int, int]:
    """Width and height of what the view shows of an image, in pixels of its file."""
    image = upright_size(source, run.view.max_pixels)
    left, top, right, bottom = whole_pixels(frame_of(run.view, run.input_size, image))
    return round(right - left), round(bottom - top)


def checked_source(
    find: Callable[[], Path | RemoteFile], name: str, digest: str
) -> Path | RemoteFile:
    """The file of an image; InputError if it cannot be read or its content has changed. digest:
    the SHA-256 that it had."""
    try:
        source = find()
        found, reason = digest_of(source)
    except UnreadableImage as error:
        reason = str(error)
    if reason:
        raise InputError(f"The image '{name}' cannot be shown: it {reason}.")
    if found != digest:
        raise InputError(
            f"The image '{name}' cannot be shown: it has changed since it was clustered."
        )
    return source


class PictureFiles:
    """A folder of pictures; above a size limit the least recently used are removed."""

    def __init__(self, folder: Path, *, limit: int = CACHE_LIMIT):
        self._folder, self._limit = folder, limit
        self._store = Store(folder, {}, suffix=SUFFIX)
        self._stored = 0

    def get(self, tag: str, make: Callable[[], bytes]) -> bytes:
        """The picture with a tag, made if it is not stored yet. A full or read-only disk only costs
        time."""
        kept = self._store.load(tag)
        if kept is not None:
            return bytes(kept)
        content = make()
        with contextlib.suppress(OSError):
            self._store.save(tag, [content])
        self._stored += 1
        if self._stored % STORES_BETWEEN_PRUNES == 0:
            self.prune()
        return content

    def prune(self) -> None:
        """Remove the least recently used until the rest fits the limit."""
        prune([(self._folder, SUFFIX)], self._limit)


class _Recent:
    """The most recent pictures, up to a number of bytes."""

    def __init__(self, limit: int):
        self._limit, self._size = limit, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, tag: str, make: Callable[[], bytes]) -> bytes:
        with self._lock:
            if tag in self._kept:
                self._kept.move_to_end(tag)
                return self._kept[tag]
        content = make()
        self.put(tag, content)
        return content

    def put(self, tag: str, content: bytes) -> None:
        with self._lock:
            if tag not in self._kept and len(content) <= self._limit:
                self._kept[tag] = content
                self._size += len(content)
            while self._size > self._limit:
                self._size -= len(self._kept.popitem(last=False)[1])
