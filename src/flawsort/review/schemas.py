"""The JSON bodies of requests and answers of the review server; openapi.json is made from them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from flawsort.review.people import LONGEST_AUTHOR, OwnBody

# Browsers lose digits of larger whole numbers.
LARGEST_WHOLE = 2**53 - 1

Version = Annotated[
    int, Field(ge=0, le=LARGEST_WHOLE, description="of the state that the edit is based on")
]


class _In(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class VersionBody(_In):
    """The version of the state that a writing request is based on, and, so that it cannot hit the
    images of another run, the basis of that state. author: who makes the edit, or ""."""

    version: Version
    basis: Annotated[str, Field(max_length=64)] | None = None
    author: Annotated[str, Field(max_length=LONGEST_AUTHOR)] = ""


class StepOfBody(VersionBody):
    """An undo or redo. of: the number of the edit, which must be by the same author; null for the
    last one, whoever made it."""

    of: Annotated[int, Field(ge=0, le=LARGEST_WHOLE)] | None = None


class EditBody(VersionBody):
    """An edit. flawsort.labels.edits documents the kinds and their payloads."""

    kind: str
    payload: dict[str, Any]


class AnswersBody(VersionBody):
    """An answer about new images, which teaches. rows: of the batch. to: the id of a group, or
    normal, unsure or new. name: of a new group."""

    rows: Annotated[list[int], Field(min_length=1)]
    to: int | str
    name: str | None = None


class Problem(BaseModel):
    """An error message."""

    detail: str


class NameProblem(Problem):
    """An edit that is refused; the detail says why. taken: the id of the group that has the name
    already. normal: whether the name means normal."""

    taken: int | None = None
    normal: bool = False


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
    the view), the share of the view that it covers, and the cluster that it resembles, or -1."""

    image: list[int]
    box: list[int]
    share: list[float]
    cluster: list[int]


class FormatBody(BaseModel):
    """An export format. words: a line about what it writes."""

    name: str
    title: str
    words: str


class FindingBody(BaseModel):
    """A finding of the health check. advice: what to do. group: the cluster that it is about, or
    null. rows: the images that it is about."""

    code: str
    sentence: str
    advice: str
    value: float
    group: int | None
    rows: list[int]


class HealthBody(BaseModel):
    """What a person should know before trusting the groups, the most serious first, and what was
    not looked at, in sentences."""

    findings: list[FindingBody]
    not_looked_at: list[str]


class RunBody(BaseModel):
    """The parts of a run that never change; lists have one value per image.

    fingerprint: of the images and the results; a picture requested with ?v=fingerprint can be
    cached for ever. basis: of the images, their tree and their clusters, which is what edits are
    about; it changes if the run is replaced by another one. lots: the name of the CSV file of lots
    that the server was started with, or "". places: whether images have a most unusual place.
    layout, merges, heights: base64 of little-endian u2 (n, 2), i4 (n - 1, 2) and f4 (n - 1,).
    health: null in a run of an older version.
    """

    name: str
    fingerprint: str
    basis: str
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
    lots: str
    places: bool
    formats: list[FormatBody]
    health: HealthBody | None


class PlaceBody(BaseModel):
    """The most unusual place of an image with its surroundings. box: left, top, right and bottom in
    fractions of the picture. match: the name of the image that shows the like of it; null if there
    is none, or in a run of an older version."""

    box: list[float]
    match: str | None


class GroupBody(BaseModel):
    """A group. severity: "" until a person says it. note: what people wrote about it, or "". n: its
    images. decided: those that a person decided. suggested: those that the taught model suggests.
    The others are where they were clustered."""

    id: int
    name: str
    title: str
    role: str
    severity: str
    note: str
    n: int
    decided: int
    suggested: int


class OfferBody(BaseModel):
    """An edit to offer. kind: "merge" for two groups of one name, the second into the first;
    "normal" for a group whose name means normal, without that role. groups: their ids."""

    kind: str
    groups: list[int]


class StateBody(BaseModel):
    """The current groups.

    basis: as of the run. labels: the group of each image as decided, else as suggested, else as
    clustered. probability: base64 of one byte per image: how sure the model is of a suggested
    image, in whole percent rounded down, and 255 for images that are decided or as clustered.
    decided: rows. kinds: all groups of the images that have several, their own first. different:
    pairs of groups that a person called different kinds. notes: on images, by row. offers: edits to
    offer. undo, redo: the edit they would undo or redo, or null. own: the same of each person's own
    edits, by name; "" for edits without a name. spent: the number of labels given.
    """

    version: int
    basis: str
    k: int
    groups: list[GroupBody]
    labels: list[int]
    probability: str
    kinds: dict[int, list[int]]
    decided: list[int]
    different: list[list[int]]
    notes: dict[int, str]
    offers: list[OfferBody]
    undo: str | None
    redo: str | None
    own: dict[str, OwnBody]
    spent: int


class LotsBody(BaseModel):
    """lots: in natural order, "unknown" last. of: the lot of each image, counted from 0."""

    by: str
    lots: list[str]
    of: list[int]


class SizesBody(BaseModel):
    """The upright images in pixels; null where the file is gone or not on this machine."""

    width: list[int | None]
    height: list[int | None]


class SimilarBody(BaseModel):
    row: int
    distance: float


class PartsBody(BaseModel):
    """The rows of each part, the largest first."""

    parts: list[list[int]]


class EstimateBody(BaseModel):
    """A measured share. n: the number of answers so far. together: how many of them were given
    several at a time. least: how many it needs; share and its 90% interval are null below that."""

    n: int
    together: int = 0
    least: int
    share: float | None = None
    low: float | None = None
    high: float | None = None


class AccuracyBody(BaseModel):
    """How right the groups are. suggestions: compared with the answers that followed. audit: from
    random images that were answered without seeing the suggestion."""

    suggestions: EstimateBody
    audit: EstimateBody


class AuditBody(BaseModel):
    """The next image of the audit, or null. n: the number of answers so far."""

    row: int | None
    n: int


class QuestionBody(BaseModel):
    """kind: "group", "image" or "pair". rows: the images to show; an answer is about exactly these.
    why: the reason for the question. other, other_rows: the second group of a pair and its
    images."""

    kind: str
    group: int
    rows: list[int]
    why: str
    other: int | None = None
    other_rows: list[int] = []


class QueueBody(BaseModel):
    """The next question, or null. others: how many other people have a question now. done, total:
    numbers of images. spent: the number of labels given. suggestions: how often they were right."""

    question: QuestionBody | None
    others: int
    done: int
    total: int
    spent: int
    suggestions: EstimateBody


class CostBody(BaseModel):
    """What a threshold does to the answered images, with 90% intervals of the shares."""

    threshold: float
    missed: int
    missed_interval: tuple[float, float]
    false_alarms: int
    false_alarms_interval: tuple[float, float]


class VerdictBody(BaseModel):
    """OK or not OK. n_flaws, n_normal: the number of answers. least: how many of each it needs;
    there are no costs below that. threshold: as chosen, or null."""

    n_flaws: int
    n_normal: int
    least: int
    threshold: float | None
    costs: list[CostBody]


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

    table: columns by name. groups: the current group of each image, -1 for new kinds, -2 for normal
    images where the run has no normal group. decided: whether a person decided it. verdicts: "OK",
    "not OK" or "". teaches: "" if an answer about the image teaches, else why not: older (the batch
    has no embeddings), many (this image has none) or run (it is an image of the run). thumbnails:
    whether each image has one. proposals: the rows of each proposed new kind.
    """

    name: str
    n: int
    at: str
    by: str
    table: dict[str, list[Any]]
    groups: list[int]
    decided: list[bool]
    verdicts: list[str]
    teaches: list[str]
    thumbnails: list[bool]
    counts: CountsBody
    rises: list[RiseBody]
    proposals: list[list[int]]
