"""The command line: arguments to calls, errors to exit codes. Heavy imports happen in commands."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flawsort import console
from flawsort._version import __version__
from flawsort.cli_paper import paper
from flawsort.errors import FlawsortError, OptionError

if TYPE_CHECKING:
    from flawsort.images import View
    from flawsort.presets import Method
    from flawsort.runs import Run

app = typer.Typer(
    name="flawsort",
    help="Sort images of products by the kind of flaw they show.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# What shells and parsers give a command that Ctrl-C ended.
INTERRUPTED = 130
KEPT = " Embedded images are kept: the same command goes on from there."

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
RunFolder = Annotated[Path, typer.Argument(help="The folder given to -o of flawsort cluster.")]


def main() -> None:
    """Run the command line. Errors of ours print one line and exit 2."""
    console.never_fail_on_odd_characters()
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        code = app(args=arguments, prog_name="flawsort", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):  # older parsers turn the one into the other
        code = INTERRUPTED
    except Exception as error:
        if debug:
            raise
        code = _report_error(error)
    if code == INTERRUPTED:
        kept = "" if "--no-cache" in arguments else KEPT
        console.fail(f"interrupted.{kept}")
    sys.exit(code if isinstance(code, int) else 0)


def _report_error(error: Exception) -> int:
    if isinstance(error, FlawsortError):
        console.fail(str(error))
    elif hasattr(error, "format_message"):  # the parser's own errors, whichever it stands on
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "flawsort"
        message = error.format_message()
        stop = "" if message.endswith((".", "?")) else "."
        console.fail(f"{message}{stop} Try '{command} --help'.")
    elif isinstance(error, BrokenPipeError):
        return 0  # the reader of a pipe has seen enough
    elif isinstance(error, OSError) and error.strerror:  # a full disk, say
        where = f"'{error.filename}': " if error.filename else ""
        console.fail(f"{where}{error.strerror}.")
    else:
        console.fail(
            f"unexpected {type(error).__name__}: {error}. This is a bug of flawsort; "
            "run again with --debug to see where."
        )
        return 1
    return 2


def _show_version(wanted: bool) -> None:
    if wanted:
        console.say(f"flawsort {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback with errors; goes anywhere.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@app.command()
def cluster(
    sources: Annotated[
        list[str], typer.Argument(help="Folders, image files, 'globs' or .txt lists of files.")
    ],
    normal: Annotated[
        list[str] | None,
        typer.Option("--normal", "-n", help="Known-good images, named likewise; may be repeated."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The run folder to write.")] = Path(
        "run"
    ),
    clusters: Annotated[
        str, typer.Option("--clusters", "-k", help="The number of groups, or auto for advice.")
    ] = "auto",
    preset: Annotated[
        str, typer.Option(help="default, or paper for the choices of the paper.")
    ] = "default",
    glob: Annotated[
        str | None, typer.Option(help="Only files of folders whose name matches, like '*.png'.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="A labelled folder or CSV to compare the groups with.")
    ] = None,
    fit: Annotated[
        str, typer.Option(help="How other aspect ratios are fitted: stretch, pad or crop.")
    ] = "stretch",
    roi: Annotated[
        str | None,
        typer.Option(help="Region of interest: left,top,right,bottom or a mask image."),
    ] = None,
    tile: Annotated[
        str, typer.Option(help="Cut large images into ROWSxCOLUMNS tiles, like 2x3.")
    ] = "1",
    max_pixels: Annotated[
        int, typer.Option(help="Set larger images aside, against decompression bombs.")
    ] = 200_000_000,
    backbone: Annotated[
        str, typer.Option(help="A name from flawsort backbones, or the path of an ONNX file.")
    ] = "efficientnet-lite2",
    backbone_weights: Annotated[
        Path | None, typer.Option(help="Weights of a named network, .safetensors or .pth.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Where patches are compared and networks run: cpu, cuda or cuda:N."),
    ] = None,
    arithmetic: Annotated[
        str | None,
        typer.Option(help="int8, float32, bfloat16, float16 or tf32; chosen by size if not said."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local, or ray to share the work out over a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster; one is started here if not said.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Workers of the Ray cluster; as many as fit if not said.")
    ] = None,
    parts: Annotated[
        str | None, typer.Option(help="A folder or URL that all workers see, for what they finish.")
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(help="Stay within so much, like 4GB; streamed if need be.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side of the backbone's input, a multiple of its step.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="auto, or uniform: every patch counts the same.")
    ] = None,
    pooling: Annotated[
        str | None, typer.Option(help="residual, or average as in the paper.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Focus of the weights, in standard deviations of the scores."),
    ] = None,
    absolute_temperature: Annotated[
        float | None, typer.Option(help="The same in units of the scores: the paper's tau.")
    ] = None,
    nearest_share: Annotated[
        float | None, typer.Option(help="Share of the peers that a score is the mean over.")
    ] = None,
    peers: Annotated[
        str | None, typer.Option(help="Compare with a sample of so many images, or all.")
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option("--exact/--approximate", help="Search among normals; by size if not said."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Every random choice follows from it.")] = 0,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for embedded images; the user's own if not said.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no embedded images.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is there already.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Group images by the kind of flaw they show, and save a run with its report."""
    from flawsort.presets import PRESETS

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
    _run_cluster(
        sources,
        normal or [],
        output,
        glob=glob,
        truth=truth,
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
            "engine": engine,
            "address": address,
            "n_workers": workers,
            "parts": parts,
            "image_size": image_size,
            "view": _view(fit, roi, tile, max_pixels),
            "cache": None if no_cache else (cache or "auto"),
            "random_state": seed,
        },
    )


@app.command()
def assign(
    sources: Annotated[
        list[str], typer.Argument(help="Folders, image files, 'globs' or .txt lists of files.")
    ],
    run: Annotated[Path, typer.Option("--run", "-r", help="The run whose groups to sort into.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a table: FILE.csv or FILE.parquet.")
    ] = None,
    glob: Annotated[
        str | None, typer.Option(help="Only files of folders whose name matches, like '*.png'.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for embedded images; the user's own if not said.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no embedded images.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Sort new images into the groups of a run; -1 is a kind not seen before."""
    from flawsort.commands import assign_images, check_table_path, show_assignment, write_table
    from flawsort.files import find_images

    check_table_path(output)
    images = find_images(sources, glob=glob)
    with console.showing_progress(quiet) as progress:
        result = assign_images(run, images, None if no_cache else (cache or "auto"), progress)
    if output is not None:
        write_table(result["images"], output)
    if as_json:
        console.print_json(result)
    else:
        show_assignment(result, output)


@app.command()
def evaluate(
    run: RunFolder,
    truth: Annotated[
        Path, typer.Option(help="A folder whose folder names are the labels, or a CSV of them.")
    ],
    as_json: Json = False,
) -> None:
    """Compare a run's groups with true labels, and add the result to its report."""
    from flawsort.commands import evaluate_run, show_evaluation

    result = evaluate_run(run, truth)
    if as_json:
        console.print_json(result)
    else:
        show_evaluation(result)


@app.command()
def report(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the page here instead.")
    ] = None,
    heatmaps: Annotated[
        Path | None, typer.Option(help="Also write a PNG with heat map for each image here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Render a run's report again, from the run alone."""
    from flawsort.commands import render_again

    written = render_again(run, output, heatmaps)
    if as_json:
        console.print_json(written)
    else:
        for what, where in written.items():
            console.say(f"{what}: {where}")


@app.command()
def backbones(as_json: Json = False) -> None:
    """List the embedded backbones, verified, and the networks that flawsort[torch] adds."""
    from flawsort.commands import list_backbones, show_backbones

    entries = list_backbones()
    if as_json:
        console.print_json(entries)
    else:
        show_backbones(entries)


app.command()(paper)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the images and the run.")
    ] = Path("flawsort-demo"),
    browse: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make sample images with planted flaws, group them, and write the report."""
    from flawsort.demo import make_demo_images

    if output.exists() and not output.is_dir():
        raise OptionError(f"The output '{output}' is a file. Name a folder with -o.")
    if output.exists() and any(output.iterdir()) and not (output / "truth.csv").exists():
        raise OptionError(
            f"The folder '{output}' holds other files. Name one that does not exist yet with -o."
        )
    parts, good = make_demo_images(output)
    _run_cluster(
        [str(parts)],
        [str(good)],
        output / "run",
        glob=None,
        truth=output / "truth.csv",
        overwrite=True,
        quiet=quiet,
        as_json=as_json,
        parameters={"cache": output / "cache"},
    )
    if browse:
        import webbrowser

        webbrowser.open((output / "run" / "report.html").absolute().as_uri())


def _run_cluster(
    sources: list[str],
    normal: list[str],
    output: Path,
    *,
    glob: str | None,
    truth: Path | None,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    parameters: dict[str, Any],
) -> None:
    from flawsort.commands import cluster_images, show_clusters

    with console.showing_progress(quiet) as progress:
        run, evaluation = cluster_images(
            sources,
            normal,
            output,
            glob=glob,
            truth=truth,
            overwrite=overwrite,
            parameters={**parameters, "progress": progress},
        )
    if as_json:
        console.print_json(_summary(run, output, evaluation))
    else:
        show_clusters(run, output, evaluation)


def _summary(run: Run, output: Path, evaluation: dict[str, Any] | None) -> dict[str, Any]:
    from flawsort.commands import groups

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
        "images": [
            dict(zip(run.table, row, strict=True)) for row in zip(*run.table.values(), strict=True)
        ],
    }


def _number_or(text: str, word: str, option: str) -> Any:
    if text == word:
        return word
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"{option} must be {word} or a whole number. Got '{text}'.") from None


def _with_choices(method: Method, choices: dict[str, Any]) -> Method:
    """A preset with what was said on the command line in its place."""
    said = {name: value for name, value in choices.items() if value is not None}
    if "absolute_temperature" in said and "temperature" not in said:
        said["temperature"] = None
    if said.get("weights") == "uniform" and "pooling" not in said:
        said["pooling"] = "average"
    return replace(method, **said)


def _view(fit: str, roi: str | None, tile: str, max_pixels: int) -> View:
    from flawsort.images import View, parse_roi, parse_tiles

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
