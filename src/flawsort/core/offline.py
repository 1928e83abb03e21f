"""Switch off what dependencies would send to their makers. flawsort does so before it imports any.

Each library reads its setting when it is imported, or in a process that it starts, so a setting
made later has no effect. The environment passes on to every process that this one starts, and
flawsort is the first that a worker on another machine imports. docs/reference/promises.md lists
what is switched off.
"""

from __future__ import annotations

import os

SWITCHED_OFF = {
    # From 1.31 on, onnxruntime keeps a device id in the user's cache folder, and sends it to its
    # vendor with the system, the processor and the path of the program.
    "ORT_DISABLE_TELEMETRY": "1",
    # Ray reports its version, the size of the cluster and the libraries in use, once an hour.
    "RAY_USAGE_STATS_ENABLED": "0",
    # timm downloads weights with huggingface_hub, which names the libraries in use.
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def switch_off() -> None:
    """Overrides what the environment says: flawsort promises that it sends nothing."""
    os.environ.update(SWITCHED_OFF)
