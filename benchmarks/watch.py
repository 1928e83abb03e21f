"""Measure an evening of `flawsort watch`: its rate beside that of `assign`, and its memory.

    python benchmarks/watch.py [--images 10000] [--side 64] [--folder FOLDER]

Draws parts with and without a flaw (--side pixels), makes a run of some of them, and lets `flawsort
watch` sort as many new ones as --images says while they are moved into its folder, with a CSV, a
JSON-lines file and a batch in the run. For each tenth of them it prints the seconds since the
first one, the images a second, and the resident memory of the process. At the end it checks that
each image is in each of the three places once, and does the same with `flawsort assign --keep -o`
for the same images. Of both it prints images a second and the seconds of processors for a thousand
images, start included: on a machine that others use, too, the second number says more. The images
are drawn before, so that drawing takes no time of watch. Small images and the preset `fast` make
this about the bookkeeping: with more work for the network a look at the journal matters less. Needs
Linux (/proc).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from flawsort.runs.assigned import kept_names, open_kept

KINDS = ("good", "dent", "streak")
TENTHS = 10
LONGEST = 4 * 3600.0


def part(number: int, side: int) -> Image.Image:
    """A grey part with noise of its own, and a flaw or none."""
    rng = np.random.default_rng(number)
    pixels = rng.normal(128, 6, (side, side, 3))
    kind = KINDS[number % len(KINDS)]
    y, x = rng.integers(side // 8, side - side // 4, 2)
    if kind == "dent":
        pixels[y : y + side // 6, x : x + side // 6] = 40
    if kind == "streak":
        pixels[y : y + max(1, side // 24), side // 8 : -side // 8] = 230
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def write_parts(folder: Path, first: int, n: int, side: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + n):
        part(number, side).save(folder / f"{number:06d}.png", compress_level=1)


def command(*words: str | Path) -> list[str]:
    code = "from flawsort.cli import main; main()"
    return [sys.executable, "-c", code, *map(str, words)]


def make_run(place: Path, side: int) -> Path:
    write_parts(place / "parts", 1_000_000, 90, side)
    options = ("-k", "3", "--preset", "fast", "--image-size", str(max(64, side)), "-q")
    run = place / "run"
    subprocess.run(
        command("cluster", place / "parts", *options, "-o", run),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return run


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def megabytes(process: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def worked(process: int) -> float:
    """The seconds that a process has used of processors so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(place: Path, run: Path, n: int) -> tuple[float, float, list[float]]:
    """Images a second, seconds of processors, and the memory after each tenth."""
    incoming, table, events = place / "incoming", place / "sorted.csv", place / "events.jsonl"
    incoming.mkdir()
    words = ("watch", incoming, "--run", run, "-o", table, "-o", events, "--settle", "0.5", "-q")
    memory: list[float] = []
    tenth = 0
    with subprocess.Popen(command(*words)) as process:
        begin = time.monotonic()
        for path in sorted((place / "drawn").iterdir()):
            os.link(path, incoming / path.name)
        print(f"{'images':>8} {'seconds':>8} {'a second':>9} {'MB':>7}")
        while (done := lines_of(events)) < n and time.monotonic() - begin < LONGEST:
            if process.poll() is not None:
                sys.exit(f"flawsort watch ended with {process.returncode}.")
            if done * TENTHS // n > tenth:
                tenth = done * TENTHS // n
                memory.append(show(done, begin, process.pid))
            time.sleep(0.2)
        memory.append(show(n, begin, process.pid))
        rate, used = n / (time.monotonic() - begin), worked(process.pid)
        process.terminate()
    # What it was about to write into the run.
    subprocess.run(command(*words, "--once"), check=True)
    return rate, used, memory


def show(done: int, begin: float, process: int) -> float:
    seconds, found = time.monotonic() - begin, megabytes(process)
    print(f"{done:8,} {seconds:8.0f} {done / seconds:9.1f} {found:7.0f}", flush=True)
    return found


def check(place: Path, run: Path, n: int) -> None:
    """Each image once in the CSV, in the JSON lines and in the run."""
    wanted = [f"{number:06d}.png" for number in range(n)]
    with (place / "sorted.csv").open(newline="") as file:
        in_table = sorted(row["name"] for row in csv.DictReader(file))
    lines = (place / "events.jsonl").read_text("utf-8").splitlines()
    told = sorted(one["name"] for one in map(json.loads, lines) if one["event"] == "image")
    kept = sorted(name for batch in kept_names(run) for name in open_kept(run, batch).table["name"])
    for what, names in (("CSV", in_table), ("JSON lines", told), ("run", kept)):
        if names != wanted:
            sys.exit(f"The {what} has {len(names)} images, {len(set(names))} of them different.")
    print(f"Each of {n:,} images is in the CSV, in the JSON lines and in the run once.")


def assign(place: Path, run: Path, n: int) -> tuple[float, float]:
    """Images a second, and seconds of processors."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ("assign", place / "drawn", "--run", run, "-o", place / "all.csv", "--no-cache")
    words = (*words, "--keep", "all", "--by", "day", "-q")
    subprocess.run(command(*words), check=True, stdout=subprocess.DEVNULL)
    took, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return n / took, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        place = Path(temporary)
        run = make_run(place, given.side)
        write_parts(place / "drawn", 0, given.images, given.side)
        rate, used, memory = watch(place, run, given.images)
        check(place, run, given.images)
        half = memory[len(memory) // 2 :]
        print(f"Memory in the second half: {min(half):.0f} to {max(half):.0f} MB.")
        other_rate, other_used = assign(place, run, given.images)
        thousands = given.images / 1000
        for what, watched, assigned in (
            ("images a second", rate, other_rate),
            ("seconds of processors for 1,000 images", used / thousands, other_used / thousands),
        ):
            print(f"{what}: watch {watched:.1f}, assign {assigned:.1f}, {watched / assigned:.2f}.")


if __name__ == "__main__":
    main()
