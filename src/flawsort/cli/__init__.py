"""The command line: arguments to calls, errors to exit codes. Heavy imports happen in commands."""

from __future__ import annotations

import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flawsort._version import __version__
from flawsort.cli import console
from flawsort.cli.cluster import cluster, run_cluster
from flawsort.cli.options import (
    Arithmetic,
    Cache,
    Device,
    Glob,
    Json,
    NoCache,
    PlainCommand,
    Quiet,
    RunFolder,
    Sources,
    cache_asked_for,
    with_options,
)
from flawsort.cli.paper import paper
from flawsort.cli.review import export, review
from flawsort.core.errors import FlawsortError

app = typer.Typer(
    name="flawsort",
    help="Sort images of products by the kind of flaw they show.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
command = partial(app.command, cls=PlainCommand)

# What shells and parsers give a command that Ctrl-C ended.
INTERRUPTED = 130
KEPT = " Embedded images are kept: the same command goes on from there."
# What interrupted commands leave behind; the others leave nothing.
LEFT = {
    "cluster": KEPT,
    "assign": KEPT,
    "demo": KEPT,
    "paper": " What was computed is kept: the same command goes on from there.",
    "review": " Every edit was saved when it was made.",
}


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
            traceback.print_exception(error)
        code = _report_error(error, debug)
    if code == INTERRUPTED:
        console.fail(f"interrupted.{_what_stays(arguments)}")
    sys.exit(code if isinstance(code, int) else 0)


def _what_stays(arguments: list[str]) -> str:
    """What an interrupted command leaves behind."""
    return "" if "--no-cache" in arguments else LEFT.get(arguments[0] if arguments else "", "")


def _report_error(error: Exception, debug: bool) -> int:
    if isinstance(error, FlawsortError):
        console.fail(with_options(str(error)))
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
        where = "it happened as shown above" if debug else "run again with --debug to see where"
        console.fail(
            f"unexpected {type(error).__name__}: {error}. This is a bug of flawsort; {where}."
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
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback with errors; goes anywhere.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


command()(cluster)


@command()
def assign(
    sources: Sources,
    run: Annotated[
        Path,
        typer.Option("--run", "-r", metavar="RUN", help="The run whose groups to sort into."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a table: FILE.csv or FILE.parquet."
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Keep them in the run under this name, for the review."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="WHAT", help="Count them by day, week, month or folder, or by a CSV of lots."
        ),
    ] = "day",
    glob: Glob = None,
    device: Device = None,
    arithmetic: Arithmetic = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Sort new images into the groups of a run; -1 is a kind not seen before."""
    from flawsort.cli.assign_actions import assign_images, check_table_path, show_assignment

    check_table_path(output)
    with console.showing_progress(quiet) as progress:
        result = assign_images(
            run,
            sources,
            glob=glob,
            device=device,
            arithmetic=arithmetic,
            cache=cache_asked_for(cache, no_cache),
            progress=progress,
            output=output,
            keep_as=keep,
            by=by,
        )
    if as_json:
        console.print_json(result)
    else:
        show_assignment(result, output)


command()(review)
command()(export)


@command()
def evaluate(
    run: RunFolder,
    truth: Annotated[
        Path,
        typer.Option(
            metavar="PATH", help="A folder whose folder names are the labels, or a CSV of them."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Compare a run's groups with true labels, and add the result to its report."""
    from flawsort.cli.evaluate_actions import evaluate_run, show_evaluation

    result = evaluate_run(run, truth)
    if as_json:
        console.print_json(result)
    else:
        show_evaluation(result)


@command()
def report(
    run: RunFolder,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the page here instead."),
    ] = None,
    heatmaps: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also write a PNG with heat map for each image here."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Render a run's report again, from the run alone."""
    from flawsort.cli.actions import render_again

    written = render_again(run, output, heatmaps)
    if as_json:
        console.print_json(written)
    else:
        for what, where in written.items():
            console.say(f"{what.capitalize()}: {where}")


@command()
def backbones(as_json: Json = False) -> None:
    """List the embedded backbones, verified, and the networks that flawsort[torch] adds."""
    from flawsort.cli.actions import list_backbones, show_backbones

    entries = list_backbones()
    if as_json:
        console.print_json(entries)
    else:
        show_backbones(entries)


command()(paper)


@command()
def demo(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the images and the run."),
    ] = Path("flawsort-demo"),
    browse: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make sample images with planted flaws, group them, and write the report."""
    from flawsort.cli.sample_images import check_demo_folder, make_demo_images

    check_demo_folder(output)
    with console.showing_progress(quiet) as progress:
        parts, good = make_demo_images(output, progress=progress)
    run_cluster(
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
