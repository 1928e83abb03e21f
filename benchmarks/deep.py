"""Train deep clustering on whole data sets, several networks at a time on one GPU.

    python benchmarks/deep.py --data mvtec/ --data magnetic-tile/ --weights resnet50.safetensors \\
        -o paper-results

Trains everything that `flawsort paper --table clusterers --deep` would train one after the other,
and writes it to the same folder, where that command finds it. Small sets leave a GPU idle most of
the time, so this is faster. Finished trainings are not repeated, and one that was stopped goes on
from its last checkpoint. Prints the last and the best epoch of each training, by accuracy as in the
-best rows of the tables. Exits with 1 if a training is missing at the end.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.backbones import load_backbone
from flawsort.core.errors import first_line
from flawsort.research.paper.deep_rows import RIVALS, Training, train_rival
from flawsort.research.paper.measurements import measure_epoch
from flawsort.research.paper.protocol import find_tasks
from flawsort.research.paper.shared import PreparedSet

Job = tuple[str, str, int]


def lane(number: int, given: argparse.Namespace, jobs: Any, done: Any) -> None:
    """Train jobs from the queue until it is empty or time is up. done: a shared counter."""
    import torch

    torch.set_num_threads(given.threads)
    backbone = load_backbone("efficientnet-lite2")  # only its name is used
    prepared = {
        task.name: PreparedSet(task, backbone, given.output)
        for task in find_tasks(given.data, only=given.only)
    }
    training = Training(
        weights=given.weights,
        device=given.device,
        n_epochs=given.epochs,
        times=given.times,
        scan_rate=given.scan_rate,
    )
    while time.time() < given.until:
        try:
            name, rival, seed = jobs.get(timeout=1)
        except queue.Empty:
            return
        began = time.time()
        try:
            result = train(prepared[name], rival, seed, training)
        except Exception as error:  # such as too little memory: other trainings may need less
            result = f"failed, {type(error).__name__}: {first_line(error)}"
        else:
            with done.get_lock():
                done.value += 1
        torch.cuda.empty_cache()  # for the other lanes
        took = f"{time.time() - began:.0f} s in lane {number}"
        print(f"{name:<12} {rival:<15} seed {seed}: {result}, {took}", flush=True)


def train(prepared: PreparedSet, rival: str, seed: int, training: Training) -> str:
    """The result of a training in one line."""
    labels = train_rival(prepared, rival, seed, training).labels
    _, last = measure_epoch(prepared.task, labels)
    epoch, best = measure_epoch(prepared.task, labels, best=True)
    return (
        f"NMI {last['nmi']:.3f}, {best['nmi']:.3f} after epoch {epoch + 1}, the best of "
        f"{len(labels)}, {len(np.unique(labels[-1]))} clusters"
    )


def main() -> None:
    """Distribute the trainings, the largest sets first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--only", action="append", default=[], help="only this set; repeatable")
    parser.add_argument("--rival", action="append", choices=list(RIVALS), help="only this row")
    parser.add_argument("--weights", type=Path, help="of ResNet-50; downloaded if omitted")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--times", type=int, default=1, help="this many times as long")
    parser.add_argument("--scan-rate", type=float, help="learning rate of SCAN's first step")
    parser.add_argument("--device")
    parser.add_argument("--lanes", type=int, default=5, help="networks trained at a time")
    parser.add_argument("--threads", type=int, default=3, help="threads per network")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds to start trainings in")
    parser.add_argument("-o", "--output", type=Path, default=Path("paper-results"))
    given = parser.parse_args()
    given.until = time.time() + given.limit

    tasks = sorted(find_tasks(given.data, only=given.only), key=lambda task: -len(task.truth))
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    jobs, done = context.Queue(), context.Value("i", 0)
    wanted: list[Job] = [
        (task.name, rival, seed)
        for task in tasks
        for seed in range(given.seeds)
        for rival in given.rival or RIVALS
    ]
    for job in wanted:
        jobs.put(job)
    lanes = [
        context.Process(target=lane, args=(number, given, jobs, done))
        for number in range(given.lanes)
    ]
    for one in lanes:
        one.start()
    for number, one in enumerate(lanes):
        one.join()
        if one.exitcode:
            print(f"Lane {number} ended with exit code {one.exitcode}.")
    jobs.cancel_join_thread()
    print(f"{done.value} of {len(wanted)} trainings are done, in {given.output}.")
    if done.value != len(wanted):
        sys.exit(1)


if __name__ == "__main__":
    main()
