"""Train deep clustering on whole data sets, several networks at a time on one GPU.

    python benchmarks/deep.py --data mvtec/ --data magnetic-tile/ --weights resnet50.safetensors \\
        -o paper-results

Everything that `flawsort paper --table clusterers --deep` would train one after the other, into the
same folder, where the command finds it: small sets leave a GPU idle most of the time. What is there
already is not trained again. Prints the last and the best epoch of each.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import time
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.backbones import load_backbone
from flawsort.errors import FlawsortError
from flawsort.metrics import agreement
from flawsort.paper.products import Products
from flawsort.paper.protocol import Task, find_tasks
from flawsort.paper.rivals import RIVALS, Training, epoch_labels

Job = tuple[str, str, int]


def nmi(task: Task, labels: Any) -> float:
    """Over the images that count."""
    counted = [(name, int(one)) for name, one in zip(task.truth, labels, strict=True) if name]
    return agreement([name for name, _ in counted], [label for _, label in counted]).nmi


def lane(number: int, given: argparse.Namespace, jobs: Any) -> None:
    """Train what nobody has taken yet, until there is nothing left or time is up."""
    import torch

    torch.set_num_threads(given.threads)
    backbone = load_backbone("efficientnet-lite2")  # whose patches nobody asks for
    products = {
        task.name: Products(task, backbone, given.output)
        for task in find_tasks(given.data, only=given.only)
    }
    training = Training(weights=given.weights, device=given.device, n_epochs=given.epochs)
    while time.time() < given.until:
        try:
            name, rival, seed = jobs.get(timeout=1)
        except queue.Empty:
            return
        began = time.time()
        try:
            epochs = epoch_labels(products[name], rival, seed, training)
        except FlawsortError as error:
            print(f"{name} {rival} {seed}: {error}", flush=True)
            continue
        found = [nmi(products[name].task, labels) for labels in epochs]
        print(
            f"{name:<12} {rival:<15} seed {seed}: NMI {found[-1]:.3f}, at most {max(found):.3f}, "
            f"{len(np.unique(epochs[-1]))} clusters, {len(epochs)} epochs, "
            f"{time.time() - began:.0f} s in lane {number}",
            flush=True,
        )


def main() -> None:
    """Share the trainings out, the largest sets first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--only", action="append", default=[], help="only this set; repeatable")
    parser.add_argument("--rival", action="append", choices=list(RIVALS), help="only this row")
    parser.add_argument("--weights", type=Path, help="ResNet-50's, else a download")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device")
    parser.add_argument("--lanes", type=int, default=5, help="networks at a time")
    parser.add_argument("--threads", type=int, default=3, help="of a network")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds: none begins after it")
    parser.add_argument("-o", "--output", type=Path, default=Path("paper-results"))
    given = parser.parse_args()
    given.until = time.time() + given.limit

    tasks = sorted(find_tasks(given.data, only=given.only), key=lambda task: -len(task.truth))
    multiprocessing.set_start_method("spawn")  # CUDA does not survive a fork
    jobs: Any = multiprocessing.Queue()
    wanted: list[Job] = [
        (task.name, rival, seed)
        for task in tasks
        for seed in range(given.seeds)
        for rival in given.rival or RIVALS
    ]
    for job in wanted:
        jobs.put(job)
    lanes = [
        multiprocessing.Process(target=lane, args=(number, given, jobs))
        for number in range(given.lanes)
    ]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    jobs.cancel_join_thread()
    print(f"{len(wanted)} trainings were asked for; {given.output} holds what is done.")


if __name__ == "__main__":
    main()
