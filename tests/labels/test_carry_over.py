"""What people said of a run, taken over by the next one: groups, numbers, names and examples."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort import AnomalyClusterer, OptionError, open_run
from flawsort.labels.beginning import Clustered, begin
from flawsort.labels.carry_over import Earlier
from flawsort.labels.session import Session, read_labelling, read_settled
from flawsort.labels.suggestions import TeachingSpace
from flawsort.runs.folder import EDITS
from flawsort.runs.run import Run
from helpers.plates import Cli, plate

SMALL = ("--image-size", "64", "-q", "--no-cache")


@pytest.fixture
def here(plates: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """parts/, good/ and a run/ of 7 dents and 7 streaks, in which one streak was said to be a dent,
    both groups were named, and the dents accepted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").symlink_to(plates / "parts")
    (tmp_path / "good").symlink_to(plates / "good")
    shutil.copytree(saved, tmp_path / "run")
    with Session(tmp_path / "run") as session:
        dents, streaks = (group_of(session.run, kind) for kind in ("dent00", "streak07"))
        rows = {name: row for row, name in enumerate(session.run.table["name"])}
        session.edit("name", {"group": dents, "name": "dents"}, 0)
        session.edit("name", {"group": streaks, "name": "long <streaks>"}, 1)
        session.edit("accept", {"group": dents}, 2)
        session.edit("move", {"images": [rows["streak09.png"]], "to": dents}, 3)
        session.edit("several", {"images": [rows["dent00.png"]], "groups": [streaks]}, 4)
        session.edit("move", {"images": [rows["streak08.png"]], "to": "unsure"}, 5)
    return tmp_path


def group_of(run: Run, start: str) -> int:
    row = next(row for row, name in enumerate(run.table["name"]) if name.startswith(start))
    return int(run.table["cluster"][row])


def titles(folder: Path) -> dict[str, str]:
    run = open_run(folder)
    labelling = read_settled(folder, run).settled
    names = run.table["name"]
    return {
        name.rpartition("/")[2]: labelling.groups[int(group)].title
        for name, group in zip(names, labelling.labels, strict=True)
    }


def test_decided_groups(here: Path) -> None:
    earlier = Earlier.of(here / "run")
    run = open_run(here / "run")
    dents = group_of(run, "dent")
    said = {
        run.table["name"][earlier.digests.index(digest)]: g
        for digest, g in earlier.decided_groups.items()
    }
    confirmed = {name for name in run.table["name"] if name.startswith("dent")} | {"streak09.png"}
    assert said == dict.fromkeys(confirmed, dents)


def test_severities_and_notes_come_along(here: Path) -> None:
    """Whatever the files are called now, in which order, and which images are gone."""
    with Session(here / "run") as session:
        row = session.run.table["name"].index("streak09.png")
        session.edit("severity", {"group": 0, "severity": "major"}, session.version)
        session.edit("note", {"group": 0, "note": "=left side"}, session.version)
        session.edit("note", {"image": row, "note": "deep"}, session.version)
        run, digest = session.run, session.run.table["sha256"][row]
    images = run.images.take(range(len(run))[::-1][: len(run) - 1])
    known = Earlier.of(here / "run").known(images)
    assert (known.groups[0].severity, known.groups[0].note) == ("major", "=left side")
    assert known.notes == {digest: "deep"}
    order = np.arange(len(run))[::-1]
    space = TeachingSpace.of(run)
    found = Clustered(
        [run.table["sha256"][row] for row in order],
        run.labels[order],
        replace(space, coordinates=space.coordinates[order]),
    )
    begun = begin(known, found)
    assert begun.labelling.notes == {len(run) - 1 - row: "deep"}
    assert begun.labelling.groups[0].severity == "major"


def kind_of(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".png").rstrip("0123456789")


def test_more_images_never_fall_apart(here: Path, cli: Cli) -> None:
    """However many clusters there are, reviewed kinds stay whole and good images stay good."""
    kinds = ("dent", "streak", "good", "ring")
    for folder, first in (("old", 30), ("new", 50)):
        (here / folder).mkdir()
        for number, kind in enumerate(kinds * 5, start=first):
            Image.fromarray(plate(kind, number)).save(here / folder / f"{kind}{number}.png")
    assert cli("cluster", "old", "-n", "good", "-o", "one", *SMALL).code == 0
    with Session(here / "one") as session:
        for kind in kinds:
            rows = [row for row, name in enumerate(session.run.names) if kind_of(name) == kind]
            to = {"to": "normal"} if kind == "good" else {"to": "new", "name": kind}
            session.edit("move", {"images": rows, **to}, session.version)
    line = ("cluster", "old", "new", "-n", "good", "-k", "13", "--labels-from", "one")
    answer = cli(*line, "-o", "two", *SMALL)
    assert answer.code == 0, answer.err
    assert open_run(here / "two").n_clusters == 13
    found = {(kind_of(name), title) for name, title in titles(here / "two").items()}
    assert found == {("good", "normal"), *((kind, kind) for kind in kinds if kind != "good")}
    assert len(read_labelling(here / "two").groups) == 4


def test_again_with_more_images(here: Path, cli: Cli) -> None:
    (here / "more").mkdir()
    for number, kind in enumerate(["good", "dent", "streak"] * 2, start=20):
        Image.fromarray(plate(kind, number)).save(here / "more" / f"{kind}{number}.png")
    answer = cli(
        "cluster", "parts", "more", "-n", "good", "-k", "3", "--labels-from", "run", "-o", "run2",
        *SMALL,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "Note: From run: 2 names and 8 decided images.\n" in answer.out
    assert "From run: 2 names" in (here / "run2" / "report.html").read_text("utf-8")
    found = titles(here / "run2")
    assert len(found) == 20
    before = read_labelling(here / "run")
    after = read_labelling(here / "run2")
    dents = [group.id for group in before.groups.values() if group.name == "dents"]
    assert [group.id for group in after.groups.values() if group.name == "dents"] == dents
    old = {name: title for name, title in found.items() if name in titles(here / "run")}
    for name in ("dent00.png", "dent03.png", "streak09.png"):
        assert old[name] == "dents"
    assert old["streak07.png"] == old["streak13.png"] == "long <streaks>"
    run = open_run(here / "run2")
    rows = {name.rpartition("/")[2]: row for row, name in enumerate(run.table["name"])}
    assert after.confirmed[rows["streak09.png"]]
    assert not after.confirmed[rows["streak07.png"]]
    with Session(here / "run") as one, Session(here / "run2") as other:
        assert one.labels_spent == other.labels_spent == 5
    assert [run.table["name"][row] for row in after.several] == [
        run.table["name"][rows["dent00.png"]]
    ]
    # and once more, from what was carried.
    again = cli(
        "cluster", "parts", "-n", "good", "-k", "2", "--labels-from", "run2", "-o", "run3", *SMALL
    )
    assert again.code == 0, again.err
    assert titles(here / "run3")["streak09.png"] == "dents"


def test_a_run_with_edits_is_not_overwritten(here: Path, cli: Cli) -> None:
    before = (here / "run" / EDITS).read_bytes()
    command = ("cluster", "parts", "-n", "good", "-k", "2", "-o", "run", "--overwrite", *SMALL)
    answer = cli(*command)
    assert answer.code == 2
    assert "holds edits of reviewers, which would be lost" in answer.err
    assert "--labels-from 'run'" in answer.err
    assert cli(*command, "--labels-from", "run3").code == 2  # there is none
    assert (here / "run" / EDITS).read_bytes() == before
    answer = cli(*command, "--labels-from", "run")
    assert answer.code == 0, answer.err
    assert titles(here / "run")["streak09.png"] == "dents"
    assert sorted(path.name for path in here.iterdir() if path.name.startswith(".")) == []


def test_what_is_said_while_a_run_is_made_is_not_lost(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = AnomalyClusterer.fit

    def slow(self: AnomalyClusterer, *given: Any, **options: Any) -> AnomalyClusterer:
        with Session(here / "run") as session:
            group = min(session.labelling.groups)
            payload = {"group": group, "name": "meanwhile"}
            session.edit("name", payload, session.version)
        return fit(self, *given, **options)

    monkeypatch.setattr(AnomalyClusterer, "fit", slow)
    command = ("cluster", "parts", "-n", "good", "-k", "2", "-o", "run", "--overwrite", *SMALL)
    answer = cli(*command, "--labels-from", "run")
    assert answer.code == 0, answer.err
    assert "meanwhile" in titles(here / "run").values()
    # Somebody begins to edit a run that had no edits when it began to be replaced.
    (here / "run" / EDITS).unlink()
    answer = cli(*command)
    assert answer.code == 2
    assert "could not be moved to 'run': The run 'run' holds edits of reviewers" in answer.err
    assert "meanwhile" in titles(here / "run").values()
    assert len(list(here.glob(".run.finished-*"))) == 1


def test_saving_from_python_and_kept_images(here: Path, fitted: AnomalyClusterer, cli: Cli) -> None:
    with pytest.raises(OptionError, match="holds edits of reviewers, which would be lost"):
        fitted.save(here / "run", overwrite=True)
    (here / "run" / EDITS).unlink()
    (here / "run" / "assigned" / "monday").mkdir(parents=True)
    with pytest.raises(OptionError, match="keeps new images in 'assigned'"):
        fitted.save(here / "run", overwrite=True)
    line = ("cluster", "parts", "-o", "run", "--overwrite", "--labels-from", "run", *SMALL)
    answer = cli(*line)
    assert answer.code == 2
    assert "keeps new images in 'assigned'" in answer.err


def test_other_kinds_without_an_image_of_their_own(here: Path) -> None:
    with Session(here / "run") as session:
        session.edit("move", {"images": [3], "to": "new", "name": "rust"}, session.version)
        rust = int(session.labelling.labels[3])
        session.edit("move", {"images": [3], "to": 0}, session.version)
        session.edit("several", {"images": [4], "groups": [rust]}, session.version)
    run = open_run(here / "run")
    known = Earlier.of(here / "run").known(run.images)
    assert known.several[run.table["sha256"][4]] == (rust,)
    now = begin(known, Clustered(run.table["sha256"], run.labels, TeachingSpace.of(run))).labelling
    assert now.several[4] == (rust,)
    assert now.groups[rust].name == "rust"


def test_copies_in_two_groups_say_nothing(here: Path) -> None:
    earlier = Earlier.of(here / "run")
    confirmed = np.flatnonzero(earlier.labelling.confirmed)
    assert len(earlier.decided_groups) == len(confirmed)
    one = confirmed[0]
    other = next(row for row in confirmed[1:])
    labels = earlier.labelling.labels.copy()
    labels[other] = labels[one] + 1
    digests = list(earlier.digests)
    digests[other] = digests[one]
    copies = replace(
        earlier, digests=tuple(digests), labelling=replace(earlier.labelling, labels=labels)
    )
    assert digests[one] not in copies.decided_groups
    assert len(copies.decided_groups) == len(confirmed) - 2


def test_what_a_run_began_with_is_not_undone(here: Path, cli: Cli) -> None:
    line = ("cluster", "parts", "-n", "good", "-k", "2", "--labels-from", "run", "-o", "r2", *SMALL)
    assert cli(*line).code == 0
    with Session(here / "r2") as session:
        assert session.can_undo is None
        with pytest.raises(OptionError, match="nothing to undo"):
            session.undo(session.version)
        session.edit("cut", {"k": 3}, session.version)
        assert session.can_undo == "Cut into 3 groups"
        session.undo(session.version)
        assert session.can_undo is None
        assert session.labelling.confirmed.any()


def test_new_images_are_called_as_people_call_them(here: Path, cli: Cli) -> None:
    answer = cli("assign", "parts", "--run", "run", "-q", "--no-cache", "--json")
    told = json.loads(answer.out)
    by_name = {row["name"]: row for row in told["images"]}
    assert by_name["dent00.png"]["group"] == "dents"
    assert by_name["streak07.png"]["group"] == "long <streaks>"
    assert set(told["counts"]) == {"dents", "long <streaks>", "Unsure"}
    assert "long <streaks>" in cli("assign", "parts", "--run", "run", "-q", "--no-cache").out


@pytest.mark.parametrize("undone", [False, True])
def test_labels_from_a_run_that_nobody_edited(here: Path, cli: Cli, undone: bool) -> None:
    (here / "run" / EDITS).unlink()
    if undone:
        with Session(here / "run") as session:
            session.edit("name", {"group": 0, "name": "thought better of it"}, 0)
            session.undo(1)
    line = ("cluster", "parts", "-n", "good", "-k", "2", "--labels-from", "run", "-o", "run2")
    answer = cli(*line, *SMALL)
    assert answer.code == 0, answer.err
    told = "Note: run has not been reviewed yet, so no labels were taken from it.\n"
    assert told in answer.out
    one, other = read_labelling(here / "run"), read_labelling(here / "run2")
    np.testing.assert_array_equal(one.labels, other.labels)
    assert not other.confirmed.any()
    # Nobody has edited the new one either, so that it can be replaced.
    assert not (here / "run2" / EDITS).exists()
    assert cli(*line, "--overwrite", *SMALL).code == 0


def test_a_note_says_what_comes_over(here: Path) -> None:
    run = open_run(here / "run")
    images = run.images
    earlier = Earlier.of(here / "run")
    assert earlier.edited
    said = earlier.decided_groups
    source = here / "run"
    assert earlier.note(images) == f"From {source}: 2 names and 8 decided images."
    one = [row for row, digest in enumerate(images.digests) if digest in said][:1]
    assert earlier.note(images.take(one)).endswith(": 2 names and 1 decided image.")
    others = [row for row, digest in enumerate(images.digests) if digest not in said]
    assert earlier.note(images.take(others)).endswith(": 2 names and no decided images.")
    (here / "run" / EDITS).unlink()
    with Session(here / "run") as session:
        session.edit("cut", {"k": 3}, 0)
    only = "no names and no decided images, only the numbers of its groups."
    assert Earlier.of(here / "run").note(images) == f"From {source}: {only}"


def test_labels_spent_against_purity(here: Path, cli: Cli) -> None:
    (here / "truth.csv").write_text(
        "path,label\n"
        + "".join(f"{name},{name[:4]}\n" for name in open_run(here / "run").table["name"])
    )
    answer = cli("evaluate", "run", "--truth", "truth.csv")
    assert answer.code == 0, answer.err
    assert "As reviewed: purity 0.929" in answer.out  # one streak was said to be a dent
    kept = json.loads((here / "run" / "evaluation.json").read_text("utf-8"))["reviewed"]
    # Two groups, one of them named and accepted, and three images.
    assert kept["labels_spent"] == 5
    assert kept["labels_of_the_tree"] == 2
    assert kept["n_confirmed"] == 8
