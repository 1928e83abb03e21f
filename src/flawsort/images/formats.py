"""Which files are images that can be read, and what to say of the others, so that none vanishes."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import PurePath

from flawsort.core.text import pluralise

# Folders give the files with these suffixes.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif")

_VIDEOS = (".mp4", ".mov", ".avi", ".mkv", ".m4v", ".webm", ".mpg", ".mpeg", ".wmv")
_RAW = (".cr2", ".cr3", ".nef", ".arw", ".dng", ".raf", ".orf", ".rw2")
# Kinds of skipped files that the line names, the most frequent ones.
_NAMED_KINDS = 6
_NO_SUFFIX = "without a suffix"


@dataclass(frozen=True)
class Plugin:
    """A plugin of pillow for a format that pillow may not read itself. kind: how people call the
    format. pillow: its name in pillow. package: to install. module: to import. register: the
    function that makes pillow use it, "" if importing does."""

    kind: str
    suffixes: tuple[str, ...]
    pillow: str
    package: str
    module: str
    register: str = ""

    def is_there(self) -> bool:
        """Whether its format can be read: by the plugin, or by pillow itself."""
        from PIL import features

        # Older versions of pillow do not know the name of the feature.
        known = self.pillow.lower() in features.modules
        return (known and features.check(self.pillow.lower())) or find_spec(self.module) is not None

    def load(self) -> None:
        """Make pillow use it, if it is installed."""
        if find_spec(self.module) is not None:
            module = importlib.import_module(self.module)
            if self.register:
                getattr(module, self.register)()


PLUGINS = (
    Plugin(
        "HEIC",
        (".heic", ".heif", ".hif"),
        "HEIF",
        "pillow-heif",
        "pillow_heif",
        "register_heif_opener",
    ),
    Plugin("AVIF", (".avif",), "AVIF", "pillow-avif-plugin", "pillow_avif"),
)


@cache
def readable_suffixes() -> tuple[str, ...]:
    """The suffixes of the images that can be read here, with the plugins that are installed."""
    further = [suffix for one in PLUGINS if one.is_there() for suffix in one.suffixes]
    return (*IMAGE_SUFFIXES, *further)


@cache
def plugin_formats() -> tuple[str, ...]:
    """The formats that plugins read, by their names in pillow. Loads the plugins."""
    there = [one for one in PLUGINS if one.is_there()]
    for one in there:
        one.load()
    return tuple(one.pillow for one in there)


def kinds_of_files(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """How many files there are of each kind, the most frequent kind first. A kind is the suffix as
    people write it: HEIC, MP4."""
    counted = Counter(_kind(name) for name in names)
    return tuple(sorted(counted.items(), key=lambda entry: (-entry[1], entry[0])))


def skipped_line(skipped: Sequence[tuple[str, int]]) -> str:
    """One line about files that were not looked at, with what to do; "" if there are none.
    skipped: from `kinds_of_files`, of one or more sources."""
    total = sum(count for _, count in skipped)
    if not total:
        return ""
    together: Counter[str] = Counter()
    for kind, count in skipped:
        together[kind] += count
    ranked = sorted(together.items(), key=lambda entry: (-entry[1], entry[0]))
    named = [f"{count:,} {kind}{_advice(kind)}" for kind, count in ranked[:_NAMED_KINDS]]
    others = ranked[_NAMED_KINDS:]
    if others:
        named.append(f"{sum(count for _, count in others):,} of {len(others)} other kinds")
    return f"Skipped {pluralise(total, 'file')}: {', '.join(named)}."


def _kind(name: str) -> str:
    suffix = PurePath(name).suffix.lower()
    for plugin in PLUGINS:
        if suffix in plugin.suffixes:
            return plugin.kind
    return suffix[1:].upper() or _NO_SUFFIX


def _advice(kind: str) -> str:
    """What to do about skipped files of a kind, in brackets; "" if nothing is known."""
    suffix = f".{kind.lower()}"
    for plugin in PLUGINS:
        if kind == plugin.kind:
            return f" (pip install {plugin.package} reads them)"
    if suffix in _VIDEOS:
        return f" (cut it into frames: ffmpeg -i VIDEO{suffix} -vf fps=1 frames/%05d.png)"
    if suffix in _RAW:
        return " (raw: convert it to TIFF)"
    return ""
