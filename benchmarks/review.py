"""Measure the response times of the review: the first page, an edit, another cut.

    python benchmarks/review.py [--images 20000]

Makes a run of synthetic images, starts `flawsort review` in a separate process, and sends the
requests of a browser. Times are in seconds. "first picture" is measured from the moment when the
server prints its address.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

from flawsort import AnomalyClusterer, Bags, open_run

KINDS = 8
PATCHES, DIM = (8, 8), 16


def made_up(n: int, seed: int, *, flawed: bool) -> Bags:
    """Bags of noise. Flawed bags have two patches of one of the kinds."""
    rng = np.random.default_rng(seed)
    patches = rng.normal(size=(n, PATCHES[0] * PATCHES[1], DIM)).astype(np.float32)
    patches[..., 0] += 6
    if flawed:
        kind = rng.integers(1, 1 + KINDS, n)
        patches[np.arange(n)[:, None], [[20, 21]], kind[:, None]] += 14
    patches /= np.linalg.norm(patches, axis=2, keepdims=True)
    return Bags(patches.astype(np.float16), PATCHES)


def make_run(folder: Path, n: int) -> list[int]:
    """The run, and the rows of its images with thumbnails."""
    model = AnomalyClusterer(n_clusters=KINDS)
    model.fit(made_up(n, 1, flawed=True), normal=made_up(50, 2, flawed=False))
    model.save(folder, report=False)
    return [row for row, one in enumerate(open_run(folder).thumbnails) if one]


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


def measure(address: str, started: float, shown: list[int], n_images: int) -> None:
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
    moved = list(range(min(5000, n_images)))
    state = timed(f"move {len(moved):,} images", lambda: edit("move", {"images": moved, "to": 1}))
    state = timed("cut into 20", lambda: edit("cut", {"k": 20}))
    timed("undo", lambda: post(f"{page}api/undo", {"version": state["version"]}))
    timed("what to ask next", lambda: get(f"{page}api/queue"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=20000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        shown = make_run(folder, options.images)
        print(f"{options.images:,} images")
        command = [sys.executable, "-c", "from flawsort.cli import main; main()", "review"]
        started = time.perf_counter()
        server = subprocess.Popen(
            [*command, str(folder), "--no-open", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        try:
            measure(server.stdout.readline().split()[-1], started, shown, options.images)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
