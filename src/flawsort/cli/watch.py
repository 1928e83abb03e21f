"""The command `flawsort watch`: sorts new images as they arrive in a folder, until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flawsort.cli import console
from flawsort.cli.options import Arithmetic, Device, Fetch, Glob, Quiet, among, any_number
from flawsort.core.errors import OptionError
from flawsort.core.text import pluralise

if TYPE_CHECKING:
    from flawsort.daily.sorter import Sorter
    from flawsort.daily.watch import Told, Wishes

SPANS = ("day", "week", "month", "folder")


def watch(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Folders where new images arrive.")
    ],
    run: Annotated[
        Path,
        typer.Option("--run", "-r", metavar="RUN", help="The run with the groups to sort into."),
    ],
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Add to a file: FILE.csv for images, FILE.jsonl for all events; both if repeated.",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="Count images by day, week, month or folder, or by a CSV of lots.",
            autocompletion=among(*SPANS),
        ),
    ] = "day",
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Keep the images in the run, a batch for each day, week, month, folder or lot; "
            "as --by if omitted.",
            autocompletion=among(*SPANS),
        ),
    ] = None,
    no_keep: Annotated[
        bool, typer.Option("--no-keep", help="Keep no images in the run for the review.")
    ] = False,
    on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EVENT",
            help="Pass on kind=NAME, 'verdict=not OK', rise, rise=NAME or 'set aside'; several if "
            "repeated.",
        ),
    ] = None,
    execute: Annotated[
        str | None,
        typer.Option("--exec", metavar="COMMAND", help="Run this, with the event on its input."),
    ] = None,
    post: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send the event to this address, as JSON."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Sort what is there, and end, as for cron.")
    ] = False,
    settle: Annotated[
        float,
        typer.Option(
            parser=any_number("--settle"),
            metavar="SECONDS",
            help="A file is complete if it stays the same for so long.",
        ),
    ] = 2.0,
    every: Annotated[
        float,
        typer.Option(
            parser=any_number("--every"), metavar="SECONDS", help="Pause between two looks."
        ),
    ] = 1.0,
    glob: Glob = None,
    device: Device = None,
    arithmetic: Arithmetic = None,
    fetch: Fetch = None,
    quiet: Quiet = False,
) -> None:
    """Sort new images as they arrive in a folder. They get the groups of a run. Ends with Ctrl-C,
    and goes on where it was when it is started again."""
    from flawsort.daily.delivery import Actions
    from flawsort.daily.events import Condition
    from flawsort.daily.incoming import Incoming
    from flawsort.daily.journal import Journal
    from flawsort.daily.sorter import Sorter
    from flawsort.daily.watch import Watch, Wishes

    _check_seconds(settle, every)
    wishes = Wishes(
        by=by,
        keep=_kept(by, keep, no_keep),
        outputs=tuple(output or ()),
        conditions=tuple(map(Condition.parse, on or ())),
        actions=Actions(execute, post),
        every=every,
    )
    where = {"device": device, "arithmetic": arithmetic}
    with (
        Sorter(run, where=where, fetch=fetch or [], hold_open=True) as sorter,
        Journal(run) as journal,
    ):
        incoming = Incoming(folders, journal.knows, glob=glob, settle=settle)
        told: list[Told] = []
        watching = Watch(
            sorter,
            journal,
            incoming,
            wishes,
            tell=told.append if once else lambda one: _tell(one, quiet),
            say=_say,
        )
        _greet(sorter, folders, wishes, once=once, quiet=quiet)
        if not once:
            watching.run()
        watching.run_once(settle)
        _conclude(told, run, journal.n_due, incoming.waiting)


def _kept(by: str, keep: str | None, no_keep: bool) -> str | None:
    if keep is not None and no_keep:
        raise OptionError(f"cannot be combined with --no-keep. Got '{keep}'.", parameter="keep")
    return None if no_keep else keep or by


def _check_seconds(settle: float, every: float) -> None:
    for value, parameter in ((settle, "settle"), (every, "every")):
        if not 0 <= value <= 86_400:
            raise OptionError(
                f"must be between 0 and 86400 seconds. Got {value:g}.", parameter=parameter
            )


def _greet(sorter: Sorter, folders: list[Path], wishes: Wishes, *, once: bool, quiet: bool) -> None:
    """Say what is watched, and what may be wrong with the conditions."""
    labelling = sorter.state.labelling
    for condition in wishes.conditions:
        if condition.unknown(labelling):
            _say(f"Note: no group of the run is called '{condition.value}' yet.")
        if condition.what == "verdict" and labelling.threshold is None:
            _say("Note: there are no verdicts until a threshold is chosen in the review.")
    if not once and not quiet:
        places = ", ".join(str(folder) for folder in folders)
        console.say(f"Watching {places} for {sorter.folder}. Stop with Ctrl-C.")
        sys.stdout.flush()


def _tell(told: Told, quiet: bool) -> None:
    """A line for each round, and one for each file that was set aside."""
    if not quiet:
        from datetime import datetime

        counts = ", ".join(f"{n} {title}" for title, n in told.counts.most_common())
        if told.n_images:
            images = pluralise(told.n_images, "image")
            console.say(f"{datetime.now():%Y-%m-%d %H:%M:%S} {images}: {counts}")
        for rise in told.rises:
            console.say(_more_frequent(rise))
        sys.stdout.flush()
    for entry in told.set_aside:
        _say(f"Set aside: {entry.name}: {entry.reason}")


def _more_frequent(rise: dict[str, object]) -> str:
    return (
        f"More frequent: {rise['group']} in {rise['period']}: {rise['count']} images, "
        f"{rise['expected']:.1f} expected."
    )


def _conclude(told: list[Told], run: Path, due: int, waiting: int) -> None:
    """Say what was sorted once."""
    from collections import Counter

    counts: Counter[str] = sum((one.counts for one in told), Counter())
    console.say(f"{pluralise(counts.total(), 'image')} sorted into the groups of {run}.")
    if counts:
        console.print_table("", ["group", "images"], counts.most_common())
    for rise in (rise for one in told for rise in one.rises):
        console.say(_more_frequent(rise))
    for entry in (entry for one in told for entry in one.set_aside):
        console.say(f"Set aside: {entry.name}: {entry.reason}")
    if waiting:
        console.say(f"Left for the next time: {pluralise(waiting, 'file')} that still changed.")
    if due:
        console.say(f"Not passed on yet: {pluralise(due, 'event')}. The next time tries again.")


def _say(text: str) -> None:
    say = console.notice(quiet=False)
    assert say is not None
    say(text)
