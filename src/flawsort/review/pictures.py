"""The pictures of a run: thumbnails, images as they were analysed, and heat maps.

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
from PIL import Image

from flawsort.core.errors import InputError
from flawsort.core.records import RemoteFile
from flawsort.core.store import FORMAT, Store, prune
from flawsort.core.threads import n_threads
from flawsort.embeddings.heat import colour_table
from flawsort.images.decode import upright_size
from flawsort.images.find import digest_of
from flawsort.images.view import UnreadableImage, thumbnail
from flawsort.runs.run import Run

THUMBNAIL_SIDE = 192
IMAGE_SIDE = 1600
# Pixels of the heat map for each patch of the grid, in each direction.
HEAT_ZOOM = 8
THUMBNAIL_QUALITY, IMAGE_QUALITY = 82, 90
CACHE_LIMIT = 2 * 2**30
STORES_BETWEEN_PRUNES = 2000
MEMORY_LIMIT = 48 * 2**20
MEDIA_TYPES = {"thumb": "image/jpeg", "image": "image/jpeg", "heat": "image/png"}

_SUFFIX = ".jpg"

What: TypeAlias = Literal["thumb", "image", "heat"]
# An image of 200 megapixels takes a gigabyte while it is decoded.
_DECODING = threading.BoundedSemaphore(n_threads())


class Pictures:
    """The pictures of a run. cache: a folder for thumbnails, or None."""

    def __init__(self, run: Run, cache: Path | None):
        self._run = run
        self._thumbnails = None if cache is None else PictureFiles(cache / "thumbnails")
        self._recent = _Recent(MEMORY_LIMIT)

    def tag(self, what: What, row: int) -> str:
        """Changes whenever the picture would change; computed without making the picture."""
        run = self._run
        if what == "heat":
            parts = [json.dumps([run.manifest["grid"], run.manifest["heat"]])]
            rows = [run.scores[row]] + ([] if run.valid is None else [run.valid[row]])
            parts += [np.ascontiguousarray(values).tobytes().hex() for values in rows]
        elif what == "thumb" and run.thumbnails[row]:
            parts = [hashlib.sha256(run.thumbnails[row]).hexdigest()]
        else:
            side = THUMBNAIL_SIDE if what == "thumb" else IMAGE_SIDE
            view = json.dumps([run.manifest["view"], run.input_size, side], sort_keys=True)
            parts = [run.table["sha256"][row], view]
        return hashlib.sha256("\n".join([f"{FORMAT} {what}", *parts]).encode()).hexdigest()[:40]

    def picture(self, what: What, row: int) -> bytes:
        """A picture as a file. InputError if the image is missing, changed or unreadable."""
        if what == "thumb" and self._run.thumbnails[row]:
            return self._run.thumbnails[row]
        tag = self.tag(what, row)
        make = {"thumb": self._thumb, "image": self._image, "heat": self._heat}[what]
        if what == "thumb" and self._thumbnails is not None:
            return self._thumbnails.get(tag, lambda: make(row))
        return self._recent.get(tag, lambda: make(row))

    def _thumb(self, row: int) -> bytes:
        return self._jpeg(row, THUMBNAIL_SIDE, THUMBNAIL_QUALITY)

    def _image(self, row: int) -> bytes:
        return self._jpeg(row, IMAGE_SIDE, IMAGE_QUALITY)

    def _jpeg(self, row: int, side: int, quality: int) -> bytes:
        source = self._source(row)
        with _DECODING:
            # Never larger than the file: that would only be slower.
            view = self._run.view
            side = min(side, max(upright_size(source, view.max_pixels)))
            picture = thumbnail(source, view, self._run.input_size, side)
        content = io.BytesIO()
        picture.save(content, "JPEG", quality=quality)
        return content.getvalue()

    def _heat(self, row: int) -> bytes:
        """RGBA, the hotter the less transparent; made to be stretched over the image."""
        rows, columns = self._run.grid
        heat = self._run.patch_heat(row)
        small = Image.fromarray(heat.reshape(rows, columns).astype(np.float32))
        large = small.resize((HEAT_ZOOM * columns, HEAT_ZOOM * rows), Image.Resampling.BICUBIC)
        index = np.rint(np.clip(np.asarray(large), 0.0, 1.0) * 255).astype(np.uint8)
        content = io.BytesIO()
        Image.fromarray(colour_table()[index], "RGBA").save(content, "PNG", compress_level=4)
        return content.getvalue()

    def _source(self, row: int) -> Path | RemoteFile:
        """The file of an image; InputError if its content has changed since clustering."""
        name = self._run.names[row]
        try:
            source = self._run.source(row)
            digest, reason = digest_of(source)
        except UnreadableImage as error:
            reason = str(error)
        if reason:
            raise InputError(f"The image '{name}' cannot be shown: it {reason}.")
        if digest != self._run.table["sha256"][row]:
            raise InputError(
                f"The image '{name}' cannot be shown: it has changed since it was clustered."
            )
        return source


class PictureFiles:
    """A folder of pictures; above a size limit the least recently used are removed."""

    def __init__(self, folder: Path, *, limit: int = CACHE_LIMIT):
        self._folder, self._limit = folder, limit
        self._store = Store(folder, {}, suffix=_SUFFIX)
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
        prune(self._folder, _SUFFIX, self._limit)


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
        with self._lock:
            if tag not in self._kept and len(content) <= self._limit:
                self._kept[tag] = content
                self._size += len(content)
            while self._size > self._limit:
                self._size -= len(self._kept.popitem(last=False)[1])
        return content
