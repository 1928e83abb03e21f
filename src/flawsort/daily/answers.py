"""What the service says of images, as JSON; openapi.json is made from it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from flawsort.clusters.kinds import Regions
from flawsort.core.records import SetAside
from flawsort.core.tables import as_rows
from flawsort.daily.sorter import Seen, Sorted, Sorter
from flawsort.daily.uploads import LONGEST_NAME, Upload
from flawsort.embeddings.heat import heat_picture
from flawsort.fitting.fitted import Fitted
from flawsort.images.decode import upright_size
from flawsort.images.view import frame_of
from flawsort.labels.newcomers import Arrivals, title_of
from flawsort.labels.regions import UNKNOWN, newcomer_regions
from flawsort.runs.convert import located
from flawsort.runs.tables import SEVERAL, regions_table

# Images of one request. A batch of the backbones has as many.
MOST_IMAGES = 64


class BoxBody(BaseModel):
    """A part of the upright photo, in pixels."""

    x: float
    y: float
    width: float
    height: float


class RegionBody(BoxBody):
    """An unusual place. kind: the group that it shows, null for none of them. cluster, confidence,
    score, heat: as in regions.csv."""

    kind: str | None
    cluster: int
    confidence: float
    score: float
    heat: float


class HeatBody(BoxBody):
    """The heat map, to be stretched over this part of the photo. It reaches beyond the photo where
    the run pads it. png: base64."""

    png: str


class ImageBody(BaseModel):
    """An image that was sorted. index: its place in the request, from 0. photo_width, photo_height:
    of the upright photo. place: the most unusual one. All others as in the table of flawsort
    assign."""

    index: int
    name: str
    sha256: str
    group: str
    probability: float | None
    decided: bool
    verdict: str
    cluster: int
    kinds: list[int]
    nearest: int
    runner_up: int
    novelty: float
    score: float
    looks_normal: bool
    match: str | None
    match_down: int | None
    match_across: int | None
    photo_width: int
    photo_height: int
    place: BoxBody | None
    regions: list[RegionBody]
    heat_map: HeatBody | None = None


class AsideBody(BaseModel):
    """An image that cannot be used. index: its place in the request, from 0."""

    index: int
    name: str
    reason: str


class AnswerBody(BaseModel):
    """version: of the groups, which grows with every edit in the review."""

    version: int
    images: list[ImageBody]
    set_aside: list[AsideBody]


class SentImage(BaseModel):
    """content: the file as base64."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field("", max_length=LONGEST_NAME)
    content: str


class BatchBody(BaseModel):
    """Several images, which are compared together. heat_map: whether to answer with heat maps."""

    model_config = ConfigDict(extra="forbid")
    images: list[SentImage] = Field(min_length=1, max_length=MOST_IMAGES)
    heat_map: bool = False


class GroupBody(BaseModel):
    """role: "flaw", "normal" or "unsure"."""

    name: str
    role: str


class AboutBody(BaseModel):
    """taught: the number of groups that the model knows. threshold: of the verdict. problem: why
    the run cannot be read again now; the service answers as of when it could."""

    flawsort: str
    version: int
    taught: int
    threshold: float | None
    groups: list[GroupBody]
    problem: str | None


class HealthBody(BaseModel):
    """status: "ok"."""

    status: str = "ok"


class ProblemBody(BaseModel):
    """detail: what must be, and what was given."""

    detail: str


def answer_of(
    sorter: Sorter,
    found: Sorted | None,
    aside: Sequence[SetAside],
    seen: Seen,
    uploads: Sequence[Upload],
    *,
    heat_map: bool,
) -> AnswerBody:
    """uploads: as they were sent. The images that were found are named by their places there."""
    images = [] if found is None else _images(sorter, found, seen, uploads, heat_map)
    set_aside = [
        AsideBody(index=int(one.name), name=uploads[int(one.name)].name, reason=one.reason)
        for one in aside
    ]
    return AnswerBody(
        version=sorter.state.version,
        images=sorted(images, key=lambda one: one.index),
        set_aside=sorted(set_aside, key=lambda one: one.index),
    )


def _images(
    sorter: Sorter, found: Sorted, seen: Seen, uploads: Sequence[Upload], heat_map: bool
) -> list[ImageBody]:
    fitted, images = sorter.model.fitted_, found.images
    sizes = [upright_size(source, fitted.view.max_pixels) for source in images.sources]
    rows = as_rows(sorter.table(found, [""] * len(images))[0])
    regions = _regions(sorter, found, seen.of(images), sizes)
    answers = []
    for row, (entry, size) in enumerate(zip(rows, sizes, strict=True)):
        index = int(images.names[row])
        body = ImageBody.model_validate(
            {
                **{name: entry[name] for name in ImageBody.model_fields if name in entry},
                "index": index,
                "name": uploads[index].name,
                "kinds": [int(kind) for kind in entry["kinds"].split(SEVERAL) if kind],
                "photo_width": size[0],
                "photo_height": size[1],
                "place": None if entry["x"] is None else _box(entry, size),
                "regions": regions[row],
            }
        )
        if heat_map:
            body.heat_map = _heat(fitted, found, row, size)
        answers.append(body)
    return answers


def _regions(
    sorter: Sorter, found: Sorted, regions: Regions, sizes: Sequence[tuple[int, int]]
) -> list[list[RegionBody]]:
    """The regions of each image, the hottest first."""
    fitted, state, images = sorter.model.fitted_, sorter.state, found.images
    outlines = regions.outlines
    boxes = located(outlines.boxes(fitted.grid), outlines.images, images, fitted)
    rows = as_rows(regions_table(images, regions, boxes, fitted.heat))
    arrivals = Arrivals.of(images, found.found)
    shown = newcomer_regions(regions, found.newcomers, arrivals, sorter.run, state).tolist()
    answers: list[list[RegionBody]] = [[] for _ in images.names]
    for image, group, entry in zip(outlines.images.tolist(), shown, rows, strict=True):
        kind = None if group == UNKNOWN else title_of(group, state.labelling)
        known = {name: entry[name] for name in ("cluster", "confidence", "score", "heat")}
        box = _box(entry, sizes[image]).model_dump()
        answers[image].append(RegionBody(kind=kind, **known, **box))
    return answers


def _heat(fitted: Fitted, found: Sorted, row: int, size: tuple[int, int]) -> HeatBody:
    left, top, right, bottom = frame_of(fitted.view, fitted.input_size, size)
    png = heat_picture(fitted.heat.normalise(found.scores[row]), fitted.grid)
    return HeatBody(
        x=left,
        y=top,
        width=right - left,
        height=bottom - top,
        png=base64.b64encode(png).decode("ascii"),
    )


def _box(entry: Mapping[str, float], size: tuple[int, int]) -> BoxBody:
    """A box in fractions of an upright image of this width and height, in pixels."""
    width, height = size
    return BoxBody(
        x=entry["x"] * width,
        y=entry["y"] * height,
        width=entry["width"] * width,
        height=entry["height"] * height,
    )
