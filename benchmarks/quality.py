"""Measure how well the groups match the true kinds of flaws, on data sets with known truth.

    python benchmarks/quality.py --data DIR [--data DIR ...] [--results FILE] [--leave-one-out]
        [--presets default plain] [--candidate sharp:preset=default,temperature=0.5 ...]

DIR is one MVTec AD category or a folder of categories, the magnetic tiles, or a folder with one
subfolder per label. Every set is grouped once for each setting, without normals, and also with
normals if it has some. A setting is a preset, `plain` (the mean of all patches, the simplest
baseline, which has no use for normals), or a candidate: a preset with other values for some fields
of `Method`, or for `backbone`, `backbone_weights` and `image_size` of the estimator.

NMI, ARI and F1 are at the true number of kinds (an oracle, as in the paper) and leave out
`combined`. A single cut is noisy, so the mean and the standard error of NMI over cuts of random
subsets of 90% of the images follow, with the embeddings of the whole set. AUROC is that of the
image score, good images against the rest, and pixel that of single pixels where the set has masks.
prec. and rec. are the precision and recall of `looks normal`, with good images as positives. The
advised number of groups comes with how far off it is and how much NMI it costs. s is the time of
the fit in seconds; images that --cache has are not embedded again.

Then come means over the sets, those of the five sets by which the default was once chosen apart
from the others, and the sets that fall behind the plain mean or the previous default. With
--leave-one-out, a setting is also chosen without each set in turn, by the mean over the other sets:
what it gives on the set left out is what a product that nobody tuned for can expect.

--results keeps every finished row in FILE, and rows that are there already are not measured again,
so an interrupted run resumes. Means and choices take in all settings of FILE that were measured
with the same source code and number of subsets.
"""

from __future__ import annotations

import argparse
import json
import time
import types
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from PIL import Image

from flawsort import AnomalyClusterer, Method
from flawsort.backbones import BackboneChoice
from flawsort.clusters.large_ward import tree
from flawsort.clusters.ward import cut
from flawsort.core.errors import FlawsortError
from flawsort.core.records import Bools, Floats
from flawsort.embeddings.method import PRESETS, resolve, views_of
from flawsort.research.metrics import agreement, auroc, pixel_auroc, precision_and_recall
from flawsort.research.truth import EXCLUDED_LABELS, LabelledSet, find_datasets, load_dataset
from quality_results import Row, append_row, key_of, read_rows, rows_to_compare, source_version
from quality_tables import (
    HEADER,
    MODES,
    line_of,
    print_leave_one_out,
    print_published,
    print_summary,
)

GOOD_LABELS = ("good", "Free")
SUBSET_SHARE = 0.9
PLAIN = Method(weights="uniform", pooling="average")
LONGEST_NAME = 14  # what the tables have room for
# What a candidate may set besides the fields of Method, each a parameter of the estimator.
ESTIMATOR_FIELDS = {"backbone": str, "backbone_weights": str, "image_size": int}


@dataclass(frozen=True)
class Setting:
    """How sets are grouped. method: a preset by its name, or a Method. views: the preset whose
    backbones are used, unless the estimator's parameters name one. estimator: parameters of the
    estimator by their names."""

    name: str
    method: str | Method
    estimator: dict[str, Any] = field(default_factory=dict)
    views: str = "default"

    @property
    def backbones(self) -> tuple[BackboneChoice, ...]:
        named = self.estimator.get("backbone")
        return views_of(self.views) if named is None else (BackboneChoice(named),)

    def record(self) -> dict[str, Any]:
        """Every value, as JSON gives them back."""
        values = {**dict.fromkeys(ESTIMATOR_FIELDS), **self.estimator}
        views = [asdict(one) for one in self.backbones]
        record: dict[str, Any] = json.loads(
            json.dumps({"method": asdict(resolve(self.method)), "views": views, **values})
        )
        return record

    @property
    def uses_normals(self) -> bool:
        return resolve(self.method).weights != "uniform"


def preset_setting(name: str) -> Setting:
    """A preset of flawsort, or `plain`."""
    if name == "plain":
        return Setting(name, PLAIN, views="fast")
    if name not in PRESETS:
        accepted = ", ".join([*PRESETS, "plain"])
        raise argparse.ArgumentTypeError(f"a preset is one of {accepted}. Got '{name}'.")
    return Setting(name, name, views=name)


def candidate_setting(text: str) -> Setting:
    """NAME:field=value,field=value. A first field `preset` says what is changed; else `default`."""
    name, colon, changes = text.partition(":")
    pairs = [part.partition("=") for part in changes.split(",")]
    if not colon or not all(key and equals for key, equals, _ in pairs):
        raise argparse.ArgumentTypeError(
            f"a candidate is NAME:field=value,field=value. Got '{text}'."
        )
    if not 0 < len(name) <= LONGEST_NAME or name in (*PRESETS, "plain"):
        raise argparse.ArgumentTypeError(
            f"the name of a candidate has 1 to {LONGEST_NAME} characters and is not that of a "
            f"preset. Got '{name}'."
        )
    values = {key: value for key, _, value in pairs}
    preset = preset_setting(values.pop("preset", "default"))
    method = resolve(preset.method)
    hints = {one.name: get_type_hints(Method)[one.name] for one in fields(Method)}
    unknown = values.keys() - {*hints, *ESTIMATOR_FIELDS}
    if unknown:
        accepted = ", ".join(["preset", *hints, *ESTIMATOR_FIELDS])
        raise argparse.ArgumentTypeError(
            f"a field is one of {accepted}. Got '{min(unknown)}' in '{text}'."
        )
    parsed = {
        key: parse_value(value, {**hints, **ESTIMATOR_FIELDS}[key], key)
        for key, value in values.items()
    }
    estimator = {key: value for key, value in parsed.items() if key in ESTIMATOR_FIELDS}
    others = {key: value for key, value in parsed.items() if key in hints}
    try:
        return Setting(name, replace(method, **others), estimator, preset.views)
    except FlawsortError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no method: {error}") from error


def parse_value(text: str, hint: Any, key: str) -> Any:
    """The value of a field by its type: none, true, false, a number or text."""
    union = get_origin(hint) in (Union, types.UnionType)
    options = get_args(hint) if union else (hint,)
    if type(None) in options and text.lower() == "none":
        return None
    for option in options:
        if get_origin(option) is Literal and text in get_args(option):
            return text
        if option is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
    for kind in (int, float, str):
        if kind in options:
            try:
                return kind(text)
            except ValueError:
                continue
    raise argparse.ArgumentTypeError(f"{key} must be {hint}. Got '{text}'.")


def measure(
    data: LabelledSet, setting: Setting, identity: dict[str, Any], options: argparse.Namespace
) -> Row:
    """Group a set once and compare it with the truth. identity: the key of the row."""
    rows = [i for i, label in enumerate(data.labels) if label not in EXCLUDED_LABELS]
    truth = [data.labels[i] for i in rows]
    model, seconds = fit(data, setting, len(set(truth)), identity["mode"], options)
    found = agreement(truth, model.labels_[rows])
    subset_nmi, subset_error = subset_figures(model.embeddings_, data.labels, options.subsets)
    good = np.isin(data.labels, GOOD_LABELS)
    normal = looks_normal(model)
    precision, recall = (None, None) if normal is None else precision_and_recall(normal, good)
    compared = setting.uses_normals  # without a comparison all scores are 0
    return Row(
        **identity,
        name=setting.name,
        kinds=len(set(truth)),
        nmi=found.nmi,
        ari=found.ari,
        f1=found.f1,
        subset_nmi=subset_nmi,
        subset_error=subset_error,
        auroc=auroc(model.image_scores_, ~good) if compared else None,
        pixel_auroc=pixel_figure(model.scores_, model.grid_, data) if compared else None,
        precision=precision,
        recall=recall,
        advised=model.advice_.k,
        advised_nmi=agreement(truth, cut(model.linkage_, model.advice_.k)[rows]).nmi,
        seconds=seconds,
        timings=model.timings_,
    )


def fit(
    data: LabelledSet, setting: Setting, k: int, mode: str, options: argparse.Namespace
) -> tuple[AnomalyClusterer, float]:
    """Group a set into k groups. Returns the model and the seconds that it took."""
    model = AnomalyClusterer(
        n_clusters=k,
        method=setting.method,
        cache=options.cache,
        max_memory=options.max_memory,
        **{**setting.estimator, "backbone": setting.backbones},
    )
    start = time.perf_counter()
    model.fit(data.images, normal=data.normals if mode == "normals" else None)
    seconds = time.perf_counter() - start
    if len(model.images_) != len(data.images):
        raise SystemExit(f"{data.name}: unreadable images: {model.images_.set_aside}")
    return model, seconds


def subset_figures(
    embeddings: Floats, labels: Sequence[str], count: int
) -> tuple[float | None, float | None]:
    """The mean NMI over random subsets and its standard error; None without subsets."""
    found = subset_nmis(embeddings, labels, count)
    if not found:
        return None, None
    return float(np.mean(found)), float(np.std(found) / np.sqrt(count))


def subset_nmis(embeddings: Floats, labels: Sequence[str], count: int) -> list[float]:
    """The NMI of random subsets, each at the number of kinds that it has."""
    found = []
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(labels))
        some = np.sort(order[: round(SUBSET_SHARE * len(labels))])
        rows = [place for place, i in enumerate(some) if labels[i] not in EXCLUDED_LABELS]
        truth = [labels[some[place]] for place in rows]
        groups = cut(tree(embeddings[some]), len(set(truth)))
        found.append(float(agreement(truth, groups[rows]).nmi))
    return found


def looks_normal(model: AnomalyClusterer) -> Bools | None:
    """(n_images,): which images are said to look normal; None without normals."""
    return model.looks_normal_


def pixel_figure(scores: Floats, grid: tuple[int, int], data: LabelledSet) -> float | None:
    """AUROC of single pixels; None without masks. A flawed image that lacks its mask is left out,
    since nobody knows which of its pixels are good."""
    rows, masks = [], []
    for i, (label, path) in enumerate(zip(data.labels, data.masks, strict=True)):
        if path is not None:
            with Image.open(path) as image:
                masks.append(np.asarray(image.convert("L")) >= 128)
        elif label in GOOD_LABELS:
            masks.append(None)
        else:
            continue
        rows.append(i)
    if not any(mask is not None and mask.any() for mask in masks):
        return None
    return pixel_auroc(scores[rows], grid, masks)


def load_sets(folders: Sequence[Path], only: Sequence[str]) -> list[LabelledSet]:
    """The sets of the folders, those of `only` if it names any."""
    found = [one for folder in folders for one in find_datasets(folder)]
    names = [one.name for one in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SystemExit(f"Two sets are called '{min(twice)}'. Give each set once.")
    missing = set(only) - set(names)
    if missing:
        raise SystemExit(f"--only: no set is called '{min(missing)}'. Found: {', '.join(names)}.")
    return [load_dataset(one) for one in found if not only or one.name in only]


def chosen_settings(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Setting]:
    settings = [*options.presets, *options.candidate]
    for place, setting in enumerate(settings):
        for other in settings[:place]:
            if setting.name == other.name:
                parser.error(f"two settings are called '{setting.name}'.")
            if setting.record() == other.record():
                parser.error(f"'{other.name}' and '{setting.name}' are the same setting.")
    if not settings:
        parser.error("give --presets or --candidate.")
    return settings


def measure_all(
    sets: Sequence[LabelledSet],
    settings: Sequence[Setting],
    stored: Sequence[Row],
    options: argparse.Namespace,
) -> list[Row]:
    """Print and return a row for each set, mode and setting, a stored one if there is one."""
    known, version, rows = {row.key: row for row in stored}, source_version(), []
    for data in sets:
        for mode in options.modes:
            for setting in settings:
                with_normals = mode == "normals"
                if with_normals and (data.normals is None or not setting.uses_normals):
                    continue
                identity = {
                    "set": data.name,
                    "mode": mode,
                    "setting": setting.record(),
                    "subsets": options.subsets,
                    "version": version,
                    "images": len(data.images),
                    "normals": len(data.normals) if with_normals and data.normals else 0,
                }
                row = known.get(key_of(identity))
                if row is None:
                    row = measure(data, setting, identity, options)
                    if options.results is not None:
                        append_row(options.results, row)
                rows.append(replace(row, name=setting.name))
                print(line_of(rows[-1]), flush=True)
    return rows


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--only", nargs="+", default=[], metavar="SET", help="sets by their names")
    usual = [preset_setting(name) for name in (*PRESETS, "plain")]
    parser.add_argument("--presets", nargs="*", type=preset_setting, default=usual)
    parser.add_argument(
        "--candidate",
        nargs="+",
        type=candidate_setting,
        default=[],
        action="extend",
        metavar="NAME:field=value,...",
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--subsets", type=int, default=20)
    parser.add_argument("--results", type=Path, help="file that keeps finished rows")
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--max-memory", help="hold larger sets in memory, like 64GB")
    parser.add_argument("--cache", type=Path, help="folder for embedded images")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser()
    options = parser.parse_args(arguments)
    settings = chosen_settings(options, parser)
    sets = load_sets(options.data, options.only)
    stored = [] if options.results is None else read_rows(options.results)
    print("NMI, ARI, F1 and the subsets are at the true number of kinds k (an oracle), ", end="")
    print("without `combined`.")
    print(HEADER)
    measured = measure_all(sets, settings, stored, options)
    names = [data.name for data in sets]
    rows = rows_to_compare(measured, stored, names, options.modes)
    print_summary(rows)
    if options.leave_one_out:
        print_leave_one_out(rows)
    print_published(names)


if __name__ == "__main__":
    main()
