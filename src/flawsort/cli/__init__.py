"""The command line: turns arguments into calls and errors into exit codes.

Each command imports heavy modules when it runs, so that `--help` stays fast.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from flawsort._version import __version__
from flawsort.cli import (
    assign,
    backbones,
    cache,
    cluster,
    config,
    console,
    demo,
    doctor,
    evaluate,
    export,
    paper,
    report,
    review,
    serve,
    watch,
)
from flawsort.cli.options import PlainCommand
from flawsort.core.errors import FlawsortError

app = typer.Typer(
    name="flawsort",
    help="Sort images of products by the kind of flaw they show.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    cluster.cluster,
    assign.assign,
    watch.watch,
    serve.serve,
    review.review,
    export.export,
    evaluate.evaluate,
    report.report,
    backbones.backbones,
    paper.paper,
    demo.demo,
    config.config,
    cache.cache,
    doctor.doctor,
):
    app.command(cls=PlainCommand)(command)

# Options for all commands, which may stand after the command, too.
ANYWHERE = ("--debug", "--no-config")
# The exit code that shells expect after Ctrl-C.
INTERRUPTED = 130
KEPT = " Finished images are in the cache; run the same command again to continue."
# What an interrupted command leaves behind. Commands that are not listed leave nothing.
LEFT = {
    "cluster": KEPT,
    "assign": KEPT,
    "demo": KEPT,
    "watch": " The same command goes on where it was.",
    "paper": " Finished results are kept; run the same command again to continue.",
    "review": " Every edit was saved when it was made.",
}


def main() -> None:
    """Run the command line. A FlawsortError prints one line and exits with code 2."""
    console.replace_closed_streams()
    console.never_fail_on_odd_characters()
    arguments = [word for word in sys.argv[1:] if word not in ANYWHERE]
    debug = "--debug" in sys.argv
    alone = ["--no-config"] if "--no-config" in sys.argv else []
    try:
        code = app(args=[*alone, *arguments], prog_name="flawsort", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):  # older versions of the parser convert the first
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
        console.fail(str(error))
    elif hasattr(error, "format_message"):  # an error of the parser, typer's or click's
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "flawsort"
        message = error.format_message()
        stop = "" if message.endswith((".", "?")) else "."
        console.fail(f"{message}{stop} Try '{command} --help'.")
    elif isinstance(error, BrokenPipeError):
        return 0  # the reader closed the pipe, as `head` does
    elif isinstance(error, OSError) and error.strerror:  # such as a full disk
        where = f"'{error.filename}': " if error.filename else ""
        console.fail(f"{where}{error.strerror}.")
    else:
        where = "see the traceback above" if debug else "run again with --debug for a traceback"
        console.fail(
            f"unexpected {type(error).__name__}: {error}. This is a bug in flawsort; {where}."
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
        bool, typer.Option("--debug", help="Show the traceback of an error; for any command.")
    ] = False,
    no_config: Annotated[
        bool,
        typer.Option(
            "--no-config", help="Do not use the options in flawsort.toml; for any command."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")
