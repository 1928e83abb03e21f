"""Measure whether the audit tells the truth: simulated reviews of data sets with known truth.

    python benchmarks/audits.py --data DIR [--data DIR ...] [--only SET ...] [--cache DIR]
        [--preset default]

DIR as for quality.py. Every set is grouped as by teach.py, without normals, and also with normals
if it has some. A simulated person gives 1, 3 or 5 answers a kind in the order of the queue, and
then answers for 10, 20, 30 or 50 images of the audit, of a small set for at most half. A careful
person tells the truth. A careless one accepts every suggestion, but looks at the images of the
audit, where nothing is suggested. The queue is deterministic; the audit of each review is another
random one.

Shown are the number of reviews, and means over them: the accuracy that the audit estimates, the
true one (the share of the images outside the audit that are in the group of their kind), how often
the 90% interval holds it, whether that is in WANTED of the reviews, and the width of the interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flawsort.core.records import Ints
from flawsort.labels.accuracy import LEAST_ANSWERS, Estimate, audited, next_audit
from quality import fit, load_sets, preset_setting
from quality_tables import MODE_WORDS, MODES
from simulated_person import Person, Review
from teach import kinds_of, seen_by
from teach_ways import Seen

ANSWERS = (1, 3, 5)
AUDITS = (10, 20, 30, 50)
WANTED = 0.85
HEADER = f"{'':<28}{'reviews':>8}{'says':>7}{'truth':>7}{'held':>7}{'':>5}{'width':>7}"


@dataclass(frozen=True)
class Audited:
    """One review: what the audit says, and the truth."""

    found: Estimate
    truth: float

    @property
    def held(self) -> bool:
        low, high = self.found.interval
        return low <= self.truth <= high


def reviews(seen: Seen, clusters: Ints, *, careless: bool) -> Iterator[Audited]:
    """The reviews of one grouped set by one person."""
    person = Person(seen.truth, seen.normal, careless)
    review = Review.of(seen.embeddings, clusters, seen.looks_normal)
    if careless:
        person.take_over(review.labelling)
    steps, seed = review.steps(person), 0
    for each in ANSWERS:
        while review.clicks < each * seen.n_kinds and next(steps, None) is not None:
            pass
        for n in AUDITS:
            auditor = replace(person, groups=dict(person.groups))
            found = audit(auditor, replace(review), min(n, len(seen.truth) // 2), seed)
            seed += 1
            if found is not None:
                yield found


def audit(person: Person, review: Review, n: int, seed: int) -> Audited | None:
    """The audit of n images after a review; None if n is too few."""
    if n < LEAST_ANSWERS:
        return None
    for _ in range(n):
        row = next_audit(review.labelling, seed)
        assert row is not None
        review.apply(person.audit(row, review.labelling), review.state)
    found, state = audited(review.labelling, review.space), review.state
    assert found is not None
    others = np.ones(len(person.truth), bool)
    others[list(review.labelling.audits)] = False
    return Audited(found, float(person.right(state)[others].mean()))


def line_of(name: str, some: Sequence[Audited]) -> str:
    """A line of the table."""
    held = float(np.mean([one.held for one in some]))
    width = float(np.mean([one.found.interval[1] - one.found.interval[0] for one in some]))
    says, truth = (
        float(np.mean([value(one) for one in some]))
        for value in (lambda one: one.found.share, lambda one: one.truth)
    )
    wanted = "yes" if held >= WANTED else "no"
    return f"{name:<28}{len(some):>8}{says:>7.3f}{truth:>7.3f}{held:>7.2f}{wanted:>5}{width:>7.2f}"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--only", nargs="+", default=[], metavar="SET", help="sets by their names")
    parser.add_argument("--preset", type=preset_setting, default=preset_setting("default"))
    parser.add_argument("--cache", type=Path, help="folder for embedded images")
    parser.add_argument("--max-memory", help="hold larger sets in memory, like 64GB")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_parser().parse_args(arguments)
    found: dict[tuple[str, str], list[Audited]] = {}
    for data in load_sets(options.data, options.only):
        kinds = kinds_of(data)
        counted = [row for row, label in enumerate(data.labels) if label in kinds]
        for mode in MODES:
            if mode != "none" and data.normals is None:
                continue
            model, _ = fit(data, options.preset, len(kinds), mode, options)
            seen, clusters = seen_by(model, data.labels, kinds), model.labels_[counted]
            print(f"{data.name}, {MODE_WORDS[mode]}", flush=True)
            for person in ("careful", "careless"):
                some = list(reviews(seen, clusters, careless=person == "careless"))
                found.setdefault((mode, person), []).extend(some)
    print(f"\n{HEADER}")
    for (mode, person), some in sorted(found.items()):
        if some:
            print(line_of(f"{MODE_WORDS[mode]}, {person}", some))
    every = [one for some in found.values() for one in some]
    if every:
        print(line_of("all", every))


if __name__ == "__main__":
    main()
