"""What the commands do: each takes plain arguments, gives plain values, and one shows them."""

from __future__ import annotations

import importlib.util
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.backbones import NETWORKS, catalogue, entry_path, load_backbone
from flawsort.backbones.patches import patch_embeddings
from flawsort.cli import console
from flawsort.cli.evaluate_actions import EVALUATION, evaluate
from flawsort.core.errors import BackboneError, InputError, OptionError
from flawsort.core.storage import write_whole
from flawsort.core.text import pluralise
from flawsort.embeddings.heat import NORMAL_GROUP_SHARE, overlay
from flawsort.estimator import AnomalyClusterer
from flawsort.images.find import find_images
from flawsort.images.view import UnreadableImage, thumbnail
from flawsort.labels.carry_over import Earlier
from flawsort.outputs.report import render_report
from flawsort.research.truth import read_truth
from flawsort.runs.convert import make_run
from flawsort.runs.folder import (
    REPORT,
    open_run,
    prepare_output,
    read_text,
    replace_files,
    save_run,
)
from flawsort.runs.run import Run

HEATMAP_SIDE = 768
SHOWN_ASIDE = 8


def cluster_images(
    sources: list[str],
    normal: list[str],
    output: Path,
    *,
    glob: str | None,
    truth: Path | None,
    labels_from: Path | None = None,
    overwrite: bool,
    parameters: dict[str, Any],
) -> tuple[Run, dict[str, Any] | None]:
    """The main job: find, embed, score, group, save with a report. labels_from: a run whose edits
    are kept to, and carried over."""
    start = time.perf_counter()
    model = AnomalyClusterer(**parameters)
    earlier = None if labels_from is None else Earlier.of(labels_from)
    carried = labels_from is not None and labels_from.resolve() == output.resolve()
    prepare_output(output, overwrite=overwrite, carried=carried)
    images = find_images(sources, glob=glob)
    normals = find_images(normal, glob=glob) if normal else None
    labels = None if truth is None else read_truth(truth, images)
    found = time.perf_counter()
    model.fit(images, normal=normals, known_groups=None if earlier is None else earlier.said)
    fitted = time.perf_counter()
    run = make_run(model.fitted_)
    if earlier is not None:
        run.manifest["warnings"].append(earlier.note(model.images_))
    evaluation = None
    if labels is not None:
        known = dict(zip(images.names, labels, strict=True))
        try:
            evaluation = evaluate(run, [known[name] for name in run.names])
        except InputError as error:  # the groups are there: a truth for none of them loses nothing
            run.manifest["warnings"].append(f"Not evaluated: {error}")
    extra = {REPORT: render_report(run, evaluation)}
    timings = run.manifest["timings"]
    timings["find"] = round(timings["find"] + found - start, 3)
    timings["report"] = round(time.perf_counter() - fitted, 3)  # with map and thumbnails
    timings["total"] = round(time.perf_counter() - start, 3)  # all but writing to disk
    if evaluation is not None:
        extra[EVALUATION] = json.dumps(evaluation, indent=2) + "\n"
    furnish = None if earlier is None else partial(earlier.write, run)
    save_run(run, output, overwrite=overwrite, extra=extra, furnish=furnish, carried=carried)
    model.discard_parts()
    return run, evaluation


def groups(run: Run) -> list[dict[str, Any]]:
    """What there is to say of each group: size, mean score, most typical images."""
    looks_normal, scores = run.looks_normal, np.array(run.table["score"])
    entries = []
    for group in range(run.n_clusters):
        members = run.rows_of(group)
        entries.append(
            {
                "group": group,
                "n_images": len(members),
                "mean_score": float(scores[np.sort(members)].mean()),
                "looks_normal": bool(looks_normal[members].mean() >= NORMAL_GROUP_SHARE),
                "typical": [run.names[row] for row in members[:3]],
            }
        )
    return entries


def show_clusters(run: Run, output: Path, evaluation: dict[str, Any] | None) -> None:
    """The groups, what to know about them, and where everything is."""
    manifest = run.manifest
    known = pluralise(manifest["n_normals"], "known-good one")
    found = pluralise(manifest["n_images"], "image")
    if manifest["n_normals"]:
        found += f" and {known}"
    console.say(f"{found}: {manifest['scored']}.")
    rows = [
        [
            entry["group"],
            entry["n_images"],
            entry["mean_score"],
            "looks normal" if entry["looks_normal"] else "",
            ", ".join(entry["typical"]),
        ]
        for entry in groups(run)
    ]
    console.say()
    console.print_table("", ["group", "images", "mean score", "", "most typical"], rows)
    console.say("(a higher score is more unusual, within this run)")
    console.say()
    advice = manifest["clusters"]["advice"]
    span = f", anything from {advice['low']} to {advice['high']} is defensible"
    said = f"{advice['k']}{span if advice['low'] < advice['high'] else ''}"
    doubt = " (ambiguous)" if advice["ambiguous"] else ""
    console.say(f"Advice on the number of groups: {said}{doubt}.")
    console.say(f"  {advice['reason']}")
    several = sum(len(kinds) > 1 for kinds in run.kinds)
    if several:
        console.say(
            f"{several:,} of the images {'seems' if several == 1 else 'seem'} to show several "
            "kinds: column kinds of images.csv, and regions.csv."
        )
    for warning in manifest["warnings"]:
        console.say(f"Note: {warning}")
    for entry in manifest["set_aside"][:SHOWN_ASIDE]:
        what = "Set aside" if entry["kind"] == "image" else "Set aside (known good)"
        console.say(f"{what}: {entry['name']}: {entry['reason']}")
    if len(manifest["set_aside"]) > SHOWN_ASIDE:
        more = len(manifest["set_aside"]) - SHOWN_ASIDE
        console.say(f"Set aside: {more} more; the report lists them all.")
    if evaluation is not None:
        console.say(
            f"Against the truth: NMI {evaluation['nmi']:.3f}, ARI {evaluation['ari']:.3f}, "
            f"F1 {evaluation['f1']:.3f}, with "
            f"{pluralise(len(evaluation['clusters']), 'group')} for "
            f"{pluralise(evaluation['true_k'], 'kind')}."
        )
    spent = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in manifest["timings"].items())
    console.say(f"Time: {spent}.")
    console.say(f"Report: {output / REPORT}")


def render_again(folder: Path, output: Path | None, heatmaps: Path | None) -> dict[str, str]:
    """Render a run's report from the run alone; what was written, and where."""
    run = open_run(folder)
    kept = read_text(folder, EVALUATION)
    html = render_report(run, None if kept is None else json.loads(kept))
    place = output or folder / REPORT
    try:
        if output is None:
            replace_files(folder, {REPORT: html})
        else:
            write_whole(output, html)
    except OSError as error:
        hint = " Write it elsewhere with -o." if output is None else ""
        raise OptionError(f"Cannot write '{place}': {error.strerror or error}.{hint}") from error
    written = {"report": str(place)}
    if heatmaps is not None:
        _write_heatmaps(run, heatmaps)
        written["heat maps"] = str(heatmaps)
    return written


def list_backbones() -> list[dict[str, Any]]:
    """The embedded backbones, each loaded once to verify it, and the networks of torch."""
    entries = []
    for name, entry in catalogue().items():
        path = entry_path(entry)
        record: dict[str, Any] = {"name": name, **entry, "state": "verified"}
        try:
            backbone = load_backbone(name)
            height, width = backbone.info.input_size
            maps = backbone.feature_maps(np.zeros((1, 3, height, width), np.float32))
            patches, grid = patch_embeddings(maps, backbone.info.pooling_kernel)
            record |= {"dim": patches.shape[2], "grid": list(grid), "bytes": path.stat().st_size}
        except BackboneError as error:
            record["state"] = str(error)
        entries.append(record)
    there = all(importlib.util.find_spec(name) is not None for name in ("torch", "timm"))
    for name, network in NETWORKS.items():
        entries.append(
            {
                "name": name,
                "model": network.model,
                "licence": network.licence,
                "input_size": [network.input_size, network.input_size],
                "dim": sum(network.channels),
                "grid": [network.input_size // min(network.strides)] * 2,
                "state": "weights by timm, or from a file" if there else "needs flawsort[torch]",
            }
        )
    return entries


def show_backbones(entries: list[dict[str, Any]]) -> None:
    """One block an embedded backbone, one row a network."""
    for entry in entries:
        if "sha256" not in entry:
            continue
        console.say(entry["name"])
        for key, value in entry.items():
            if key == "bytes":
                value = f"{value:,}"
            if key != "name":
                console.say(f"  {key.replace('_', ' '):<11} {_sides(value)}")
    networks = [entry for entry in entries if "model" in entry]
    # The last columns are left out first where a terminal is narrow.
    columns = ("name", "input_size", "dim", "grid", "licence", "model")
    rows = [
        [value if isinstance(value := entry[column], int) else _sides(value) for column in columns]
        for entry in networks
    ]
    console.say()
    states = ", ".join(dict.fromkeys(entry["state"] for entry in networks))
    console.say(f"Networks of torch. State: {states}.")
    console.say("NAME:last is the last layer.")
    console.say()
    console.print_table("", [column.replace("_", " ") for column in columns], rows)
    console.say()
    console.say("Any ONNX file with an image input (n, 3, height, width), RGB in 0..1, and")
    console.say("feature-map outputs works too: --backbone PATH.onnx, or PATH.onnx#OUTPUT for")
    console.say("some of them.")


def _sides(value: object) -> str:
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)


def _write_heatmaps(run: Run, output: Path) -> None:
    """One PNG an image, named after it; one that is gone is drawn on its thumbnail, or on grey."""
    from io import BytesIO

    from PIL import Image

    size = run.input_size
    scores = run.scores if run.valid is None else np.where(run.valid, run.scores, np.nan)
    taken: set[Path] = set()
    for row, name in enumerate(run.names):
        try:
            picture = thumbnail(run.source(row), run.view, size, HEATMAP_SIDE)
        except (UnreadableImage, OSError):
            picture = Image.new("RGB", size[::-1], (128, 128, 128))
            if run.thumbnails[row]:  # of a large run few have one
                picture = Image.open(BytesIO(run.thumbnails[row])).convert("RGB")
        drawn = overlay(picture, scores[row], run.grid, run.heat)
        target = output / f"{_safe(name)}.png"
        if target in taken:
            target = target.with_name(f"{row}-{target.name}")
        taken.add(target)
        try:
            write_whole(target, partial(drawn.save, format="PNG"), parents=True)
        except OSError as error:
            raise OptionError(
                f"Cannot write the heat map '{target}': {error.strerror or error}."
            ) from error


def _safe(name: str) -> Path:
    """A relative path that cannot lead out of the folder it is put in."""
    parts = [part for part in Path(name).parts if part not in ("..", "/", "\\") and part.strip()]
    return Path(*(part.replace(":", "_").replace("\x00", "_") for part in parts or ["image"]))
