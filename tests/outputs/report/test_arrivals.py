"""The images of a run and of its batches, by period and lot: counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort.clusters.assign import NORMAL, UNSEEN
from flawsort.labels.session import Session
from flawsort.outputs.report.arrivals import Arrivals, gather_arrivals, pareto_of
from flawsort.runs.assigned import TABLE, Kept, keep
from flawsort.runs.run import Run
from helpers.report_runs import make_run


def arrivals(groups: list[int], periods: list[str], lots: list[str] | None = None) -> Arrivals:
    where = None if lots is None else tuple(lots)
    return Arrivals(np.array(groups, np.int64), tuple(periods), where, "week", len(groups))


def batch(name: str, by: str, rows: list[dict[str, Any]]) -> Kept:
    """New images near clusters of the run. rows: name, sha256, cluster, period."""
    n = len(rows)
    table = {
        **{key: [row[key] for row in rows] for key in ("name", "sha256", "cluster", "period")},
        "path": [f"/gone/{row['name']}" for row in rows],
        "proposal": [-1] * n, "group": [""] * n, "probability": [None] * n,
        "decided": [False] * n, "verdict": [""] * n, "looks_normal": [False] * n,
        "nearest": [0] * n, "novelty": [1.0] * n, "score": [1.0] * n,
    }  # fmt: skip
    return Kept(name, table, (b"",) * n, {"at": f"2026-01-0{len(name)}", "by": by})


def row(name: str, cluster: int, period: str, digest: str = "") -> dict[str, Any]:
    return {"name": name, "sha256": digest or name, "cluster": cluster, "period": period}


@pytest.fixture(scope="module")
def run() -> Run:
    return make_run()


def gathered(run: Run, folder: Path, by: str | Path, lots: str | Path | None = None) -> Arrivals:
    with Session(folder, run) as session:
        return gather_arrivals(run, session.state, folder, by, lots)


# ---- the Pareto ----


def test_the_last_period_against_those_before() -> None:
    found = pareto_of(
        arrivals(
            [1, 2, 0, 0, 1, 3, 3, 3, UNSEEN, 0, NORMAL],
            ["W1", "W1", "W1", "W2", "W2", *["W3"] * 6],
        ),
        flaws=[1, 2, 3],
    )
    assert (found.period, found.n, found.n_flawed) == ("W3", 6, 4)
    assert [(one.group, one.count, one.before) for one in found.kinds] == [
        (3, 3, 0),
        (UNSEEN, 1, 0),
    ]
    assert [(one.share, one.sum) for one in found.kinds] == [(0.75, 0.75), (0.25, 1.0)]
    assert [one.new for one in found.kinds] == [True, True]


def test_a_kind_that_came_before_is_not_new() -> None:
    found = pareto_of(arrivals([1, 2, 2, 1], ["W1", "W2", "W3", "W3"]), flaws=[1, 2])
    assert [(one.group, one.before, one.new) for one in found.kinds] == [
        (1, 0, False),
        (2, 1, False),
    ]


def test_rises() -> None:
    groups = [1] * 40 + [2] * 2 + [1] * 8 + [2] * 12
    periods = ["W1"] * 42 + ["W2"] * 20
    found = {one.group: one for one in pareto_of(arrivals(groups, periods), [1, 2]).kinds}
    assert found[1].rise is None
    assert found[2].rise is not None
    assert found[2].rise.expected == pytest.approx(20 * 2 / 42)


def test_one_period_has_nothing_new() -> None:
    found = pareto_of(arrivals([1, 1, 2], ["W1"] * 3), flaws=[1, 2])
    assert [(one.new, one.before, one.rise) for one in found.kinds] == [(False, None, None)] * 2


def test_no_period_is_known() -> None:
    found = pareto_of(arrivals([1, 0], ["unknown"] * 2), flaws=[1])
    assert (found.period, found.n, [one.count for one in found.kinds]) == ("", 2, [1])
    assert pareto_of(arrivals([0], ["W1"]), flaws=[1]).kinds == ()


def test_unknown_periods_do_not_count() -> None:
    found = pareto_of(arrivals([1, 1, 2], ["W1", "unknown", "W2"]), flaws=[1, 2])
    assert (found.period, found.n) == ("W2", 1)


def test_lots_of_the_last_period() -> None:
    found = pareto_of(
        arrivals([1, 1, 2, 1, 0], ["W1", "W2", "W2", "W2", "W2"], ["a", "10", "9", "10", "z"]),
        flaws=[1, 2],
    )
    assert found.lots == ("9", "10")  # in natural order, and without lots of good images alone
    assert [dict(one.lots) for one in found.kinds] == [{"10": 2}, {"9": 1}]


# ---- gathering ----


def test_batches_count_beside_the_run_and_copies_once(run: Run, tmp_path: Path) -> None:
    known = run.table["sha256"][3]
    keep(tmp_path, batch("a", "day", [row("x", 1, "2026-03-02"), row("y", -1, "2026-03-02")]))
    again = [row("x", 1, "2026-03-09"), row("z", 2, "2026-03-10"), row("w", 0, "2026-03-10", known)]
    keep(tmp_path, batch("bb", "day", again))
    found = gathered(run, tmp_path, "day")
    assert found.n_run == 40
    assert found.groups[40:].tolist() == [1, UNSEEN, 2]
    assert found.periods[40:] == ("2026-03-02", "2026-03-02", "2026-03-10")
    assert gathered(run, tmp_path, "week").periods[40:] == ("2026-W10", "2026-W10", "2026-W11")
    assert gathered(run, tmp_path, "month").periods[40:] == ("2026-03",) * 3
    assert gathered(run, tmp_path, "folder").periods[40:] == ("unknown",) * 3


@pytest.mark.parametrize("period", ["2026-02-31", "lot 3", "unknown", "9999999-01-01"])
def test_periods_of_another_kind(run: Run, tmp_path: Path, period: str) -> None:
    keep(tmp_path, batch("a", "lots.csv", [row("x", 1, period)]))
    assert gathered(run, tmp_path, "week").periods[40:] == ("unknown",)


def test_lots_by_a_table(run: Run, tmp_path: Path) -> None:
    keep(tmp_path, batch("a", "day", [row("x.png", 1, "2026-03-02")]))
    table = tmp_path / "lots.csv"
    table.write_text("name,lot\nx.png,L7\npart-0009.png,L8\n")
    found = gathered(run, tmp_path, "day", table)
    assert found.lots is not None
    assert (found.lots[40], found.lots[9], found.lots[10]) == ("L7", "L8", "unknown")
    by_lot = gathered(run, tmp_path, table)
    assert (by_lot.by, by_lot.known_periods) == ("lot", ["L7", "L8"])


def test_a_damaged_batch_is_left_out(run: Run, tmp_path: Path) -> None:
    keep(tmp_path, batch("a", "day", [row("x", 1, "2026-03-02")]))
    (keep(tmp_path, batch("bb", "day", [row("y", 1, "2026-03-02")])) / TABLE).write_bytes(b"no")
    found = gathered(run, tmp_path, "day")
    assert len(found.groups) == 41
    assert len(found.notes) == 1
    assert found.notes[0].startswith("The batch bb is left out: The images kept in")
