"""What goes in and out of the review server as JSON; openapi.json is made from these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

LONGEST_AUTHOR = 200
# Whole numbers beyond it lose digits in a browser.
LARGEST_WHOLE = 2**53 - 1

Version = Annotated[int, Field(ge=0, le=LARGEST_WHOLE, description="of the state it was made from")]


class _In(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class EditBody(_In):
    """An edit: flawsort.labels.edits says which kinds there are and what their payloads hold."""

    version: Version
    kind: str
    payload: dict[str, Any]
    author: Annotated[str, Field(max_length=LONGEST_AUTHOR)] = ""


class VersionBody(_In):
    """Of the state in which undo or redo was asked for."""

    version: Version


class Problem(BaseModel):
    """What was wrong, in a sentence."""

    detail: str


class ConflictProblem(Problem):
    """Somebody else was faster. version: of the state as it is now."""

    version: int


class Span(BaseModel):
    """The number of groups: as saved, and between what the slider goes."""

    saved: int
    min: int
    max: int


class Heat(BaseModel):
    """The scale of the heat maps."""

    low: float
    high: float


class RegionsBody(BaseModel):
    """Of each region the row of its image, four numbers of its box (left, top, right, bottom in
    thousandths of the view), and the group of the run that it is like, or -1."""

    image: list[int]
    box: list[int]
    cluster: list[int]


class FormatBody(BaseModel):
    """An export. words: what is written, in a line."""

    name: str
    title: str
    words: str


class RunBody(BaseModel):
    """What never changes of a run; lists have a value an image.

    fingerprint: of the images and what was found in them; pictures asked for with ?v=fingerprint
    may be kept for ever. layout, merges, heights: base64 of little-endian u2 (n, 2), i4 (n - 1, 2)
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
    """A group. pure: what share of it is of its commonest kind, as far as can be guessed."""

    id: int
    name: str
    title: str
    role: str
    n: int
    confirmed: int
    pure: float


class StateBody(BaseModel):
    """The groups as they stand. kinds: of the images that have several, their own first. undo,
    redo: what they would do, or null. spent: labels that people gave."""

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
    """kind: "group" or "image". rows: the images to show. why: it is asked."""

    kind: str
    group: int
    rows: list[int]
    why: str


class QueueBody(BaseModel):
    """The next question, or null when there is none. done, total: images. spent: labels. pure: the
    share of images that seem to be in the right group."""

    question: QuestionBody | None
    done: int
    total: int
    spent: int
    pure: float


class AssignedEntryBody(BaseModel):
    """Images that were sorted into the groups later. reason: why it cannot be shown, or ""."""

    name: str
    n: int
    at: str
    reason: str


class RunEntryBody(BaseModel):
    """A run to choose. reason: why it cannot be opened, or ""."""

    name: str
    url: str
    n: int
    groups: int
    mode: str
    reason: str


class CountsBody(BaseModel):
    """table: a row a period, a column a group; -1 are images of new kinds."""

    periods: list[str]
    groups: list[int]
    table: list[list[int]]


class RiseBody(BaseModel):
    """A group of which there were more images in a period than those before let expect."""

    group: int
    period: str
    count: int
    expected: float
    ratio: float | None


class AssignedBody(BaseModel):
    """New images that were sorted into a run.

    table: columns by name. groups: where each image is as the groups stand, -1 for new kinds.
    thumbnails: whether there is one. proposals: the rows of each new kind that is proposed.
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
