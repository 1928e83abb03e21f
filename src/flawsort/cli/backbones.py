"""The command `flawsort backbones`: lists the backbones that can embed images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flawsort.cli import console
from flawsort.cli.options import Json

if TYPE_CHECKING:
    from flawsort.backbones.catalogue import Entry


def backbones(as_json: Json = False) -> None:
    """List the backbones that can embed images. The embedded ones are verified; the networks need
    flawsort[torch]."""
    entries = list_backbones()
    if as_json:
        console.print_json(entries)
    else:
        show_backbones(entries)


def list_backbones() -> list[dict[str, Any]]:
    """The embedded backbones, each run once to verify it, and the networks of flawsort[torch]."""
    import importlib.util

    from flawsort.backbones import NETWORKS, catalogue

    installed = all(importlib.util.find_spec(name) is not None for name in ("torch", "timm"))
    networks = [
        {
            "name": name,
            "model": network.model,
            "licence": network.licence,
            "input_size": [network.input_size, network.input_size],
            "dim": sum(network.channels),
            "grid": [network.input_size // min(network.strides)] * 2,
            "state": "weights by timm, or from a file" if installed else "needs flawsort[torch]",
        }
        for name, network in NETWORKS.items()
    ]
    return [*(_verified(name, entry) for name, entry in catalogue().items()), *networks]


def _verified(name: str, entry: Entry) -> dict[str, Any]:
    """An embedded backbone with the shape of its patches, or with its error as `state`."""
    import numpy as np

    from flawsort.backbones import entry_path, load_backbone
    from flawsort.backbones.patches import patch_embeddings
    from flawsort.core.devices import CPU
    from flawsort.core.errors import BackboneError

    record: dict[str, Any] = {"name": name, **entry, "state": "verified"}
    try:
        backbone = load_backbone(name, device=CPU)
        height, width = backbone.info.input_size
        maps = backbone.feature_maps(np.zeros((1, 3, height, width), np.float32))
        patches, grid = patch_embeddings(maps, backbone.info.pooling_kernel)
        size = entry_path(entry).stat().st_size
        record |= {"dim": patches.shape[2], "grid": list(grid), "bytes": size}
    except BackboneError as error:
        record["state"] = str(error)
    return record


def show_backbones(entries: list[dict[str, Any]]) -> None:
    """Print a block for each embedded backbone and a row for each network."""
    for entry in entries:
        if "sha256" not in entry:
            continue
        console.say(entry["name"])
        for key, value in entry.items():
            if key == "bytes":
                value = f"{value:,}"
            if key != "name":
                console.say(f"  {key.replace('_', ' '):<14} {_sides(value)}")
    networks = [entry for entry in entries if "model" in entry]
    # A narrow terminal leaves out the last columns first.
    columns = ("name", "input_size", "dim", "grid", "licence", "model")
    rows = [
        [value if isinstance(value := entry[column], int) else _sides(value) for column in columns]
        for entry in networks
    ]
    console.say()
    states = ", ".join(dict.fromkeys(entry["state"] for entry in networks))
    console.say(f"Networks of torch. State: {states}.")
    console.say("NAME:last takes only the last layer.")
    console.say()
    console.print_table("", [column.replace("_", " ") for column in columns], rows)
    console.say()
    console.say("Any ONNX file with an image input (n, 3, height, width), RGB in 0..1, and")
    console.say("feature-map outputs works too: --backbone PATH.onnx, or PATH.onnx#OUTPUT to use")
    console.say("only some outputs.")


def _sides(value: object) -> str:
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
