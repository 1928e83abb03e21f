"""Kill every command before each of its operations on files, and say what was lost.

    python tools/kill_everywhere.py [--only cluster --only watch] [--points 5] [--jobs 2]

All points take about an hour on two cores. tests/end_to_end/test_killed_anywhere.py does the same
at a few points of each command. Exits with 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

# The processes are forked, which threads of these libraries would not survive.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.commands import all_commands  # noqa: E402
from helpers.killing import Found, kill_everywhere  # noqa: E402


def _try(given: tuple[str, int | None]) -> Found:
    name, points = given
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        try:
            found = kill_everywhere(all_commands()[name], Path(work).resolve(), points=points)
        except AssertionError as error:
            found = Found(name, losses=[str(error)])
    seconds = time.monotonic() - start
    print(
        f"{name:<36} {found.steps:>5} steps {found.tried:>5} kills {found.ended:>4} not met "
        f"{len(found.losses):>4} losses {seconds:>6.0f} s",
        flush=True,
    )
    for loss in found.losses:
        print(f"  {loss}", flush=True)
    return found


def main() -> None:
    names = list(all_commands())
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=names, metavar="NAME")
    parser.add_argument("--points", type=int, help="so many kills of each command; all if omitted")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    given = [(name, options.points) for name in options.only or names]
    if options.jobs == 1:
        results = [_try(one) for one in given]
    else:
        with get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
            results = list(pool.imap(_try, given, chunksize=1))
    kills, losses = sum(one.tried for one in results), sum(len(one.losses) for one in results)
    print(f"{len(results)} commands, {kills:,} kills, {losses:,} losses")
    sys.exit(bool(losses))


if __name__ == "__main__":
    main()
