"""What people made of a run, in the report and as a page to print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort.labels.accuracy import Estimate
from flawsort.labels.session import Session
from flawsort.outputs.report import read_reviewed, render_printed, render_report
from flawsort.outputs.report.reviewed import Reviewed, gather_reviewed, percent, render_sections
from flawsort.runs.preview import Limits
from helpers.html import Page, browse, needs_browser, shown_sizes
from helpers.report_runs import HOSTILE, make_run

HOSTILE_NAME = "<b>dent</b> & {{ k }} 'x'"


class Review:
    """A run and its edits."""

    def __init__(self, folder: Path) -> None:
        self.run = make_run()
        self.folder = folder
        self.session = Session(folder, self.run)

    def edit(self, kind: str, **payload: Any) -> None:
        self.session.edit(kind, payload, self.session.version)

    def audit(self, n: int, wrong: int = 0) -> None:
        """Answers for n random images: where they are, but for the first `wrong`."""
        for row in range(n):
            group = int(self.session.labelling.labels[row])
            self.edit("audit", image=row, to=(group + 1) % 4 if row < wrong else group)

    def reviewed(self, **options: Any) -> Reviewed:
        return gather_reviewed(self.run, self.session.state, self.folder, **options)

    def words(self) -> str:
        return Page(render_sections(self.reviewed())).words()


@pytest.fixture
def review(tmp_path: Path) -> Iterator[Review]:
    made = Review(tmp_path)
    yield made
    made.session.close()


def cells(html: str, title: str) -> list[str]:
    """The texts of the row of the table of groups that begins with a title."""
    table = html[html.index("groups-table") :]
    row = next(row for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL) if title in row)
    found = re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
    return [re.sub(r"<[^>]+>|\s+", " ", one).strip() for one in found]


def test_groups_as_people_left_them(review: Review) -> None:
    n = [len(review.session.labelling.members(group)) for group in range(4)]
    review.edit("name", group=1, name=HOSTILE_NAME)
    review.edit("role", group=2, role="normal")
    review.edit("merge", into=1, groups=[3])
    reviewed = review.reviewed()
    html = render_sections(reviewed)
    page = Page(html)
    assert HOSTILE_NAME in page.words()
    assert "<b>" not in html
    found = cells(html, "dent")
    # Normal images teach as well, so regions of images elsewhere are told to be of this kind, too.
    also = sum(1 in kinds[1:] for kinds in reviewed.content.kinds)
    assert also > 0
    size = f"{n[1] + n[3]} + {also}"
    assert found[1:5] == ["kind of flaw", size, f"{100 * (n[1] + n[3]) / 40:.0f}%", "0"]
    assert cells(html, "no flaw")[1] == "no flaw"
    assert "in 3 edits" in page.words()


def test_severities_and_notes(review: Review) -> None:
    review.edit("name", group=1, name="dent")
    review.edit("severity", group=1, severity="critical")
    review.edit("note", group=1, note=HOSTILE_NAME)
    review.edit("severity", group=2, severity="none")
    html = render_sections(review.reviewed())
    assert "<b>" not in html
    assert HOSTILE_NAME in Page(html).words()
    assert cells(html, "dent")[1].split() == ["kind", "of", "flaw", "critical"]
    assert cells(html, "Group 2")[1].split() == ["kind", "of", "flaw", "no", "severity"]
    pareto = html[html.index("pareto-table") :]
    assert pareto.count("severity critical") == pareto.count("severity none") == 1


def test_images_that_a_person_moved(review: Review) -> None:
    labels = review.session.labelling.labels
    review.edit("move", images=[int(np.flatnonzero(labels == 1)[0])], to=2)
    n = len(review.session.state.settled.members(2))
    found = cells(render_sections(review.reviewed()), "Group 2")
    assert found[2].split()[0] == str(n)
    assert found[4] == "1"


def test_accuracy_is_shown_with_its_interval_or_not_at_all(review: Review) -> None:
    review.audit(9)
    words = review.words()
    assert "9 of the 10 random images that it takes" in words
    assert "interval" not in words
    review.edit("audit", image=9, to=(int(review.session.labelling.labels[9]) + 1) % 4)
    found = review.reviewed()
    assert found.audit is not None
    assert found.audit == Estimate(10, found.audit.right, 30)
    low, high = (percent(end) for end in found.audit.interval)
    words = review.words()
    assert f"90% interval: {low} to {high}; n = 10 answers" in words
    assert "0 of the 10 answers to suggestions that it takes" in words


def test_suggestions_that_were_right(review: Review) -> None:
    review.edit("name", group=0, name="dent")
    rows = np.flatnonzero(~np.isnan(review.session.state.suggestions.probability))[:12].tolist()
    review.edit("accept", images=rows[:11])
    assert "11 of them were answered with others at once." in review.words()
    review.edit("accept", images=rows[11:])
    words = review.words()
    assert "n = 12 answers Just before the first answer about each image. 11 of them were" in words


def test_accuracy_of_a_group_needs_ten_answers_of_its_own(review: Review) -> None:
    rows = review.session.labelling.members(0)[:10].tolist()
    for row in rows[:9]:
        review.edit("audit", image=row, to=0)
    review.edit("audit", image=int(review.session.labelling.members(1)[0]), to=1)
    assert cells(render_sections(review.reviewed()), "Group 1")[5] == "too few (n = 1)"
    review.edit("audit", image=rows[9], to=0)
    found = review.reviewed().of_groups
    assert found[1] == (1, None)
    group = found[0][1]
    assert group is not None
    assert (group.n, group.share) == (10, 1.0)


def test_nobody_has_reviewed(review: Review) -> None:
    words = review.words()
    assert "Nobody has reviewed this run yet." in words
    assert "The groups as computed" in words
    assert "interval" not in words
    assert read_reviewed(review.folder, review.run) is None
    assert read_reviewed(review.folder, review.run, always=True) is not None


def test_the_report_shows_these_groups(review: Review) -> None:
    review.edit("name", group=1, name="dent")
    review.edit("role", group=1, role="normal")
    review.edit("merge", into=1, groups=[3])
    reviewed = review.reviewed()
    data = Page(render_report(review.run, reviewed=reviewed)).data()
    assert data["k"]["saved"] == 3
    assert data["cluster"] == review.session.state.suggestions.groups.tolist()
    assert data["reviewed"]["titles"]["1"] == "dent"
    assert 1 in data["reviewed"]["normal"]
    assert Page(render_report(review.run)).data()["reviewed"] is None


def test_a_part_of_the_images(review: Review) -> None:
    review.edit("name", group=2, name="dent")
    review.edit("merge", into=2, groups=[3])
    page = Page(render_report(review.run, reviewed=review.reviewed(), limits=Limits(12, 3)))
    data = page.data()
    assert len(data["cluster"]) == len(data["reviewed"]["kinds"]) == data["n"] < 40
    assert len(data["regions"]["image"]) == len(data["regions"]["cluster"])
    n = len(review.session.state.settled.members(2))
    assert f"dent: {n}" in page.words()


def test_by_lot(review: Review) -> None:
    table = review.folder / "lots.csv"
    names = review.run.names[6:]
    table.write_text(
        "name,lot\n" + "".join(f"{name},L{row % 12}\n" for row, name in enumerate(names))
    )
    html = render_sections(review.reviewed(lots=table))
    assert "the 10 with the most flaws of 1" in Page(html).words()
    assert "By lot" not in Page(render_sections(review.reviewed(lots="day"))).words()


def test_trend(review: Review) -> None:
    table = review.folder / "days.csv"
    rows = [f"{name},2026-03-0{1 + row % 2}\n" for row, name in enumerate(review.run.names[6:])]
    table.write_text("name,date\n" + "".join(rows))
    reviewed = review.reviewed(by=table)
    html = render_printed(reviewed)
    assert html.count('<svg viewBox="0 0 390') == 4
    assert "2026-03-01 to 2026-03-02" in Page(html).words()
    without = Page(render_sections(review.reviewed())).words()
    assert "It is not known when the images were taken" in without


def test_the_printed_page_fetches_nothing_and_is_the_same_each_time(review: Review) -> None:
    review.edit("name", group=1, name=HOSTILE_NAME)
    html = render_printed(review.reviewed())
    assert html == render_printed(review.reviewed())
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    page = Page(html)
    assert "script" not in {tag for tag, _ in page.tags}
    assert {a["src"][:5] for _, a in page.tags if a.get("src")} == {"data:"}
    assert HOSTILE[0] not in html
    html.encode()


def test_percent() -> None:
    said = {0.0: "0%", 0.001: "under 1%", 0.5: "50%", 0.996: "over 99%", 1.0: "100%"}
    assert {share: percent(share) for share in said} == said


@needs_browser
def test_browser_shows_names_and_other_cuts(review: Review, tmp_path: Path) -> None:
    review.edit("name", group=1, name="dent")
    review.edit("role", group=0, role="unsure")
    review.edit("merge", into=1, groups=[3])
    html = render_report(review.run, reviewed=review.reviewed())
    dom = browse(html, tmp_path)
    labels = review.session.state.settled.labels
    assert shown_sizes(dom) == sorted(np.bincount(labels)[[0, 1, 2]].tolist(), reverse=True)
    assert set(re.findall(r'<h2 class="file">(.*?)</h2>', dom)) == {"Unsure", "dent", "Group 2"}
    other = browse(html, tmp_path, "#k=5")
    assert re.findall(r'<h2 class="file">(.*?)</h2>', other) == [f"Group {i}" for i in range(5)]
