"""The command `flawsort cluster`: groups images, and saves a run with its report."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flawsort.cli import console
from flawsort.cli.options import (
    COMPARING,
    IMAGES,
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
            metavar="NAME", help="default, fast (one small network) or paper (the paper's method)."
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
        typer.Option(metavar="TILES", help="Cut large images into ROWSxCOLUMNS tiles, like 2x3."),
    ] = "1",
    device: Device = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing run.")
    ] = False,
    glob: Glob = None,
    fit: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How to fit images of another aspect ratio: stretch, pad or crop.",
            rich_help_panel=IMAGES,
        ),
    ] = "stretch",
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
            help="With normals: search exactly or approximately; chosen by size if omitted.",
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
            help="Weights of the patches: auto, or uniform for equal weights.",
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
        "n_peers": None if peers is None else number_or(peers, "all", "n_peers"),
        "exact": exact,
    }
    run_cluster(
        sources,
        normal or [],
        output,
        glob=glob,
        truth=truth,
        labels_from=labels_from,
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
    labels_from: Path | None = None,
    overwrite: bool,
    browse: bool,
    quiet: bool,
    as_json: bool,
    parameters: dict[str, Any],
) -> None:
    """Group images, save the run and print a summary, for `flawsort cluster` and `flawsort demo`.
    parameters: those of AnomalyClusterer."""
    with console.showing_progress(quiet) as progress:
        run, evaluation = cluster_images(
            sources,
            normal,
            output,
            glob=glob,
            truth=truth,
            labels_from=labels_from,
            overwrite=overwrite,
            parameters={**parameters, "progress": progress},
        )
    from flawsort.cli.cluster_summary import show_clusters, summary

    if as_json:
        console.print_json(summary(run, output, evaluation))
    else:
        show_clusters(run, output, evaluation)
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
    labels_from: Path | None = None,
    overwrite: bool,
    parameters: dict[str, Any],
) -> tuple[Run, dict[str, Any] | None]:
    """Find, embed, score and group images, and save a run with a report. labels_from: a run whose
    edits the new groups respect and take over."""
    from flawsort.estimator import AnomalyClusterer
    from flawsort.images.find import find_images
    from flawsort.labels.carry_over import Earlier
    from flawsort.outputs.report import render_report
    from flawsort.research.evaluate import EVALUATION
    from flawsort.research.truth import read_truth
    from flawsort.runs.convert import make_run
    from flawsort.runs.folder import REPORT, prepare_output, save_run

    start = time.perf_counter()
    model = AnomalyClusterer(**parameters)
    earlier = None if labels_from is None else Earlier.of(labels_from)
    carried = labels_from is not None and labels_from.resolve() == output.resolve()
    prepare_output(output, overwrite=overwrite, carried=carried)
    images = find_images(sources, glob=glob)
    normals = find_images(normal, glob=glob) if normal else None
    labels = None if truth is None else read_truth(truth, images)
    found = time.perf_counter()
    model.fit(
        images, normal=normals, known_groups=None if earlier is None else earlier.confirmed_groups
    )
    fitted = time.perf_counter()
    run = make_run(model.fitted_)
    if earlier is not None:
        run.manifest["warnings"].append(earlier.note(model.images_))
    evaluation = None
    if labels is not None:
        evaluation = _evaluation(run, dict(zip(images.names, labels, strict=True)))
    extra = {REPORT: render_report(run, evaluation)}
    timings = run.manifest["timings"]
    timings["find"] = round(timings["find"] + found - start, 3)
    timings["report"] = round(
        time.perf_counter() - fitted, 3
    )  # includes the map and the thumbnails
    timings["total"] = round(time.perf_counter() - start, 3)  # everything except writing to disk
    if evaluation is not None:
        extra[EVALUATION] = json.dumps(evaluation, indent=2) + "\n"
    furnish = None if earlier is None else partial(earlier.write, run)
    save_run(run, output, overwrite=overwrite, extra=extra, furnish=furnish, carried=carried)
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
    if given.get("weights") == "uniform" and "pooling" not in given and method.pooling not in able:
        given["pooling"] = able[0]
    return replace(method, **given)


def _views(preset: str) -> tuple[BackboneChoice, ...]:
    """The backbones of a preset."""
    from flawsort.embeddings.method import views_of

    return views_of(preset)


def _view(fit: str, roi: str | None, tile: str, max_pixels: int) -> View:
    from flawsort.images.view import View, parse_roi, parse_tiles

    region = None if roi is None else parse_roi(roi)
    mask = region if isinstance(region, Path) else None
    box = None if isinstance(region, Path) else region
    view = View(
        fit=fit,  # type: ignore[arg-type]  # checked by View
        roi=box,
        mask=mask,
        tiles=parse_tiles(tile),
        max_pixels=max_pixels,
    )
    view.describe()  # reads the mask, to refuse a bad one before anything is computed
    return view
