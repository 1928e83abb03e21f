"""Measure the response times of the review: the first page, an edit, answers and what they teach.

    python benchmarks/review.py [--images 20000] [--kinds 40]
    python benchmarks/review.py --clients 30 [--every 5] [--seconds 60] [--requests 50000]

With --clients, many people then work at once: see review_load.py.

Makes a run of synthetic images, starts `flawsort review` in a separate process, and sends the
requests of a browser. Times are in seconds. "first picture" is measured from the moment when the
server prints its address. An answer is measured until its new state has arrived, with the
suggestions for all other images; the table has the median and the slowest of twenty.

Two of the times have a limit, and the last column is the time divided by it: 0.15 s for the
suggestions alone, in this process, and 0.3 s for an answer with them (medians; both are meant for
20,000 images of 40 kinds). Other work on the machine counts against them, so the processor time of
the suggestions stands beside.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

from flawsort import AnomalyClusterer, Bags, open_run
from flawsort.labels.session import Session
from flawsort.labels.suggestions import suggest
from review_load import measure_load

PATCHES, DIM = (6, 6), 160
ANSWERS = 20
# Seconds that are wanted for 20,000 images of 40 kinds.
SUGGEST_LIMIT, ANSWER_LIMIT = 0.15, 0.3


def made_up(n: int, seed: int, kinds: int) -> tuple[Bags, list[int]]:
    """Bags of noise, each with two patches of one of the kinds, and these kinds."""
    rng = np.random.default_rng(seed)
    patches = rng.normal(size=(n, PATCHES[0] * PATCHES[1], DIM)).astype(np.float32)
    patches[..., 0] += 6
    kind = rng.integers(1, 1 + kinds, n) if kinds else np.zeros(n, int)
    if kinds:
        patches[np.arange(n)[:, None], [[20, 21]], kind[:, None]] += 14
    patches /= np.linalg.norm(patches, axis=2, keepdims=True)
    return Bags(patches.astype(np.float16), PATCHES), kind.tolist()


def make_run(folder: Path, n: int, kinds: int) -> None:
    """A run of images of these kinds."""
    images = made_up(n, 1, kinds)[0]
    model = AnomalyClusterer(n_clusters=kinds)
    model.fit(images, normal=made_up(50, 2, 0)[0])
    model.save(folder, report=False)


def made_run(options: argparse.Namespace, folder: Path) -> tuple[list[int], list[int]]:
    """The run in a new folder, perhaps from one that is kept, without its edits."""
    kept = options.run or folder
    if not kept.exists():
        make_run(kept, options.images, options.kinds)
    if kept != folder:
        shutil.copytree(kept, folder, ignore=shutil.ignore_patterns("edits.sqlite*"))
    kind = made_up(options.images, 1, options.kinds)[1]
    return [row for row, one in enumerate(open_run(folder).thumbnails) if one], kind


def get(address: str) -> bytes:
    with urlopen(address, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def post(address: str, body: dict[str, Any]) -> dict[str, Any]:
    origin = "/".join(address.split("/")[:3])
    headers = {"Content-Type": "application/json", "Origin": origin}
    with urlopen(Request(address, json.dumps(body).encode(), headers), timeout=60) as answer:
        state: dict[str, Any] = json.loads(answer.read())
    return state


def timed(name: str, action: Any) -> Any:
    start = time.perf_counter()
    result = action()
    print(f"{name:<32} {time.perf_counter() - start:>7.3f}")
    return result


def measure(address: str, started: float, shown: list[int], kinds: list[int]) -> None:
    print(f"{'address after the start':<32} {time.perf_counter() - started:>7.3f}")
    ready = time.perf_counter()
    page = f"{address}r/run/"
    get(page)
    timed("the run", lambda: get(f"{page}api/run"))
    state = timed("its groups", lambda: json.loads(get(f"{page}api/state")))
    get(f"{page}thumb/{shown[0]}.jpg")
    print(f"{'first picture':<32} {time.perf_counter() - ready:>7.3f}")
    some = shown[1:41]
    timed("40 more pictures, one by one", lambda: [get(f"{page}thumb/{row}.jpg") for row in some])
    timed("40 heat maps, one by one", lambda: [get(f"{page}heat/{row}.png") for row in some])

    def edit(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        body = {"version": state["version"], "kind": kind, "payload": payload}
        return post(f"{page}api/edits", body)

    state = timed("name a group", lambda: edit("name", {"group": 0, "name": "scratch"}))
    moved = list(range(min(5000, len(kinds))))
    state = timed(f"move {len(moved):,} images", lambda: edit("move", {"images": moved, "to": 1}))
    state = timed("cut into 20", lambda: edit("cut", {"k": 20}))
    for _ in range(3):
        body = {"version": state["version"]}
        state = timed("undo", partial(post, f"{page}api/undo", body))
    teach(page, state, kinds)
    timed("what to ask next", lambda: get(f"{page}api/queue"))
    timed("how right it is", lambda: get(f"{page}api/accuracy"))
    timed("what a threshold costs", lambda: get(f"{page}api/verdict"))


def teach(page: str, state: dict[str, Any], kinds: list[int]) -> None:
    """Name all kinds, decide five images of each, and then answer for single images."""
    rows_of = {kind: [row for row, one in enumerate(kinds) if one == kind] for kind in set(kinds)}
    ids: dict[int, int] = {}

    def answer(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        body = {"version": state["version"], "kind": kind, "payload": payload}
        return post(f"{page}api/edits", body)

    for kind, rows in rows_of.items():
        payload = {"images": rows[:5], "to": "new", "name": f"kind {kind}"}
        state = answer("move", payload)
        ids[kind] = state["labels"][rows[0]]
    payload = {"images": [rows.pop() for rows in rows_of.values()][:20], "to": "normal"}
    state = answer("move", payload)
    for name, payload_of in {
        "audit an image": lambda row: ("audit", {"image": row, "to": ids[kinds[row]]}),
        "accept an image": lambda row: ("accept", {"images": [row]}),
        "move an image": lambda row: ("move", {"images": [row], "to": ids[kinds[row]]}),
        "reject an image": lambda row: ("reject", {"images": [row], "group": ids[kinds[0]]}),
    }.items():
        took = []
        for number in range(ANSWERS):
            rows = rows_of[sorted(rows_of)[number % len(rows_of)]]
            row = rows.pop()
            start = time.perf_counter()
            state = answer(*payload_of(row))
            took.append(time.perf_counter() - start)
        print(
            f"{name:<32} {np.median(took):>7.3f} {max(took):>7.3f}  {against(took, ANSWER_LIMIT)}"
        )


def against(took: Sequence[float], limit: float) -> str:
    """The median time divided by its limit, and whether it is within."""
    part = float(np.median(took)) / limit
    return f"{part:.2f} of {limit} s: {'yes' if part <= 1 else 'no'}"


def measure_suggestions(folder: Path) -> None:
    """The suggestions for all images of a reviewed run, without the server."""
    with Session(folder) as session:
        labelling, space = session.labelling, session.space
        took, busy = [], []
        for _ in range(ANSWERS):
            start, cpu = time.perf_counter(), time.process_time()
            suggest(labelling, space)
            took.append(time.perf_counter() - start)
            busy.append(time.process_time() - cpu)
    print(
        f"{'suggestions alone':<32} {np.median(took):>7.3f} {max(took):>7.3f}  "
        f"{against(took, SUGGEST_LIMIT)}; processor {np.median(busy):.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=20000)
    parser.add_argument("--kinds", type=int, default=40)
    parser.add_argument("--run", type=Path, help="made here, or used if it is there already")
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between edits of one")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--requests", type=int, default=50_000, help="for the memory")
    parser.add_argument("--parts", type=int, default=5, help="so often the memory is looked at")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        shown, kinds = made_run(options, folder)
        print(f"{options.images:,} images of {options.kinds} kinds")
        command = [sys.executable, "-c", "from flawsort.cli import main; main()", "review"]
        started = time.perf_counter()
        server = subprocess.Popen(
            [*command, str(folder), "--no-open", "--no-token", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        try:
            address = server.stdout.readline().split()[-1]
            measure(address, started, shown, kinds)
            measure_suggestions(folder)
            if options.clients:
                page = f"{address}r/run/"
                measure_load(page, server.pid, shown, len(kinds), options)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
