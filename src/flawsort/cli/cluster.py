"""The command `flawsort cluster`: arguments to calls. Heavy imports happen inside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flawsort.cli import console
from flawsort.cli.options import (
    Arithmetic,
    Cache,
    Device,
    Glob,
    Json,
    NoCache,
    Quiet,
    Sources,
    any_number,
    cache_asked_for,
    whole_number,
)
from flawsort.core.errors import OptionError

if TYPE_CHECKING:
    from flawsort.embeddings.method import Method
    from flawsort.images.view import View
    from flawsort.runs.run import Run


def cluster(
    sources: Sources,
    normal: Annotated[
        list[str] | None,
        typer.Option(
            "--normal",
            "-n",
            metavar="IMAGES",
            help="Known-good images, named likewise; may be repeated.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="The run folder to write.")
    ] = Path("run"),
    clusters: Annotated[
        str,
        typer.Option(
            "--clusters", "-k", metavar="N", help="The number of groups, or auto for advice."
        ),
    ] = "auto",
    preset: Annotated[
        str, typer.Option(metavar="NAME", help="default, or paper for the choices of the paper.")
    ] = "default",
    glob: Glob = None,
    truth: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A labelled folder or CSV to compare the groups with."),
    ] = None,
    labels_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="A reviewed run: keep to what people said there, and to its names."
        ),
    ] = None,
    fit: Annotated[
        str,
        typer.Option(
            metavar="HOW", help="How other aspect ratios are fitted: stretch, pad or crop."
        ),
    ] = "stretch",
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
    max_pixels: Annotated[
        int,
        typer.Option(
            parser=whole_number("--max-pixels"),
            metavar="N",
            help="Set larger images aside, against decompression bombs.",
        ),
    ] = 200_000_000,
    backbone: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="A name from flawsort backbones, or the path of an ONNX file."
        ),
    ] = "efficientnet-lite2",
    backbone_weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Weights of a named network, .safetensors or .pth."),
    ] = None,
    device: Device = None,
    arithmetic: Arithmetic = None,
    runner: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="local, or ray to share the work out over a Ray cluster."
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Of the Ray cluster; one is started here if not said."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            parser=whole_number("--workers"),
            metavar="N",
            help="Workers of the Ray cluster; as many as fit if not said.",
        ),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="A folder or URL that all workers see, for what they finish."
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Stay within so much, like 4GB; streamed if need be."),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            parser=whole_number("--image-size"),
            metavar="PIXELS",
            help="Side of the backbone's input, a multiple of its step.",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="auto, or uniform: every patch counts the same."),
    ] = None,
    pooling: Annotated[
        str | None, typer.Option(metavar="HOW", help="What is pooled: {poolings}.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            parser=any_number("--temperature"),
            metavar="NUMBER",
            help="Focus of the weights, in standard deviations of the scores.",
        ),
    ] = None,
    absolute_temperature: Annotated[
        float | None,
        typer.Option(
            parser=any_number("--absolute-temperature"),
            metavar="NUMBER",
            help="The same in units of the scores: the paper's tau.",
        ),
    ] = None,
    nearest_share: Annotated[
        float | None,
        typer.Option(
            parser=any_number("--nearest-share"),
            metavar="SHARE",
            help="Share of the peers that a score is the mean over.",
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(metavar="N", help="Compare with a sample of so many images, or all."),
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option("--exact/--approximate", help="Search among normals; by size if not said."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            parser=whole_number("--seed"), metavar="N", help="Every random choice follows from it."
        ),
    ] = 0,
    cache: Cache = None,
    no_cache: NoCache = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is there already.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Group images by the kind of flaw they show, and save a run with its report."""
    from flawsort.embeddings.method import PRESETS

    if preset not in PRESETS:
        raise OptionError(f"--preset must be one of {', '.join(PRESETS)}. Got '{preset}'.")
    choices: dict[str, Any] = {
        "weights": weights,
        "pooling": pooling,
        "temperature": temperature,
        "absolute_temperature": absolute_temperature,
        "nearest_share": nearest_share,
        "n_peers": None if peers is None else _number_or(peers, "all", "--peers"),
        "exact": exact,
    }
    method = _with_choices(PRESETS[preset], choices)
    run_cluster(
        sources,
        normal or [],
        output,
        glob=glob,
        truth=truth,
        labels_from=labels_from,
        overwrite=overwrite,
        quiet=quiet,
        as_json=as_json,
        parameters={
            "n_clusters": _number_or(clusters, "auto", "--clusters"),
            "method": method,
            "backbone": backbone,
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
            "cache": cache_asked_for(cache, no_cache),
            "random_state": seed,
        },
    )


def run_cluster(
    sources: list[str],
    normal: list[str],
    output: Path,
    *,
    glob: str | None,
    truth: Path | None,
    labels_from: Path | None = None,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    parameters: dict[str, Any],
) -> None:
    """What `flawsort cluster` does, and `flawsort demo` after it. parameters: those of
    AnomalyClusterer."""
    from flawsort.cli.actions import cluster_images, show_clusters

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
    if as_json:
        console.print_json(_summary(run, output, evaluation))
    else:
        show_clusters(run, output, evaluation)


def _summary(run: Run, output: Path, evaluation: dict[str, Any] | None) -> dict[str, Any]:
    from flawsort.cli.actions import groups
    from flawsort.core.tables import as_rows

    kept = ("mode", "n_images", "n_normals", "clusters", "warnings", "set_aside", "timings")
    figures = None
    if evaluation is not None:
        figures = {name: evaluation[name] for name in ("nmi", "ari", "f1", "purity", "true_k")}
    return {
        "run": str(output),
        "report": str(output / "report.html"),
        **{key: run.manifest[key] for key in kept},
        "evaluation": figures,
        "groups": groups(run),
        "images": as_rows(run.table),
    }


def _number_or(text: str, word: str, option: str) -> Any:
    if text == word:
        return word
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"{option} must be {word} or a whole number. Got '{text}'.") from None


def _with_choices(method: Method, choices: dict[str, Any]) -> Method:
    """A preset with the choices made on the command line in its place."""
    from flawsort.embeddings.method import poolings_of_any_weights

    said = {name: value for name, value in choices.items() if value is not None}
    if "absolute_temperature" in said and "temperature" not in said:
        said["temperature"] = None
    able = poolings_of_any_weights()
    if said.get("weights") == "uniform" and "pooling" not in said and method.pooling not in able:
        said["pooling"] = able[0]
    return replace(method, **said)


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
    view.describe()  # reads the mask: a bad one is said before anything is computed
    return view
