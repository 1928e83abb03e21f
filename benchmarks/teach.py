"""Measure what answers teach: a simulated person on data sets with known truth.

    python benchmarks/teach.py --data DIR [--data DIR ...] [--only SET ...] [--cache DIR]
        [--results FILE] [--seeds 20] [--preset default]

DIR as for quality.py. Every set is grouped with the true number of kinds, without normals, and also
with normals if it has some. A simulated person then tells the kind of 1, 3, 5 and 10 images of each
kind, drawn at random, of a small kind at most half. Shown is the share of the other images, without
`combined`, whose kind is right, as the mean over `--seeds` draws, when it is given by

    taught    the taught model, "none of these" being an error
    clusters  their cluster, which has the name that most of its answers say; a cluster without
              answers has the name of the nearest one that has some
    nearest   the nearest image with an answer
    mean      a logistic regression on the mean patches of the image (without normals), as it would
              be taught in a browser of embeddings
    wrong     the taught model, where 5 of 100 answers name a kind at random
    run, new  the taught model of a run of 70% of the images, for the others of these images and for
              the 30% that are new, named as `assign` does, with answers about the first

of all images, named ones included, after as many answers, in the review itself, by

    each      answers about the same number of images of each kind, as above
    drawn     answers about images drawn from the whole run
    queue     answers to the questions of the queue; every click is an answer
    queue 60% the same with 60% of the answers

and "rest" below each of these the share of the images that nobody has decided by then, which tells
what was learnt; the queue decides many, and leaves the hard ones.

all: the taught model with nine tenths of the truth, for the other tenth. hidden: one kind is
never named. Its AUROC by the probability of "none of these" against the images of the other kinds,
and the share of it that is said to be none of these, mean over the kinds of flaw. lost: what the
outcome "none of these" costs where all kinds are named. unseen: one kind of flaw is not in the run
at all. The share of its new images that are called a new kind, and of the other new images. ECE:
how far the probabilities are from the share that is right (expected calibration error). sure: the
share of the images with a probability of 0.9 or more, and how many of these are right.

--results keeps finished sets in FILE, and they are not measured again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from flawsort import AnomalyClusterer
from flawsort.backbones import open_backbone
from flawsort.clusters.assign import UNSEEN
from flawsort.core.records import Bools, Floats, ImageSet, Ints
from flawsort.embeddings.weights import image_scores
from flawsort.fitting.runner import LocalRunner, describe_batches, make_batches
from flawsort.fitting.source import FileSource
from flawsort.labels.taught import most_likely
from flawsort.research.metrics import auroc
from flawsort.research.truth import EXCLUDED_LABELS, LabelledSet
from quality import GOOD_LABELS, fit, load_sets, preset_setting
from quality_results import source_version
from simulated_person import Person, Review, Shares, share_after_naming, shares_after
from teach_tables import COUNTS, MODES, Row, append_row, key_of, print_row, print_summary, read_rows
from teach_ways import (
    Seen,
    Student,
    as_assigned,
    by_clusters,
    by_nearest,
    by_regression,
    calibration_error,
    far_from,
    order_of,
    with_errors,
)

NEW_SHARE = 0.3
FOLDS = 10
SURE = 0.9
BATCH = 64
# The share of the answers with which the queue is to be as good as answers at random.
QUEUE_SHARE = 0.6


def curves(
    student: Student, clusters: Ints, means: Floats, seeds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The share that is right of each way to use the answers, and the honesty of the taught model:
    ECE, how many images are sure and how many of these are right, what "none of these" costs. One
    figure for each number of answers."""
    seen = student.seen
    shares: dict[str, list[float]] = {}
    honest: dict[str, list[float]] = {}
    for each in COUNTS:
        found: dict[str, list[float]] = {}
        kept: list[tuple[Floats, Bools]] = []
        for seed in range(seeds):
            rng = np.random.default_rng([seed, each])
            answers = list(order_of(seen.truth, each, rng))
            rest = np.setdiff1d(np.arange(len(seen.truth)), [row for row, _ in answers])
            truth = seen.truth[rest]
            judged = student.judge(student.fit(answers))[rest]
            wrong = with_errors(answers, seen.n_kinds, rng)
            guesses = {
                "taught": most_likely(judged),
                "clusters": by_clusters(seen.embeddings, clusters, answers)[rest],
                "nearest": by_nearest(seen.embeddings, answers)[rest],
                "mean": by_regression(means, answers)[rest],
                "wrong": most_likely(student.judge(student.fit(wrong)))[rest],
                "no none": judged[:, :-1].argmax(axis=1),
            }
            for name, guess in guesses.items():
                found.setdefault(name, []).append(float((guess == truth).mean()))
            chosen = guesses["taught"]
            kept.append((judged[np.arange(len(rest)), chosen], chosen == truth))
        probability, right = (np.concatenate(one) for one in zip(*kept, strict=True))
        sure = probability >= SURE
        lost = float(np.mean(found.pop("no none")) - np.mean(found["taught"]))
        figures = {
            "ECE": calibration_error(probability, right),
            "sure": float(sure.mean()),
            "sure right": float(right[sure].mean()) if sure.any() else 1.0,
            "lost": lost,
        }
        for name, value in figures.items():
            honest.setdefault(name, []).append(value)
        for name, values in found.items():
            shares.setdefault(name, []).append(float(np.mean(values)))
    return shares, honest


def ceiling(student: Student) -> float:
    """The share that is right with all labels but those of a tenth, which is predicted."""
    truth, rng = student.seen.truth, np.random.default_rng(0)
    fold = np.empty(len(truth), np.int64)
    for kind in range(student.seen.n_kinds):
        members = rng.permutation(np.flatnonzero(truth == kind))
        fold[members] = np.arange(len(members)) % FOLDS
    right = np.empty(len(truth), bool)
    for one in range(FOLDS):
        known = np.flatnonzero(fold != one)
        answers = list(zip(known.tolist(), truth[known].tolist(), strict=True))
        found = most_likely(student.judge(student.fit(answers)))
        right[fold == one] = (found == truth)[fold == one]
    return float(right.mean())


def hidden(student: Student, seeds: int) -> dict[str, list[float]]:
    """How well a kind of flaw that nobody named is recognised as none of these."""
    seen = student.seen
    out: dict[str, list[float]] = {"hidden AUROC": [], "hidden found": []}
    for each in COUNTS:
        areas, shares = [], []
        for kind in range(seen.n_kinds):
            if kind == seen.normal or seen.n_kinds < 2:
                continue
            for seed in range(seeds):
                answers = list(order_of(seen.truth, each, np.random.default_rng([seed, each])))
                known = [answer for answer in answers if answer[1] != kind]
                rest = np.setdiff1d(np.arange(len(seen.truth)), [row for row, _ in known])
                none = student.judge(student.fit(known))[rest, -1]
                strange = seen.truth[rest] == kind
                areas.append(auroc(none, strange))
                shares.append(float((none[strange] > 0.5).mean()))
        out["hidden AUROC"].append(float(np.mean(areas)))
        out["hidden found"].append(float(np.mean(shares)))
    return out


def on_new(inside: Seen, outside: Seen, seeds: int) -> dict[str, list[float]]:
    """The share that is right of the images of a run and of new ones, taught by the first."""
    student, far = Student.of(inside), far_from(inside, outside)
    out: dict[str, list[float]] = {"run": [], "new": []}
    for each in COUNTS:
        of_run, of_new = [], []
        for seed in range(seeds):
            answers = list(order_of(inside.truth, each, np.random.default_rng([seed, each])))
            rest = np.setdiff1d(np.arange(len(inside.truth)), [row for row, _ in answers])
            taught = student.fit(answers)
            right = most_likely(student.judge(taught)) == inside.truth
            of_run.append(float(right[rest].mean()))
            found = as_assigned(student.judge(taught, outside), far, outside)
            of_new.append(float((found == outside.truth).mean()))
        out["run"].append(float(np.mean(of_run)))
        out["new"].append(float(np.mean(of_new)))
    return out


def unseen(inside: Seen, outside: Seen, seeds: int) -> dict[str, list[float]]:
    """The share of new images that are called a new kind: of a kind of flaw that the run does not
    have, and of the others."""
    out: dict[str, list[float]] = {"unseen found": [], "unseen wrong": []}
    kinds = [kind for kind in np.unique(outside.truth).tolist() if kind != inside.normal]
    runs = [(kind, inside.take(np.flatnonzero(inside.truth != kind))) for kind in kinds]
    students = [
        (kind, Student.of(run), far_from(run, outside)) for kind, run in runs if len(run.truth)
    ]
    for each in COUNTS:
        right, wrong = [], []
        for kind, student, far in students:
            for seed in range(seeds):
                rng = np.random.default_rng([seed, each])
                taught = student.fit(list(order_of(student.seen.truth, each, rng)))
                new = as_assigned(student.judge(taught, outside), far, outside) == UNSEEN
                right.append(float(new[outside.truth == kind].mean()))
                wrong.append(float(new[outside.truth != kind].mean()))
        out["unseen found"].append(float(np.mean(right)))
        out["unseen wrong"].append(float(np.mean(wrong)))
    return out


def reviewed(seen: Seen, clusters: Ints, seeds: int) -> dict[str, list[float]]:
    """The share of all images that is right when images are named in some order, and the share of
    the rest, which nobody has named by then."""
    counts = [len(list(order_of(seen.truth, each, np.random.default_rng(0)))) for each in COUNTS]
    fresh = Review.of(seen.embeddings, clusters, seen.looks_normal)

    def after(rows: Sequence[int]) -> Shares:
        person = Person(seen.truth, seen.normal)
        return share_after_naming(person, replace(fresh), rows)

    out: dict[str, list[float]] = {}

    def keep(name: str, found: Sequence[Shares]) -> None:
        out.setdefault(name, []).append(float(np.mean([one.all for one in found])))
        out.setdefault(f"{name} rest", []).append(float(np.mean([one.rest for one in found])))

    for each, count in zip(COUNTS, counts, strict=True):
        draws = [np.random.default_rng([seed, each]) for seed in range(seeds)]
        chosen = [[row for row, _ in order_of(seen.truth, each, rng)] for rng in draws]
        keep("each", [after(rows) for rows in chosen])
        drawn = [rng.permutation(len(seen.truth))[:count].tolist() for rng in draws]
        keep("drawn", [after(rows) for rows in drawn])
    for name, share in (("queue", 1.0), ("queue 60%", QUEUE_SHARE)):
        person, limits = Person(seen.truth, seen.normal), [int(share * one) for one in counts]
        for found in shares_after(person, replace(fresh), limits):
            keep(name, [found])
    return out


def seen_by(model: AnomalyClusterer, labels: Sequence[str], kinds: Sequence[str]) -> Seen:
    """The images of a fit. labels: of all images. kinds: the names of the kinds that count."""
    looks = model.looks_normal_
    normal = np.zeros(len(labels), bool) if looks is None else looks
    return _seen(labels, kinds, model.embeddings_, normal)


def seen_as_new(
    model: AnomalyClusterer, images: ImageSet, labels: Sequence[str], kinds: Sequence[str]
) -> Seen:
    """Images that were not in the fit, described as `assign` describes them."""
    fitted = model.fitted_
    backbones = tuple(open_backbone(choice) for choice in fitted.opened)
    source = FileSource(images, backbones, fitted.view, model.cache)
    describer = fitted.describer.for_many(len(source.contents), fitted.bag_shapes[0][0])
    batches = make_batches(source.contents, BATCH)
    found = {}
    for part in describe_batches(batches, LocalRunner(source, half=False), describer, None):
        described = describer.join(part.features)
        scores = image_scores(described.scores, part.valid, fitted.describer.looks[0].tile)
        found |= dict(
            zip(part.digests, zip(described.embeddings, scores, strict=True), strict=True)
        )
    embeddings, scores = (
        np.array(one) for one in zip(*map(found.get, images.digests), strict=True)
    )
    below = fitted.heat.normal_below
    return _seen(labels, kinds, embeddings, scores <= (-np.inf if below is None else below))


def _seen(labels: Sequence[str], kinds: Sequence[str], embeddings: Floats, looks: Bools) -> Seen:
    rows = [row for row, label in enumerate(labels) if label in kinds]
    truth = np.array([kinds.index(labels[row]) for row in rows])
    normal = next((place for place, kind in enumerate(kinds) if kind in GOOD_LABELS), None)
    return Seen(truth, normal, np.asarray(embeddings[rows], np.float64), looks[rows])


def mean_patches_of(model: AnomalyClusterer) -> Floats:
    """(n_images, dim): the mean patches of all views, which follow the pooled ones."""
    blocks = model.describer_.axes.blocks
    first = sum(blocks[: len(blocks) // 2])
    return np.asarray(model.embeddings_[:, first : sum(blocks)], np.float64)


def measure(
    data: LabelledSet,
    mode: str,
    model: AnomalyClusterer,
    plain: Floats,
    options: argparse.Namespace,
) -> Row:
    """Teach a grouped set, and compare with the truth. plain: the mean patches of its images."""
    kinds = kinds_of(data)
    counted = [row for row, label in enumerate(data.labels) if label in kinds]
    student = Student.of(seen_by(model, data.labels, kinds))
    shares, honest = curves(student, model.labels_[counted], plain[counted], options.seeds)
    few = max(options.seeds // 4, 1)
    shares |= hidden(student, few) | reviewed(student.seen, model.labels_[counted], few)
    order = np.random.default_rng(0).permutation(len(data.labels))
    n_new = round(NEW_SHARE * len(order))
    new, old = np.sort(order[:n_new]), np.sort(order[n_new:])
    some, others = part_of(data, old), part_of(data, new)
    smaller, _ = fit(some, options.preset, len(kinds), mode, options)
    inside = seen_by(smaller, some.labels, kinds)
    outside = seen_as_new(smaller, others.images, others.labels, kinds)
    shares |= on_new(inside, outside, options.seeds) | unseen(inside, outside, few)
    figures = {**shares, **honest, "all": [ceiling(student)]}
    return Row(**identity_of(data, mode, options), figures=figures)


def part_of(data: LabelledSet, rows: Ints) -> LabelledSet:
    """Some images of a set."""
    return replace(
        data,
        images=data.images.take(rows),
        labels=tuple(data.labels[row] for row in rows),
        masks=tuple(data.masks[row] for row in rows),
    )


def identity_of(data: LabelledSet, mode: str, options: argparse.Namespace) -> dict[str, object]:
    return {
        "set": data.name,
        "mode": mode,
        "preset": options.preset.name,
        "seeds": options.seeds,
        "images": len(data.images),
        "version": options.version,
    }


def kinds_of(data: LabelledSet) -> list[str]:
    return sorted(set(data.labels) - set(EXCLUDED_LABELS))


def measure_set(
    data: LabelledSet, known: Mapping[str, Row], options: argparse.Namespace
) -> Iterator[Row]:
    """A row for each mode of a set, a known one if there is one."""
    modes = [mode for mode in MODES if mode == "none" or data.normals is not None]
    rows = {mode: known.get(key_of(identity_of(data, mode, options))) for mode in modes}
    if None in rows.values():
        k = len(kinds_of(data))
        without, _ = fit(data, options.preset, k, "none", options)
        plain = mean_patches_of(without)
    for mode, row in rows.items():
        if row is None:
            model = without if mode == "none" else fit(data, options.preset, k, mode, options)[0]
            row = measure(data, mode, model, plain, options)
            if options.results is not None:
                append_row(options.results, row)
        yield row


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--only", nargs="+", default=[], metavar="SET", help="sets by their names")
    parser.add_argument("--preset", type=preset_setting, default=preset_setting("default"))
    parser.add_argument("--cache", type=Path, help="folder for embedded images")
    parser.add_argument("--results", type=Path, help="file that keeps finished sets")
    parser.add_argument("--seeds", type=int, default=20, help="the number of draws of answers")
    parser.add_argument("--max-memory", help="hold larger sets in memory, like 64GB")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_parser().parse_args(arguments)
    options.version = source_version()
    stored = [] if options.results is None else read_rows(options.results)
    known, rows = {row.key: row for row in stored}, []
    for data in load_sets(options.data, options.only):
        for row in measure_set(data, known, options):
            rows.append(row)
            print_row(row)
    print_summary(rows)


if __name__ == "__main__":
    main()
