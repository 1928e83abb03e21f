"""The JSON bodies of requests and answers of the review server; openapi.json is made from them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

LONGEST_AUTHOR = 200
# Browsers lose digits of larger whole numbers.
LARGEST_WHOLE = 2**53 - 1

Version = Annotated[
    int, Field(ge=0, le=LARGEST_WHOLE, description="of the state that the edit is based on")
]


class _In(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class EditBody(_In):
    """An edit. flawsort.labels.edits documents the kinds and their payloads."""

    version: Version
    kind: str
    payload: dict[str, Any]
    author: Annotated[str, Field(max_length=LONGEST_AUTHOR)] = ""


class VersionBody(_In):
    """The version of the state that undo or redo is based on."""

    version: Version


class Problem(BaseModel):
    """An error message."""

    detail: str


class ConflictProblem(Problem):
    """Somebody else changed the groups first. version: of the current state."""

    version: int


class Span(BaseModel):
    """The number of groups: as saved, and the limits of the slider."""

    saved: int
    min: int
    max: int


class Heat(BaseModel):
    """The scale of the heat maps."""

    low: float
    high: float


class RegionsBody(BaseModel):
    """For each region: the row of its image, its box (left, top, right and bottom in thousandths of
    the view), and the cluster that it resembles, or -1."""

    image: list[int]
    box: list[int]
    cluster: list[int]


class FormatBody(BaseModel):
    """An export format. words: a line about what it writes."""

    name: str
    title: str
    words: str


class RunBody(BaseModel):
    """The parts of a run that never change; lists have one value per image.

    fingerprint: of the images and the results; a picture requested with ?v=fingerprint can be
    cached for ever. layout, merges, heights: base64 of little-endian u2 (n, 2), i4 (n - 1, 2)
    and f4 (n - 1,).
    """

    name: str
    fingerprint: str
    n: int
    mode: str
    k: Span
    grid: list[int]
    heat: Heat
    names: list[str]
    clusters: list[int]
    scores: list[float | None]
    typicality: list[float | None]
    runner_up: list[int]
    flags: list[str]
    layout: str
    merges: str
    heights: str
    regions: RegionsBody
    formats: list[FormatBody]


class GroupBody(BaseModel):
    """A group. pure: the estimated share of its images that belong there."""

    id: int
    name: str
    title: str
    role: str
    n: int
    confirmed: int
    pure: float


class StateBody(BaseModel):
    """The current groups. kinds: all groups of the images that have several, their own first. undo,
    redo: the edit they would undo or redo, or null. spent: the number of labels given."""

    version: int
    k: int
    groups: list[GroupBody]
    labels: list[int]
    kinds: dict[int, list[int]]
    confirmed: list[int]
    undo: str | None
    redo: str | None
    spent: int


class SimilarBody(BaseModel):
    row: int
    distance: float


class PartsBody(BaseModel):
    """The rows of each part, the largest first."""

    parts: list[list[int]]


class QuestionBody(BaseModel):
    """kind: "group" or "image". rows: the images to show. why: the reason for the question."""

    kind: str
    group: int
    rows: list[int]
    why: str


class QueueBody(BaseModel):
    """The next question, or null. done, total: numbers of images. spent: the number of labels
    given. pure: the share of images that seem to be in the right group."""

    question: QuestionBody | None
    done: int
    total: int
    spent: int
    pure: float


class AssignedEntryBody(BaseModel):
    """A batch of images assigned later. reason: why it cannot be shown, or ""."""

    name: str
    n: int
    at: str
    reason: str


class RunEntryBody(BaseModel):
    """A run in the list. reason: why it cannot be opened, or ""."""

    name: str
    url: str
    n: int
    groups: int
    mode: str
    reason: str


class CountsBody(BaseModel):
    """table: one row per period and one column per group; group -1 holds images of new kinds."""

    periods: list[str]
    groups: list[int]
    table: list[list[int]]


class RiseBody(BaseModel):
    """A group with more images in a period than the earlier periods predict."""

    group: int
    period: str
    count: int
    expected: float
    ratio: float | None


class AssignedBody(BaseModel):
    """A batch of new images that were assigned to a run.

    table: columns by name. groups: the current group of each image, -1 for new kinds. thumbnails:
    whether each image has one. proposals: the rows of each proposed new kind.
    """

    name: str
    n: int
    at: str
    by: str
    table: dict[str, list[Any]]
    groups: list[int]
    thumbnails: list[bool]
    counts: CountsBody
    rises: list[RiseBody]
    proposals: list[list[int]]
