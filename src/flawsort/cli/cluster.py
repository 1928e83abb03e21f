"""The command `flawsort cluster`: groups images, and saves a run with its report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flawsort.cli import console
from flawsort.cli.options import (
    COMPARING,
    IMAGES,
    KNOWN,
    MACHINES,
    PAPER,
    SCRIPTS,
    Address,
    Arithmetic,
    Cache,
    Device,
    Glob,
    Json,
    NoCache,
    Open,
    Parts,
    Quiet,
    Runner,
    Sources,
    Workers,
    among,
    any_number,
    cache_folder,
    number_or,
    whole_number,
)
from flawsort.core.errors import InputError, OptionError

if TYPE_CHECKING:
    from flawsort.backbones import BackboneChoice
    from flawsort.embeddings.method import Method
    from flawsort.images.view import View
    from flawsort.runs.run import Run


def cluster(
    sources: Sources,
    # The ten options that most people need come first; the others follow under headings.
    normal: Annotated[
        list[str] | None,
        typer.Option(
            "--normal", "-n", metavar="IMAGES", help="Known-good images; may be repeated."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="The run folder to write.")
    ] = Path("run"),
    clusters: Annotated[
        str,
        typer.Option(
            "--clusters", "-k", metavar="N", help="Number of groups; auto uses the advised number."
        ),
    ] = "auto",
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="default, fast (one small network) or paper (the paper's method).",
            autocompletion=among("default", "fast", "paper"),
        ),
    ] = "default",
    labels_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Keep the group names and corrections of this reviewed run."
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Compare the groups with true labels: a labelled folder or a CSV."
        ),
    ] = None,
    roi: Annotated[
        str | None,
        typer.Option(
            metavar="REGION", help="Region of interest: left,top,right,bottom or a mask image."
        ),
    ] = None,
    tile: Annotated[
        str,
        typer.Option(
            metavar="TILES",
            help="Look at images in ROWSxCOLUMNS tiles, like 2x3; auto decides by their size.",
        ),
    ] = "auto",
    device: Device = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing run.")
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Labels of some images: columns path or name, and label; normal means no flaw.",
            rich_help_panel=KNOWN,
        ),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Example images of each kind, in a folder for each; they are not grouped.",
            rich_help_panel=KNOWN,
        ),
    ] = None,
    glob: Glob = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="Fit the whole image to the network's input, without tiles: stretch, pad or crop.",
            autocompletion=among("stretch", "pad", "crop"),
            rich_help_panel=IMAGES,
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            parser=whole_number("--image-size"),
            metavar="PIXELS",
            help="Side of the first backbone's input; a multiple of its step.",
            rich_help_panel=IMAGES,
        ),
    ] = None,
    max_pixels: Annotated[
        int,
        typer.Option(
            parser=whole_number("--max-pixels"),
            metavar="N",
            help="Set aside images with more pixels, such as decompression bombs.",
            rich_help_panel=IMAGES,
        ),
    ] = 200_000_000,
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name from flawsort backbones, or an ONNX file; several views if repeated.",
            rich_help_panel=IMAGES,
        ),
    ] = None,
    backbone_weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with the weights of the first network, .safetensors or .pth.",
            rich_help_panel=IMAGES,
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Without normals: number of images to compare each image with, or all.",
            rich_help_panel=COMPARING,
        ),
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--approximate",
            help="Compare patches exactly or approximately; by size if omitted, exactly in paper.",
            rich_help_panel=COMPARING,
        ),
    ] = None,
    arithmetic: Arithmetic = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory limit, like 4GB; larger sets are processed in batches.",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    runner: Runner = "local",
    address: Address = None,
    workers: Workers = None,
    parts: Parts = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="Weights of the patches: auto, uniform, or masks or heat-maps from --maps.",
            rich_help_panel=PAPER,
            autocompletion=among("auto", "uniform", "masks", "heat-maps"),
        ),
    ] = None,
    maps: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Masks or heat maps: pictures or .npy files that are named as the images.",
            rich_help_panel=PAPER,
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="What is pooled: {poolings}.", rich_help_panel=PAPER),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            parser=any_number("--temperature"),
            metavar="NUMBER",
            help="Spread of the weights, in standard deviations of the scores.",
            rich_help_panel=PAPER,
        ),
    ] = None,
    absolute_temperature: Annotated[
        float | None,
        typer.Option(
            parser=any_number("--absolute-temperature"),
            metavar="NUMBER",
            help="Spread of the weights, in units of the scores: the paper's tau.",
            rich_help_panel=PAPER,
        ),
    ] = None,
    nearest_share: Annotated[
        float | None,
        typer.Option(
            parser=any_number("--nearest-share"),
            metavar="SHARE",
            help="Without normals: share of the other images, the nearest ones, in a score.",
            rich_help_panel=PAPER,
        ),
    ] = None,
    among_peers: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="Without normals: a score is the mean, max or min over the other images.",
            rich_help_panel=PAPER,
            autocompletion=among("mean", "max", "min"),
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            parser=whole_number("--top-k"),
            metavar="N",
            help="Give weight to the N patches of an image with the highest scores only.",
            rich_help_panel=PAPER,
        ),
    ] = None,
    top_weights: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="With --top-k: soft weighs these patches by their scores, hard all the same.",
            rich_help_panel=PAPER,
            autocompletion=among("soft", "hard"),
        ),
    ] = None,
    distance: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What is grouped: embeddings, or a Hausdorff distance: max-min-max, max-min-mean, "
            "mean-min-max, mean-min-mean, min-min or mean-mean.",
            rich_help_panel=PAPER,
            autocompletion=among("embeddings", "max-min-max", "max-min-mean", "mean-min-max"),
        ),
    ] = None,
    clusterer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="ward, single, complete, average, kmeans, kmedoids, spectral or gmm.",
            rich_help_panel=PAPER,
            autocompletion=among(
                "ward", "single", "complete", "average", "kmeans", "kmedoids", "spectral", "gmm"
            ),
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            parser=whole_number("--seed"),
            metavar="N",
            help="Seed of every random choice.",
            rich_help_panel=SCRIPTS,
        ),
    ] = 0,
    browse: Open = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Group images by the kind of flaw they show. Saves a run with its report."""
    choices: dict[str, Any] = {
        "weights": weights,
        "pooling": pooling,
        "temperature": temperature,
        "absolute_temperature": absolute_temperature,
        "nearest_share": nearest_share,
        "among_peers": among_peers,
        "top_k": top_k,
        "top_weights": top_weights,
        "distance": None if distance is None else _distance(distance),
        "clusterer": clusterer,
        "n_peers": None if peers is None else number_or(peers, "all", "n_peers"),
        "exact": exact,
    }
    run_cluster(
        sources,
        normal or [],
        output,
        glob=glob,
        truth=truth,
        known={"labels_from": labels_from, "labels": labels, "examples": examples},
        overwrite=overwrite,
        browse=browse,
        quiet=quiet,
        as_json=as_json,
        parameters={
            "n_clusters": number_or(clusters, "auto", "n_clusters"),
            "method": _method(preset, choices),
            "backbone": backbone or _views(preset),
            "backbone_weights": backbone_weights,
            "device": device,
            "arithmetic": arithmetic,
            "max_memory": max_memory,
            "runner": runner,
            "address": address,
            "n_workers": workers,
            "parts": parts,
            "image_size": image_size,
            "view": _view(fit, roi, tile, max_pixels),
            "maps": maps,
            "cache": cache_folder(cache, no_cache),
            "random_state": seed,
        },
    )


def run_cluster(
    sources: list[str],
    normal: list[str],
    output: Path,
    *,
    glob: str | None = None,
    truth: Path | None = None,
    known: Mapping[str, Path | None] | None = None,
    overwrite: bool,
    browse: bool,
    quiet: bool,
    as_json: bool,
    parameters: dict[str, Any],
) -> None:
    """Group images, save the run and print a summary, for `flawsort cluster` and `flawsort demo`.
    known: as for `cluster_images`. parameters: those of AnomalyClusterer."""
    with console.showing_progress(quiet) as progress:
        run, evaluation = cluster_images(
            sources,
            normal,
            output,
            glob=glob,
            truth=truth,
            known=known,
            overwrite=overwrite,
            parameters={**parameters, "progress": progress, "notice": console.notice(quiet)},
        )
    from flawsort.cli.cluster_summary import show_clusters, summary
    from flawsort.labels.session import read_settled
    from flawsort.runs.folder import EDITS

    now = read_settled(output, run).settled if (output / EDITS).exists() else None
    if as_json:
        console.print_json(summary(run, output, evaluation, now))
    else:
        show_clusters(run, output, evaluation, now)
    if browse:
        import webbrowser

        webbrowser.open((output / "report.html").absolute().as_uri())


def cluster_images(
    sources: list[str],
    normal: list[str],
    output: Path,
    *,
    glob: str | None,
    truth: Path | None,
    known: Mapping[str, Path | None] | None = None,
    overwrite: bool,
    parameters: dict[str, Any],
) -> tuple[Run, dict[str, Any] | None]:
    """Find, embed, score and group images, and save a run with a report. known: what is known of
    the images already, as `Start.read` takes it."""
    from flawsort.estimator import AnomalyClusterer
    from flawsort.images.find import find_images
    from flawsort.labels.start import Start, may_replace
    from flawsort.outputs.report import render_report
    from flawsort.research.evaluate import EVALUATION
    from flawsort.research.truth import read_truth
    from flawsort.runs.folder import REPORT, prepared_output, save_run

    start = time.perf_counter()
    model = AnomalyClusterer(**parameters)
    given = known or {}
    carried = partial(
        may_replace,
        labels_from=given.get("labels_from"),
        known_here=any(given.get(name) for name in ("labels", "examples")),
    )
    with prepared_output(output, overwrite=overwrite, carried=carried):
        with model.within_memory():  # to know a large file, some formats read all of it
            images = find_images(sources, glob=glob)
            told = Start.read(images, **given)
            normals = find_images(normal, glob=glob) if normal else None
        labels = None if truth is None else read_truth(truth, images)
        found = time.perf_counter()
        model.fit(images, told, normal=normals)
        fitted = time.perf_counter()
        run = model.make_run()
        evaluation = None
        if labels is not None:
            evaluation = _evaluation(run, dict(zip(images.names, labels, strict=True)))
        extra = {REPORT: render_report(run, evaluation)}
        timings = run.manifest["timings"]
        timings["find"] = round(timings["find"] + found - start, 3)
        timings["report"] = round(
            time.perf_counter() - fitted, 3
        )  # includes the map and the thumbnails
        timings["total"] = round(
            time.perf_counter() - start, 3
        )  # everything except writing to disk
        if evaluation is not None:
            extra[EVALUATION] = json.dumps(evaluation, indent=2) + "\n"
        save_run(
            run,
            output,
            overwrite=overwrite,
            extra=extra,
            furnish=partial(model.write_groups, run),
            carried=carried,
            hold=partial(model.hold_edits, run),
            prepared=True,
        )
    model.discard_parts()
    return run, evaluation


def _evaluation(run: Run, truth: dict[str, str | None]) -> dict[str, Any] | None:
    """Compare a run with true labels, by image name. Adds a note to the run if none can be used."""
    from flawsort.research.evaluate import evaluate

    try:
        return evaluate(run, [truth[name] for name in run.names])
    except InputError as error:  # the run is still useful without an evaluation
        run.manifest["warnings"].append(f"Not evaluated: {error}")
        return None


def _method(preset: str, choices: dict[str, Any]) -> Method:
    """A preset, with the choices that the command line gives."""
    from flawsort.embeddings.method import PRESETS, poolings_of_any_weights

    if preset not in PRESETS:
        raise OptionError(
            f"must be one of {', '.join(PRESETS)}. Got '{preset}'.", parameter="preset"
        )
    given = {name: value for name, value in choices.items() if value is not None}
    if "absolute_temperature" in given and "temperature" not in given:
        given["temperature"] = None
    method, able = PRESETS[preset], poolings_of_any_weights()
    plain = given.get("weights") in ("uniform", "masks")
    if plain and "pooling" not in given and method.pooling not in able:
        given["pooling"] = able[0]
    if given.get("among_peers", "mean") != "mean" and "nearest_share" not in given:
        given["nearest_share"] = 1.0
    hard = given.get("top_weights") == "hard"
    for name in ("temperature", "absolute_temperature") if hard else ():
        if given.get(name) is not None:
            raise OptionError(
                "has no effect on hard weights, which are all the same. Leave one of the two out. "
                f"Got {given[name]:g}.",
                parameter=name,
            )
    return replace(method, **given)


def _distance(name: str) -> str:
    """The distance of that name. The paper writes a space in "max-min max", which a command line
    need not."""
    from flawsort.embeddings.method import DISTANCES

    by_name = {known.replace(" ", "-"): known for known in DISTANCES}
    return by_name.get(name, name)


def _views(preset: str) -> tuple[BackboneChoice, ...]:
    """The backbones of a preset."""
    from flawsort.embeddings.method import views_of

    return views_of(preset)


def _view(fit: str | None, roi: str | None, tile: str, max_pixels: int) -> View:
    """The view that the options choose. --fit alone asks for the whole image in one look."""
    from flawsort.images.view import View, parse_roi, parse_tiles

    region = None if roi is None else parse_roi(roi)
    mask = region if isinstance(region, Path) else None
    box = None if isinstance(region, Path) else region
    tiles = parse_tiles(tile)
    view = View(
        fit=fit or "stretch",  # type: ignore[arg-type]  # checked by View
        roi=box,
        mask=mask,
        tiles=(1, 1) if tiles is None and fit else tiles,
        max_pixels=max_pixels,
    )
    view.describe()  # reads the mask, to refuse a bad one before anything is computed
    return view
