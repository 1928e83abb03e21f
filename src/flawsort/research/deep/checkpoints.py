"""What training has come to, in one .safetensors file: tensors and a line of JSON, nothing to run.

Written whole or not at all after every epoch that is to be kept, so that training goes on from
there and ends where it would have ended.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from flawsort.core.errors import OptionError
from flawsort.core.storage import new_file, try_writing
from flawsort.core.store import FORMAT

_KEY = "flawsort"


def save(path: Path, said: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """said: whatever JSON can hold."""
    # Copies: parts of one tensor, or one under two names, cannot be written.
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    try:
        with new_file(path, parents=True) as partial:
            save_file(plain, partial, metadata={_KEY: json.dumps({"format": FORMAT, **said})})
    except SafetensorError as error:  # as which it passes the system's errors on
        raise OSError(str(error)) from error


def check_place(path: Path) -> None:
    """Before hours of training: that a checkpoint can be written there."""
    try:
        try_writing(path)
    except OSError as error:
        raise OptionError(
            f"checkpoint '{path}' cannot be written: {error.strerror or error}."
        ) from error
    if path.exists() and not path.is_file():
        raise OptionError(f"checkpoint must be a file. Got the folder '{path}'.")


def load(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
    """What was said and the tensors; None where there is no such file."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            said = json.loads((file.metadata() or {}).get(_KEY, "null"))
            if isinstance(said, dict) and said.get("format") == FORMAT:
                return said, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError):
        pass
    raise foreign(path)


def foreign(path: Path) -> OptionError:
    """Somebody's weights, or another version's: it is not ours to overwrite."""
    return OptionError(
        f"checkpoint '{path}' is there and is not one that this version can go on from. Name "
        "another file, or delete it."
    )


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Its memory by name; the learning rates and the like are those it was made with."""
    return {
        f"{number}.{name}": value
        for number, memory in optimizer.state_dict()["state"].items()
        for name, value in memory.items()
        if isinstance(value, torch.Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """The reverse of `optimizer_tensors`, for an optimizer made in the same way."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    memories: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        like = parameters[int(number)].detach()
        if value.ndim:  # laid out as the parameter is: fused optimisers insist on it
            if value.shape != like.shape:
                raise ValueError(f"{key} has the shape {tuple(value.shape)}.")
            value = torch.empty_like(like, dtype=value.dtype).copy_(value)
        memories.setdefault(int(number), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": memories, "param_groups": groups})
