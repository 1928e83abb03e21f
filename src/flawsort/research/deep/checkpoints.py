"""Checkpoints of a training: one .safetensors file of tensors and a line of JSON, no code.

A checkpoint is written whole or not at all. A training that resumes from it ends exactly as if it
had not been interrupted.
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


def save(path: Path, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint. state: values that JSON can hold."""
    # Copies: safetensors refuses tensors that share memory.
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    try:
        with new_file(path, parents=True, durable=False) as partial:
            save_file(plain, partial, metadata={_KEY: json.dumps({"format": FORMAT, **state})})
    except SafetensorError as error:  # which also stands for errors of the file system
        raise OSError(str(error)) from error


def check_place(path: Path) -> None:
    """Raise OptionError if a checkpoint cannot be written there: before hours of training."""
    try:
        try_writing(path)
    except OSError as error:
        raise OptionError(
            f"checkpoint '{path}' cannot be written: {error.strerror or error}."
        ) from error
    if path.exists() and not path.is_file():
        raise OptionError(f"checkpoint must be a file. Got the folder '{path}'.")


def load(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
    """The state and the tensors of a checkpoint; None if there is no such file."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {}).get(_KEY, "null"))
            if isinstance(state, dict) and state.get("format") == FORMAT:
                return state, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError):
        pass
    raise foreign(path)


def foreign(path: Path) -> OptionError:
    """The error for a file that must not be overwritten: weights, or of another version."""
    return OptionError(
        f"checkpoint '{path}' is there and is not one that this version can go on from. Name "
        "another file, or delete it."
    )


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The tensors of its state by name; learning rates and the like are set on construction."""
    return {
        f"{number}.{name}": value
        for number, memory in optimizer.state_dict()["state"].items()
        for name, value in memory.items()
        if isinstance(value, torch.Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Restore the tensors of `optimizer_tensors` in an optimizer constructed in the same way."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    memories: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        like = parameters[int(number)].detach()
        if value.ndim:  # in the memory layout of the parameter, which fused optimisers require
            if value.shape != like.shape:
                raise ValueError(f"{key} has the shape {tuple(value.shape)}.")
            value = torch.empty_like(like, dtype=value.dtype).copy_(value)
        memories.setdefault(int(number), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": memories, "param_groups": groups})
