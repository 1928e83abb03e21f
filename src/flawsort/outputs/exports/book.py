"""The defect book: typical images, borderline images and counter-examples of each kind, as one HTML
page that fetches nothing and prints well."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from PIL import Image

from flawsort._version import __version__
from flawsort.core.records import SetAside
from flawsort.core.text import clean, pluralise
from flawsort.embeddings.heat import colour_table, overlay
from flawsort.embeddings.regions import Outlines
from flawsort.images.originals import aspect_of, kept_picture
from flawsort.images.view import UnreadableImage, thumbnail
from flawsort.labels.groups import SEVERITY_TITLES, Group
from flawsort.outputs.exports.content import Content
from flawsort.outputs.exports.examples import Chosen, choose
from flawsort.outputs.exports.writing import Link, write_text
from flawsort.outputs.printing import print_page
from flawsort.outputs.web import bundle, script_policy, shared_script

# The side of pictures that the run has no thumbnail of, in pixels.
SIDE = 256
QUALITY = 85
_ROLES = {"flaw": "kind of flaw", "unsure": "unsure", "normal": "no flaw"}


@dataclass(frozen=True)
class Example:
    """An image in the book. picture, heat: JPEGs as data URLs. aspect: width over height. close_up,
    match: of its most unusual place, and of the best matching one, or "". close_aspect: theirs.
    frames: of its regions, as CSS and title. note: a remark under the picture."""

    name: str
    picture: str
    heat: str
    aspect: float
    close_up: str
    match: str
    close_aspect: float
    frames: tuple[tuple[str, str], ...]
    note: str
    decided: bool


def write(content: Content, path: Path, link: Link) -> list[SetAside]:
    """The book as a file. Images whose files are missing are shown from their thumbnails."""
    write_text(path, render_book(content))
    return []


def write_pdf(content: Content, path: Path, link: Link) -> list[SetAside]:
    """The book as a PDF file."""
    path.write_bytes(print_page(render_book(content)))
    return []


def render_book(content: Content) -> str:
    """The book as text. The same content gives the same text."""
    chapters = _chapters(content)
    total = len(content.run)
    present = [chapter for chapter in chapters if chapter["n"]]
    manifest = content.run.manifest
    tiles = any(_has_close_ups(chapter) for chapter in chapters)
    script = _script() if tiles else ""
    return _template().render(
        csp=script_policy(script),
        script=Markup(script),
        tiles=tiles,
        style=Markup(
            _source("flawsort.outputs.report", "style.css") + _source(__package__, "book.css")
        ),
        ramp=Markup(_ramp()),
        aspect=_usual_aspect(chapters),
        chapters=present,
        empty=[chapter for chapter in chapters if not chapter["n"]],
        total=total,
        roles={role: [c for c in present if c["role"] == role] for role in _ROLES},
        words=_ROLES,
        decided=content.n_decided,
        several=sum(len(kinds) > 1 for kinds in content.kinds),
        n_normals=int(manifest.get("n_normals") or 0),
        mode=clean(content.run.mode),
        version=__version__,
    )


def _script() -> str:
    modules = {"difference.js": shared_script("difference.js")}
    return bundle("book.js", modules | {"book.js": _source(__package__, "book.js")})


def _chapters(content: Content) -> list[dict[str, Any]]:
    """The groups: flaws first, then unsure, then normal; the largest first."""
    order = _ordered(content)
    colours = {group.id: group.colour for group in order}
    chosen = choose(content)
    easel = _Easel(content, colours)
    total = len(content.run)
    others = [group for kinds in content.kinds for group in kinds[1:]]
    chapters = []
    for group in order:
        rows = content.labelling.members(group.id)
        chapters.append(
            {
                "id": group.id,
                "title": content.titles[group.id],
                "role": group.role,
                "severity": SEVERITY_TITLES.get(group.severity, ""),
                "note": clean(group.note),
                "colour": colours[group.id],
                "shape": group.shape,
                "n": len(rows),
                "share": len(rows) / total,
                "decided": sum(map(content.decided, rows.tolist())),
                "also": others.count(group.id),
                "strips": _strips(content, chosen.get(group.id), easel),
            }
        )
    return chapters


def _strips(content: Content, chosen: Chosen | None, easel: _Easel) -> list[dict[str, Any]]:
    if chosen is None:
        return []
    toward = {row: f"close to {content.titles[group]}" for row, group in chosen.toward.items()}
    like = "" if chosen.nearest is None else content.titles[chosen.nearest]
    return [
        {
            "name": "Typical",
            "hint": "Nearest to the centre of the group.",
            "examples": easel.draw(chosen.typical),
            "none": "",
        },
        {
            "name": "Borderline",
            "hint": "Nearly as close to another group: where people may disagree.",
            "examples": easel.draw(chosen.borderline, toward),
            "none": "None: every image lies clearly within the group.",
        },
        {
            "name": "Counter-examples",
            "hint": f"Not this kind: the most similar images of the nearest group, {like}.",
            "examples": easel.draw(chosen.counter),
            "none": "None: there is no other group.",
        },
    ]


def _ordered(content: Content) -> list[Group]:
    sizes = {group.id: len(content.labelling.members(group.id)) for group in content.groups}
    roles = list(_ROLES)
    return sorted(content.groups, key=lambda g: (roles.index(g.role), -sizes[g.id], g.id))


def _has_close_ups(chapter: dict[str, Any]) -> bool:
    return any(one.close_up for strip in chapter["strips"] for one in strip["examples"])


class _Easel:
    """Draws images with their heat maps, each once."""

    def __init__(self, content: Content, colours: dict[int, str]):
        self._content, self._colours = content, colours
        self._drawn: dict[int, tuple[str, str, float] | None] = {}

    def draw(self, rows: Sequence[int], notes: Mapping[int, str] | None = None) -> list[Example]:
        """The images that can be shown. notes: by row."""
        found = []
        for row in rows:
            if row not in self._drawn:
                self._drawn[row] = self._pictures(row)
            drawn = self._drawn[row]
            if drawn is None:
                continue
            picture, heat, aspect = drawn
            close_up, match = self._close_ups(row)
            found.append(
                Example(
                    clean(self._content.run.names[row]),
                    picture,
                    heat,
                    aspect,
                    _data_url(close_up) if close_up else "",
                    _data_url(match) if match else "",
                    aspect_of(close_up) if close_up else 1.0,
                    tuple(self._frames(row)),
                    (notes or {}).get(row, ""),
                    self._content.decided(row),
                )
            )
        return found

    def _pictures(self, row: int) -> tuple[str, str, float] | None:
        """The image and its heat map as data URLs, and width over height; None if it is missing."""
        run = self._content.run
        stored = run.thumbnails[row]
        if not stored:
            try:
                made = thumbnail(run.source(row), run.view, run.input_size, SIDE)
            except (UnreadableImage, OSError):
                return None
            stored = _jpeg(made)
        image = kept_picture(stored)
        scores = np.array(run.scores[row], np.float64)
        if run.valid is not None:
            scores[~run.valid[row]] = run.heat.low
        hot = overlay(image, scores, run.grid, run.heat)
        return _data_url(stored), _data_url(_jpeg(hot)), image.width / image.height

    def _close_ups(self, row: int) -> tuple[bytes, bytes]:
        """The most unusual place and the best matching one, as JPEGs; empty bytes without."""
        run = self._content.run
        if not self._content.regions[row]:
            return b"", b""  # nothing is unusual there
        here, there = (b"" if one is None else one[row] for one in (run.close_ups, run.matches))
        return here, there

    def _frames(self, row: int) -> Iterable[tuple[str, str]]:
        """A frame around each region that resembles a group, in the group's colour."""
        regions = [one for one in self._content.regions[row] if one.group in self._colours]
        outlines = Outlines.of([(row, region.heat, region.cells) for region in regions])
        boxes = 100 * outlines.boxes(self._content.run.grid)
        for region, (left, top, right, bottom) in zip(regions, boxes, strict=True):
            place = f"left:{left:.2f}%;top:{top:.2f}%"
            size = f"width:{right - left:.2f}%;height:{bottom - top:.2f}%"
            style = f"{place};{size};--group:{self._colours[region.group]}"
            yield style, self._content.titles[region.group]


def _jpeg(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def _data_url(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


def _usual_aspect(chapters: Sequence[dict[str, Any]]) -> float:
    """The aspect ratio of the frames around all pictures: the median of the pictures."""
    found = [
        example.aspect
        for chapter in chapters
        for strip in chapter["strips"]
        for example in strip["examples"]
    ]
    return float(np.clip(np.median(found), 0.5, 3.0).round(3)) if found else 1.0


def _fit(aspect: float, frame: float) -> str:
    """The size of a picture in a frame, as CSS."""
    wide, high = min(1.0, aspect / frame), min(1.0, frame / aspect)
    return f"width:{100 * wide:.2f}%;height:{100 * high:.2f}%"


def _ramp() -> str:
    """The colours of heat as a CSS gradient."""
    table = colour_table(0.8)
    stops = [table[level] for level in range(0, 256, 51)]
    parts = [f"rgb({r} {g} {b} / {a / 255:.2f})" for r, g, b, a in stops]
    return f"linear-gradient(90deg, {', '.join(parts)})"


def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"count": pluralise, "fit": _fit}
    environment.filters["percent"] = _percent
    return environment.from_string(_source(__package__, "book.html"))


def _source(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _percent(share: float) -> str:
    return "under 1%" if 0 < share < 0.01 else f"{100 * share:.0f}%"
