"""All commands that write, each with what is there before, to be killed by `killing`."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flawsort import RunError, open_run
from flawsort.core.storage import write_whole
from flawsort.labels.session import Session
from flawsort.labels.store import EditStore
from flawsort.outputs.exports import FORMATS
from flawsort.review.download import export_zip
from flawsort.runs.assigned import kept_names, open_kept
from flawsort.runs.folder import EDITS, read_text
from helpers.killing import Command, Things
from helpers.paper_sets import make_mvtec
from helpers.plates import SIDE, contents, fingerprint, write_plates

Act = Callable[[Path], int]
KINDS = ("dent",) * 3 + ("streak",) * 3
CLUSTER = (
    "cluster", "parts", "-n", "good", "-k", "2", "--preset", "fast", "--image-size", str(SIDE),
    "--cache", "cache", "-q",
)  # fmt: skip
# What people do in the review, one after the other.
EDITS_MADE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("name", {"group": 0, "name": "dent"}),
    ("role", {"group": 0, "role": "flaw"}),
    ("move", {"images": [1], "to": 1}),
    ("accept", {"images": [0, 2]}),
)
PAPER = (
    "paper", "--data", "sets", "-t", "main", "--only", "bottle", "--backbone", "efficientnet-lite2",
    "--image-size", "64", "--device", "cpu", "-o", "results", "-q",
)  # fmt: skip
_ASSIGN = ("assign", "new", "--run", "run", "--by", "folder", "--no-cache", "-q")
# Prints a page as quickly as no browser does: as it is.
BROWSER = """#!/bin/sh
for word; do case "$word" in --print-to-pdf=*) printed="${word#--print-to-pdf=}";; esac; done
cat "${word#file://}" > "$printed"
"""


def all_commands() -> dict[str, Command]:
    found = [
        Command("cluster", _images, _cluster(), _whole_run, once=True),
        Command("cluster of many images", _images, _stream, _whole_run, once=True),
        Command(
            "cluster --labels-from --overwrite",
            partial(_run, edits=4),
            _cluster("--labels-from", "run", "--overwrite", "--seed", "1"),
            _edited_run,
            once=True,
        ),
        Command("evaluate", partial(_run, edits=4), _evaluate, _texts_of_run),
        Command("report", _reported, _main("report", "run"), _texts_of_run),
        *_tables_and_pages(),
        *_new_images(),
        Command("export of the review", partial(_run, edits=4), _download, _downloaded),
        Command("edits of the review", _run, _edit, _log, wrong=_lost_edits),
        *(_export(name, replace) for name in FORMATS for replace in (False, True)),
        Command(
            "cache --prune",
            _run,
            _main("cache", "--prune", "--limit", "0", "--cache", "cache"),
            partial(_files, "cache"),
        ),
        Command("demo", _nothing, _demo, _made_demo),
        Command("paper", _paper_set, _main(*PAPER), _paper_table),
    ]
    return {command.name: command for command in found}


def _tables_and_pages() -> list[Command]:
    browser = ("--browser", "./browser.sh")
    acts: dict[str, tuple[str, ...]] = {
        "assign -o table.csv": (*_ASSIGN, "-o", "out/table.csv"),
        "assign -o table.parquet": (*_ASSIGN, "-o", "out/table.parquet"),
        "report -o": ("report", "run", "-o", "out/page.html"),
        "report --pdf": ("report", "run", "-o", "out/page.html", "--pdf", "out/a.pdf", *browser),
        "report --heatmaps": ("report", "run", "-o", "out/page.html", "--heatmaps", "out/maps"),
    }
    return [
        Command(name, _with_old_outputs, _main(*words), partial(_files, "out"))
        for name, words in acts.items()
    ]


def _new_images() -> list[Command]:
    keep = _main(*_ASSIGN, "--keep", "monday")
    return [
        Command("assign --keep", _arrived, keep, _kept, once=True),
        Command("watch", _arrived, _watch, _watched, wrong=_twice_or_strange),
        Command("watch again", _arrived_again, _watch, _watched, wrong=_twice_or_strange),
    ]


# ---- what is there before ----


def _nothing(here: Path) -> None:
    """Of an empty folder, nothing."""


def _images(here: Path) -> None:
    write_plates(here / "parts", KINDS)
    write_plates(here / "good", ("good",) * 4)


def _run(here: Path, *, edits: int = 0) -> None:
    _images(here)
    _done(_cluster()(here))
    _say(here, EDITS_MADE[:edits])
    rows = [f"{kind}{number:02d}.png,{kind}" for number, kind in enumerate(KINDS)]
    (here / "truth.csv").write_text("\n".join(["path,label", *rows, ""]))


def _say(here: Path, edits: Sequence[tuple[str, dict[str, Any]]]) -> None:
    with Session(here / "run") as session:
        for kind, payload in edits:
            session.edit(kind, payload, session.version)


def _reported(here: Path) -> None:
    """A run whose report does not know what people said."""
    _run(here)
    _done(_evaluate(here))
    _say(here, EDITS_MADE)


def _arrived(here: Path) -> None:
    _run(here, edits=4)
    write_plates(here / "new", ("dent", "streak", "ring", "ring", "dent"))
    (here / "new" / "none.png").write_text("no image")
    (here / "out").mkdir()
    shutil.rmtree(here / "cache")


def _arrived_again(here: Path) -> None:
    """Some images are sorted already, and others have come."""
    _arrived(here)
    _done(_watch(here))
    for number, kind in enumerate(("streak", "dent")):
        write_plates(here / "more", (kind,) * (number + 1))
        for path in (here / "more").iterdir():
            path.rename(here / "new" / f"more-{path.name}")
        (here / "more").rmdir()


def _with_old_outputs(here: Path) -> None:
    _arrived(here)
    for name in ("table.csv", "table.parquet", "page.html", "a.pdf"):
        (here / "out" / name).write_text("old")
    (here / "browser.sh").write_text(BROWSER)
    (here / "browser.sh").chmod(0o755)


def _paper_set(here: Path) -> None:
    make_mvtec(here / "sets", ("bottle",))


# ---- commands ----


def _main(*words: str) -> Act:
    """The command line, in this process."""

    def act(here: Path) -> int:
        from flawsort.cli import main

        sys.argv = ["flawsort", *words]
        os.environ["FLAWSORT_CHROMIUM"] = str(here / "browser.sh")
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    return act


def _cluster(*more: str) -> Act:
    return _main(*CLUSTER, "-o", "run", *more)


def _stream(here: Path) -> int:
    """In batches of two images, each of which is stored when it is finished."""
    from flawsort import AnomalyClusterer
    from flawsort.fitting.memory import Sizes

    AnomalyClusterer.sizes = Sizes(batch_images=2, in_memory=1)
    return _cluster()(here)


def _evaluate(here: Path) -> int:
    return _main("evaluate", "run", "--truth", "truth.csv")(here)


def _watch(here: Path) -> int:
    """In rounds of two files. What is passed on is noted by a program."""
    from flawsort.daily import watch

    watch.ROUND = 2
    return _main(
        "watch", "new", "--run", "run", "--once", "--settle", "0", "--by", "folder", "-q",
        "-o", "out/table.csv", "-o", "out/events.jsonl",
        "--on", "set aside", "--on", "kind=dent", "--exec", "sh -c '(cat; echo) >> out/told'",
    )(here)  # fmt: skip


def _edit(here: Path) -> int:
    """The edits that are still to be made. What was acknowledged is noted."""
    with Session(here / "run") as session:
        _note(here, session)
        while session.version < len(EDITS_MADE) + 2:
            if session.version < len(EDITS_MADE):
                session.edit(*EDITS_MADE[session.version], session.version)
            elif session.version == len(EDITS_MADE):
                session.undo(session.version)
            else:
                session.redo(session.version)
            _note(here, session)
    return 0


def _download(here: Path) -> int:
    """What the review sends; the browser then has a file."""
    (here / "temporary").mkdir(exist_ok=True)
    tempfile.tempdir = str(here / "temporary")
    with Session(here / "run") as session:
        content = b"".join(export_zip(session.run, session.state, "folders"))
    write_whole(here / "sent.zip", content)
    return 0


def _note(here: Path, session: Session) -> None:
    (here / "acknowledged").write_text(str(session.version))


def _demo(here: Path) -> int:
    from flawsort.cli import sample_images

    make = sample_images.make_demo_images
    few = {"good": 2, "scratch": 3, "missing hole": 3}
    sample_images.make_demo_images = partial(make, kinds=few, n_good=3)
    return _main("demo", "-o", "demo", "-q")(here)


def _export(name: str, replace: bool) -> Command:
    output = f"export{FORMATS[name].suffix}"
    words = ("export", "run", "-f", name, "-o", output)

    def prepare(here: Path) -> None:
        _run(here, edits=2)
        (here / "browser.sh").write_text(BROWSER)
        (here / "browser.sh").chmod(0o755)
        if replace:
            _done(_main(*words)(here))
            _say(here, [("name", {"group": 0, "name": "another name"})])

    def read(here: Path) -> Things:
        place = here / output
        return {"export": _hash(place.read_bytes()) if place.is_file() else _hashes(place)}

    more = ("--overwrite",) if replace else ()
    title = f"export {name}{' --overwrite' if replace else ''}"
    return Command(title, prepare, _main(*words, *more), read, once=not replace)


# ---- what a user finds ----


def _whole_run(here: Path) -> Things:
    return {"run": _run_in(here / "run")}


def _edited_run(here: Path) -> Things:
    """The run and what people said belong together."""
    return {"run": [_run_in(here / "run"), _entries(here / "run")]}


def _texts_of_run(here: Path) -> Things:
    """The files of a report belong together."""
    texts = [read_text(here / "run", name) for name in ("evaluation.json", "report.html")]
    return {"texts": [None if one is None else _hash(one.encode()) for one in texts]}


def _run_in(folder: Path) -> dict[str, str] | None:
    try:
        run = open_run(folder)
    except RunError as error:
        if not str(error).startswith("No run folder at"):
            raise
        return None
    assert read_text(folder, "report.html")
    # How long it took is another thing each time.
    described = {key: value for key, value in run.manifest.items() if key != "timings"}
    return fingerprint(dataclasses.replace(run, manifest=described))


def _entries(folder: Path) -> list[Any]:
    if not folder.is_dir():
        return []
    with EditStore(folder / EDITS) as store:
        return [[one.seq, one.edit.kind, one.edit.payload] for one in store.log()]


def _files(folder: str, here: Path) -> Things:
    return _hashes(here / folder)


def _kept(here: Path) -> Things:
    tables = {name: open_kept(here / "run", name).table for name in kept_names(here / "run")}
    return {name: _hash(repr(table).encode()) for name, table in tables.items()}


def _made_demo(here: Path) -> Things:
    files = {name: _hash(one) for name, one in contents(here / "demo").items()}
    shown = {name: one for name, one in files.items() if name.split("/")[0] in ("parts", "good")}
    return {**shown, "truth.csv": files.get("truth.csv"), "run": _run_in(here / "demo" / "run")}


def _paper_table(here: Path) -> Things:
    """Each file of the table, and each of the results from which the command goes on."""
    return _hashes(here / "results")


def _downloaded(here: Path) -> Things:
    place = here / "sent.zip"
    return {"sent": _hash(place.read_bytes()) if place.exists() else None}


def _watched(here: Path) -> Things:
    """How often each image is where: in the table, among the events, in the run, and passed on."""
    table, events, told = (here / "out" / name for name in ("table.csv", "events.jsonl", "told"))
    kept = [open_kept(here / "run", name).table["name"] for name in kept_names(here / "run")]
    named = {
        "table": [row["name"] for row in _rows(table)],
        "events": [json.loads(line)["name"] for line in _lines(events)],
        "kept": [name for names in kept for name in names],
        # At least once, so how often does not count.
        "told": {json.loads(line)["name"] for line in _lines(told)},
    }
    return {name: dict(Counter(names)) for name, names in named.items()}


def _twice_or_strange(old: Things, new: Things, found: Things) -> list[str]:
    """What is there already stays, and nothing is there twice."""
    return [
        name
        for name, counts in found.items()
        if max(counts.values(), default=0) > 1
        or not old[name].keys() <= counts.keys() <= new[name].keys()
    ]


def _log(here: Path) -> Things:
    noted = here / "acknowledged"
    return {
        "log": _entries(here / "run"),
        "acknowledged": int(noted.read_text() or 0) if noted.exists() else 0,
    }


def _lost_edits(old: Things, new: Things, found: Things) -> list[str]:
    n = len(found["log"])
    right = found["log"] == new["log"][:n] and n >= found["acknowledged"]
    return [] if right else ["the log"]


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def _hashes(folder: Path) -> dict[str, str]:
    """Of all files but hidden ones, by their names."""
    found = contents(folder)
    return {name: _hash(one) for name, one in found.items() if "/." not in f"/{name}"}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _done(code: int) -> None:
    assert code == 0, code
