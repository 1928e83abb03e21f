"""Connects to a running Ray cluster, or starts one here and stops it again."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flawsort.core.errors import OptionError
from flawsort.core.threads import n_threads

# Ray reads these at import: print no internal messages.
_QUIETLY = {
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextmanager
def connected(address: str | None, n_cpus: int) -> Iterator[Any]:
    """The module `ray`, connected. A running cluster is used and left running. For address None a
    cluster with at least n_cpus processors is started here, and stopped at the end."""
    for name, value in _QUIETLY.items():
        os.environ.setdefault(name, value)
    import ray
    import ray.data

    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"address": address}
    if address is None:
        n_cpus = max(n_threads(), n_cpus)
        options = {"address": "local", "num_cpus": n_cpus, "include_dashboard": False}
    try:
        with _no_standard_error(), _no_dashboard():
            ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = "could be started here" if address is None else f"at '{address}'"
        raise OptionError(
            f"No Ray cluster {where}: {str(error).splitlines()[0]} Start one with "
            "'ray start --head' and give its address."
        ) from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        with _no_news_of_workers():
            yield ray
    finally:
        ray.shutdown()


def n_fitting(ray: Any, cpus: int, gpus: float) -> int:
    """The number of workers that fit on a cluster. cpus, gpus: of one worker."""
    total = 0
    for node in ray.nodes():
        if node["Alive"]:
            resources = node["Resources"]
            room = resources.get("CPU", 0) // cpus
            if gpus:
                room = min(room, resources.get("GPU", 0) // gpus)
            total += int(room)
    if not total:
        and_gpus = f" and {gpus:g} GPUs" if gpus else ""
        raise OptionError(
            f"No machine of the Ray cluster has {cpus} CPUs{and_gpus} for a worker. Request less "
            "per worker, or add a machine."
        )
    return total


def check_one_machine(ray: Any) -> None:
    """Refuse a cluster with other machines, which cannot write to this machine's disk."""
    here = socket.gethostname()
    others = sorted({node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]} - {here})
    if others:
        raise OptionError(
            f"The Ray cluster has machines that cannot access the folders of this one: "
            f"'{others[0]}'{' and others' if len(others) > 1 else ''}. Set parts to a folder that "
            "all of them share, or to a URL such as s3://bucket/parts."
        )


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Silence standard error. Ray's core, which is not Python, writes there that it is quiet."""
    try:
        saved = os.dup(2)
    except OSError:  # there is none
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


@contextmanager
def _no_dashboard() -> Iterator[None]:
    """Start a cluster without the process of Ray's dashboard. Even with the dashboard and the usage
    statistics switched off, it asks the services of three clouds whether it runs there."""
    from ray._private import services

    starting = getattr(services, "start_api_server", None)
    if starting is None:
        yield
        return
    services.start_api_server = lambda *_, **__: (None, None)
    try:
        yield
    finally:
        services.start_api_server = starting


@contextmanager
def _no_news_of_workers() -> Iterator[None]:
    """Stop Ray from printing lost workers on standard output, where results are written."""
    from ray._private import worker

    printing = getattr(worker, "print_to_stdstream", None)
    if printing is None:
        yield
        return
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = printing
