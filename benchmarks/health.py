"""Measure how often the findings of the health check are right, on sets with known truth.

    python benchmarks/health.py --data DIR [--data DIR ...] [--only SET ...] --runs DIR
        [--preset fast] [--plant SET ...] [--cache DIR]

Each set is grouped as it is, without and with normals, from a random sample: up to 60 images
without normals; up to 100 with up to 50 normals. Then faults are planted in the sets of --plant (up
to 60 images and 40 normals): half of the images brighter or turned, a spot of dirt, normals of the
next set, and so on; see health_faults.py. Names and folders tell nothing of the truth, but in the
rows "folders are kinds": the groupings as they are, with normals, and with each kind of flaw in a
folder of its own, as in many downloads. There a finding about a folder is a false alarm.

The first table has, for each kind of finding, on how many groupings as they are it was made, how
often it was right there by the truth, and how often it would be right if it were always made:

    heat-...            right if the flaw (its mask) is not there, in most images that it is about
    not-apart           right if good and flawed images come apart badly: AUROC below 0.9
    group-follows,      right if the group is no kind of flaw: its best F1 with a kind is below 2/3;
    unsteady-groups       of all groups: by their mean

The second table has, for each planted fault, in how many sets it was found. A fault that only
matters if groups follow it counts where they do: groups, each called by its majority, tell both
halves apart with an accuracy of 0.9. Other findings than the planted one are listed beside those
that the set has without the fault.

--runs keeps every grouping, so an interrupted measurement resumes, and other thresholds can be
tried without grouping again. s is the time of the check itself.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from flawsort import AnomalyClusterer
from flawsort.health.checks import CHECKS, examine
from flawsort.health.facts import Facts, facts_of
from flawsort.health.record import Finding
from flawsort.research.metrics import auroc
from flawsort.research.truth import LabelledSet
from flawsort.runs.convert import fitted_of
from flawsort.runs.folder import open_run
from health_faults import FAULTS, Case, Fault, Spare, case_of, drawn
from quality import GOOD_LABELS, load_sets

AS_IT_IS, IN_FOLDERS = "as it is", "folders are kinds"
# Images and normals of a sample: without normals, with them, and with a planted fault.
WITHOUT, WITH, PLANTED = (60, 0), (100, 50), (60, 40)
BAD_AUROC = 0.9
NO_KIND = 2 / 3
FOLLOWED = 0.9


@dataclass(frozen=True, eq=False)
class Judged:
    """A grouping with what was found of it. truth, masks, half: as of a Case."""

    set: str
    mode: str
    fault: str
    facts: Facts
    findings: tuple[Finding, ...]
    truth: tuple[str, ...]
    masks: tuple[str, ...]
    half: tuple[bool, ...]
    seconds: float

    @property
    def codes(self) -> set[str]:
        return {one.code for one in self.findings}

    def finding(self, code: str) -> Finding | None:
        return next((one for one in self.findings if one.code == code), None)


# ---- groupings ----


def grouped(folder: Path, case: Case, options: argparse.Namespace, *, mode: str) -> None:
    """Group a case and keep the run with its truth, unless it is there."""
    if (folder / "case.json").exists():
        return
    model = AnomalyClusterer(method=options.preset, cache=options.cache)
    model.fit(case.images, normal=case.normals if mode == "normals" else None)
    model.save(folder, report=False, overwrite=True)
    half = case.half or (False,) * len(case.truth)
    masks = [str(mask) if mask else "" for mask in case.masks]
    told = dict(zip(case.images.names, zip(case.truth, masks, half, strict=True), strict=True))
    (folder / "case.json").write_text(json.dumps([told[name] for name in model.images_.names]))


def judged(folder: Path, name: str, mode: str, fault: str) -> Judged:
    """What is found of a grouping that was kept. With IN_FOLDERS, as if kinds were folders."""
    run = open_run(folder)
    told = json.loads((folder / "case.json").read_text())
    fitted = fitted_of(run)
    start = time.perf_counter()
    truth, masks, half = (tuple(column) for column in zip(*told, strict=True))
    facts = facts_of(fitted, run.thumbnails)
    if fault == IN_FOLDERS:
        facts = replace(facts, filed=replace(facts.filed, folder=truth))
    health = examine(facts)
    seconds = time.perf_counter() - start
    return Judged(name, mode, fault, facts, health.findings, truth, masks, half, seconds)


def measure(sets: Sequence[LabelledSet], options: argparse.Namespace) -> list[Judged]:
    found = []
    for data in sets:
        for mode, sizes in (("normals", WITH), ("none", WITHOUT)):
            if mode == "normals" and data.normals is None:
                continue
            folder = options.runs / f"{data.name}-{mode}"
            grouped(folder, case_of(data, *sizes), options, mode=mode)
            found.append(judged(folder, data.name, mode, AS_IT_IS))
            print(line_of(found[-1]), flush=True)
            if mode == "normals":
                found.append(judged(folder, data.name, mode, IN_FOLDERS))
                print(line_of(found[-1]), flush=True)
    able = [data for data in sets if data.normals is not None]
    for place, data in enumerate(able):
        if data.name not in options.plant:
            continue
        following = able[(place + 1) % len(able)]
        for fault in FAULTS:
            if not fault.sets or data.name in fault.sets:
                found.append(planted(data, following, fault, options))
                print(line_of(found[-1]), flush=True)
    return found


def planted(
    data: LabelledSet, following: LabelledSet, fault: Fault, options: argparse.Namespace
) -> Judged:
    """A set with a fault. following: the set whose normals are those of another product."""
    key = f"{data.name}-normals-{fault.name.replace(' ', '_')}"
    folder = options.runs / key
    if not (folder / "case.json").exists():
        case = case_of(data, *PLANTED)
        assert case.normals is not None
        assert data.normals is not None
        assert following.normals is not None
        used = {*case.images.digests, *case.normals.digests}
        rest = [row for row, one in enumerate(data.normals.digests) if one not in used]
        spare = Spare(
            following.normals.take(drawn(following.normals, PLANTED[1])),
            data.normals.take(drawn(data.normals, PLANTED[0], rest)),
        )
        case = fault.plant(case, spare, options.runs / "files" / key)
        grouped(folder, case, options, mode="normals")
    return judged(folder, data.name, "normals", fault.name)


# ---- the truth ----


def right(one: Judged, finding: Finding) -> bool | None:
    """Whether a finding is right by the truth; None if that cannot be told."""
    rows = [one.facts.names.index(name) for name in finding.images]
    if finding.code in ("heat-on-background", "heat-at-border", "same-place"):
        return not_the_flaw(one, rows)
    if finding.code == "not-apart":
        return badly_apart(one)
    if finding.code in ("group-follows", "unsteady-groups"):
        labels = one.facts.labels
        about = set(labels[rows].tolist()) if rows else set(labels.tolist())
        return float(np.mean([kind_f1(one, group) < NO_KIND for group in about])) > 0.5
    return None


def not_the_flaw(one: Judged, rows: Sequence[int]) -> bool | None:
    """Whether the hottest patch of most of these images is not at their flaw."""
    (high, wide), hits = one.facts.grid, []
    for row in rows:
        if one.masks[row]:
            with Image.open(one.masks[row]) as mask:
                small = mask.convert("L").resize((wide, high), Image.Resampling.BOX)
            flaw = np.pad(np.asarray(small) > 0, 1)
            down, across = divmod(int(one.facts.scores[row].argmax()), wide)
            hits.append(bool(flaw[down : down + 3, across : across + 3].any()))
    return None if not hits else float(np.mean(hits)) < 0.5


def badly_apart(one: Judged) -> bool:
    good = np.isin(one.truth, GOOD_LABELS)
    if good.all() or not good.any():
        return bool(good.all())
    return bool(auroc(one.facts.image_scores, ~good) < BAD_AUROC)


def kind_f1(one: Judged, group: int) -> float:
    """The best F1 of a group with a kind."""
    inside, truth = one.facts.labels == group, np.array(one.truth)
    kinds = [truth == label for label in set(one.truth)]
    return max(float(2 * (inside & kind).sum() / (inside.sum() + kind.sum())) for kind in kinds)


def follow(one: Judged) -> bool:
    """Whether the groups tell the two halves of a fault apart."""
    half, right_ones = np.array(one.half), 0
    for group in range(one.facts.n_groups):
        inside = half[one.facts.labels == group]
        right_ones += max(int(inside.sum()), int((~inside).sum()))
    return right_ones / len(half) >= FOLLOWED


# ---- tables ----


def line_of(one: Judged) -> str:
    codes = ", ".join(f"{found.code} {found.value:.2f}" for found in one.findings) or "-"
    return f"{one.set:<13} {one.mode:<7} {one.fault:<23} {one.seconds:4.1f} s  {codes}"


def findings_table(found: Sequence[Judged]) -> list[str]:
    """For each kind of finding: how often it is made on sets as they are, and right."""
    lines = [f"{'finding':<22} {'made':>9} {'right':>9} {'always':>9}"]
    plain = [one for one in found if one.fault == AS_IT_IS]
    for code in (code for check in CHECKS for code in check.codes):
        made = [(one, one.finding(code)) for one in plain]
        told = [right(one, finding) for one, finding in made if finding is not None]
        known = [answer for answer in told if answer is not None]
        share = f"{sum(known)} of {len(known)}" if known else ""
        base = always(plain, code)
        usual = "" if base is None else f"{base:.0%}"
        lines.append(f"{code:<22} {f'{len(told)} of {len(plain)}':>9} {share:>9} {usual:>9}")
    return lines


def always(plain: Sequence[Judged], code: str) -> float | None:
    """How often a finding would be right if it were made of every set or group."""
    if code == "not-apart":
        able = [one for one in plain if one.facts.heat.normal_below is not None]
        return float(np.mean([badly_apart(one) for one in able])) if able else None
    if code in ("group-follows", "unsteady-groups"):
        groups = [(one, group) for one in plain for group in range(one.facts.n_groups)]
        return float(np.mean([kind_f1(one, group) < NO_KIND for one, group in groups]))
    return None


def groups_line(found: Sequence[Judged]) -> str:
    """How often single groups that are called unsteady are no kind, and the others."""
    counts: Counter[tuple[bool, bool]] = Counter()
    for one in found:
        finding = one.finding("unsteady-groups")
        if one.fault == AS_IT_IS:
            rows = [] if finding is None else [one.facts.names.index(n) for n in finding.images]
            loose = set(one.facts.labels[rows].tolist())
            if finding is not None and not rows:
                loose = set(one.facts.labels.tolist())
            for group in range(one.facts.n_groups):
                counts[group in loose, kind_f1(one, group) < NO_KIND] += 1
    parts = []
    for words, loose_ones in (("called unsteady", True), ("others", False)):
        n = counts[loose_ones, True] + counts[loose_ones, False]
        parts.append(f"{words}: {counts[loose_ones, True]} of {n} are no kind of flaw")
    return "Groups " + "; ".join(parts) + "."


def folders_line(found: Sequence[Judged]) -> str:
    """How often a finding is about folders that are kinds of flaws."""
    some = [one for one in found if one.fault == IN_FOLDERS]
    about = [one for one in some if any("the folder" in each.sentence for each in one.findings)]
    listed = f" ({', '.join(one.set for one in about)})" if about else ""
    share = f"{len(about)} of {len(some)} groupings{listed}"
    return f"With a folder for each kind, the folder is named as what groups follow in {share}."


def faults_table(found: Sequence[Judged]) -> list[str]:
    """For each planted fault: in how many sets it matters and is found, and what else is."""
    plain = {one.set: one.codes for one in found if one.fault == AS_IT_IS and one.mode == "normals"}
    lines = [
        f"{'fault':<24} {'planted':>7} {'matters':>7} {'found':>6} {'else':>5}  other findings"
    ]
    for fault in FAULTS:
        some = [one for one in found if one.fault == fault.name]
        matters = [one for one in some if not fault.followed or follow(one)]
        about = {fault.finds} | ({"group-follows"} if fault.followed else set())
        hit = sum(bool(about & one.codes) for one in matters) if fault.finds else 0
        elsewhere = sum(bool(about & one.codes) for one in some if one not in matters)
        others = Counter(
            code for one in some for code in one.codes - about - plain.get(one.set, set())
        )
        listed = ", ".join(f"{code} {n}" for code, n in others.most_common())
        found_words = str(hit) if fault.finds else ""
        lines.append(
            f"{fault.name:<24} {len(some):>7} {len(matters):>7} {found_words:>6} {elsewhere:>5}  "
            f"{listed}"
        )
    return lines


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--only", nargs="+", default=[], metavar="SET", help="sets, in this order")
    parser.add_argument("--plant", nargs="*", default=[], metavar="SET", help="to plant faults in")
    parser.add_argument("--runs", type=Path, required=True, help="folder that keeps groupings")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--cache", type=Path, help="folder for embedded images")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_parser().parse_args(arguments)
    sets = load_sets(options.data, options.only)
    if options.only:
        sets.sort(key=lambda data: options.only.index(data.name))
    found = measure(sets, options)
    print(
        "",
        *findings_table(found),
        "",
        groups_line(found),
        folders_line(found),
        "",
        *faults_table(found),
        sep="\n",
    )


if __name__ == "__main__":
    main()
