"""Times of requests to `flawsort serve`, beside bare embedding of the same images, in one run.

    python benchmarks/serve.py [--run RUN --images FOLDER]

Without a run, the demo's is made: with its known-good images, and without them. The service is a
process of its own. Bare embedding (files to the bags of all views), the same call that the service
makes (`Sorter.sort`) and requests take turns, image by image, so that all see the same load. Then
several clients send at once, each one image after the other, and one client sends batches.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from PIL import Image

from flawsort import AnomalyClusterer
from flawsort.backbones import open_backbone
from flawsort.backbones.embed import embed
from flawsort.cli.sample_images import make_demo_images
from flawsort.core.records import ImageSet
from flawsort.daily.sorter import Sorter
from flawsort.images.find import find_images

TOKEN = "benchmark-token-0123456789"
CLIENTS = (1, 2, 4, 8)
BATCH = 16
START = "import sys; from flawsort.cli import main; sys.argv[0] = 'flawsort'; main()"


@dataclass(frozen=True)
class Service:
    """A service that runs. port: where it listens. process: its number."""

    port: int
    process: int

    @property
    def used(self) -> float:
        """The seconds that it has used of processors so far; nan where the system has no /proc."""
        try:
            fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return math.nan
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, path: str, body: bytes, kind: str) -> float:
        """The seconds from a new connection until the whole answer was there."""
        begin = time.perf_counter()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=600)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {content[:300]!r}")
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a run; the demo's if omitted")
    parser.add_argument("--images", type=Path, help="a folder of new images for it")
    parser.add_argument("--most", type=int, default=40, help="maximum number of images")
    options = parser.parse_args()
    if (options.run is None) != (options.images is None):
        parser.error("give --run and --images both, or neither")
    with tempfile.TemporaryDirectory() as scratch:
        for title, run, images in _cases(options, Path(scratch)):
            _measure(title, run, find_images(str(images)), options.most)


def _cases(options: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, Path, Path]]:
    if options.run is not None:
        yield str(options.run), options.run, options.images
        return
    parts, good = make_demo_images(scratch / "demo")
    fresh = _turned(parts, scratch / "new")
    for title, normal in (("with known-good images", good), ("without", None)):
        run = scratch / title.replace(" ", "-")
        AnomalyClusterer(cache=None).fit(parts, normal=normal).save(run, report=False)
        yield f"demo, {title}", run, fresh


def _turned(parts: Path, folder: Path) -> Path:
    """New images: those of the demo upside down."""
    folder.mkdir()
    for path in sorted(parts.iterdir()):
        try:
            with Image.open(path) as picture:
                picture.rotate(180).save(folder / path.name)
        except OSError:  # the demo has a damaged one
            continue
    return folder


def _measure(title: str, run: Path, images: ImageSet, most: int) -> None:
    images = images.take(range(min(len(images), most)))
    contents = [Path(str(source)).read_bytes() for source in images.sources]
    with Sorter(run, where={"device": "cpu", "arithmetic": None}, hold_open=True) as sorter:
        backbones = [open_backbone(one, device="cpu") for one in sorter.model.fitted_.opened]
        with _service(run) as service:
            print(f"\n{title}: {len(images)} images, {os.cpu_count()} cores\n")
            print(
                "| | n | p50, ms | p95, ms | p50 to bare embedding | images a second "
                "| processor time an image, ms |"
            )
            print("| --- | --- | --- | --- | --- | --- | --- |")
            bare = _taking_turns(sorter, backbones, service, images, contents)
            for clients in CLIENTS[1:]:
                before = service.used
                taken, whole = _at_once(service, contents, clients)
                worked = (service.used - before) / len(taken)
                _row(f"request, {clients} clients", taken, bare, worked, len(taken) / whole)
            _batches(service, contents, bare)


def _taking_turns(
    sorter: Sorter,
    backbones: list[object],
    service: Service,
    images: ImageSet,
    contents: list[bytes],
) -> float:
    """Prints the times of one image alone. Returns the median of bare embedding."""
    view = sorter.model.fitted_.view

    def embedded(row: int) -> None:
        for backbone in backbones:
            embed(images.take([row]), backbone, view)

    ways: dict[str, tuple[Callable[[int], object], Callable[[], float]]] = {
        "bare embedding": (embedded, time.process_time),
        "sorted in this process": (lambda row: sorter.sort(images.take([row])), time.process_time),
        "request, 1 client": (
            lambda row: service.ask("/image", contents[row], "image/png"),
            lambda: service.used,
        ),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for row in [0, 0, *range(len(images))]:  # the first ones are slower
        for name, (work, used) in ways.items():
            before, begin = used(), time.perf_counter()
            work(row)
            taken[name].append((time.perf_counter() - begin, used() - before))
    median = float(np.median([seconds for seconds, _ in taken["bare embedding"][2:]]))
    for name, times in taken.items():
        seconds, worked = zip(*times[2:], strict=True)
        _row(name, seconds, median, float(np.mean(worked)))
    return median


def _at_once(service: Service, contents: list[bytes], clients: int) -> tuple[list[float], float]:
    """The times of all requests of several clients, and of all of it."""
    taken: list[float] = []

    def send(first: int) -> None:
        for content in contents[first::clients]:
            taken.append(service.ask("/image", content, "image/png"))

    threads = [threading.Thread(target=send, args=(first,)) for first in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken, time.perf_counter() - begin


def _batches(service: Service, contents: list[bytes], bare: float) -> None:
    taken, before = [], service.used
    parts = [contents[at : at + BATCH] for at in range(0, len(contents) - BATCH + 1, BATCH)]
    for part in parts:
        sent = [{"content": base64.b64encode(one).decode()} for one in part]
        body = json.dumps({"images": sent}).encode()
        taken.append(service.ask("/images", body, "application/json"))
    if taken:
        each, n = [seconds / BATCH for seconds in taken], BATCH * len(taken)
        worked = (service.used - before) / n
        _row(f"batches of {BATCH}, for each image", each, bare, worked, n / sum(taken))


def _row(
    name: str, seconds: Sequence[float], bare: float, worked: float, rate: float | None = None
) -> None:
    """worked: seconds of processors for an image. rate: images a second, if they overlap."""
    low, high = np.percentile(seconds, [50, 95]) * 1000
    rate = len(seconds) / sum(seconds) if rate is None else rate
    ratio = low / 1000 / bare
    cells = (f"{low:.0f}", f"{high:.0f}", f"{ratio:.2f}", f"{rate:.1f}", f"{worked * 1000:.0f}")
    print(f"| {name} | {len(seconds)} |", " | ".join(cells), "|", flush=True)


@contextmanager
def _service(run: Path) -> Iterator[Service]:
    process = subprocess.Popen(
        [sys.executable, "-c", START, "serve", str(run), "--port", "0", "--device", "cpu"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "FLAWSORT_TOKEN": TOKEN},
    )
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        if found is None:
            raise SystemExit("The service did not start.")
        yield Service(int(found[1]), process.pid)
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    main()
