"""Read weight files for torch networks without executing any code in them, and load the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flawsort.core.errors import BackboneError, OptionError

if TYPE_CHECKING:
    import torch

SAFETENSORS = ".safetensors"
WEIGHTS_SUFFIXES = (SAFETENSORS, ".pth", ".pt", ".bin")
# The keys under which training checkpoints hold the state of the network.
WRAPPERS = ("state_dict", "model")
# Weights that feature maps do not need, by the start or end of their names: the classifier, and the
# number of batches that a norm layer saw in training.
HEADS = ("head.", "head_dist.", "fc.", "classifier.", "pre_logits.")
COUNTS = "num_batches_tracked"


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file by name. No code in the file is executed."""
    import torch
    from safetensors.torch import load_file
    from timm.models import clean_state_dict

    suffix = path.suffix.lower()
    if suffix not in WEIGHTS_SUFFIXES:
        accepted = ", ".join(WEIGHTS_SUFFIXES)
        raise OptionError(
            f"must be a file that ends in {accepted}. Got '{path}'.", parameter="backbone_weights"
        )
    try:
        with path.open("rb"):  # report a bad path with the system's own message
            pass
        found: Any = (
            load_file(path)
            if suffix == SAFETENSORS
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except OSError as error:
        raise BackboneError(
            f"Cannot read the weights file '{path}': {error.strerror or error}."
        ) from error
    except Exception as error:  # torch's message only warns about unsafe loading
        raise BackboneError(_no_weights(path)) from error
    for wrapper in WRAPPERS:
        if isinstance(found, dict) and isinstance(found.get(wrapper), dict):
            found = found[wrapper]
    cleaned: dict[str, Any] = clean_state_dict(found) if isinstance(found, dict) else {}
    tensors = {key: value for key, value in cleaned.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise BackboneError(_no_weights(path))
    return tensors


def _no_weights(path: Path) -> str:
    return (
        f"'{path}' is not a file of weights: it must hold tensors by name, as safetensors or "
        f"torch.save(model.state_dict(), FILE) write them."
    )


def fit_weights(model: Any, state: dict[str, torch.Tensor], path: Path, what: str) -> None:
    """Load the weights of a file into a network. They must fit it, except for its classifier.

    what: the name of the network, for the error message.
    """
    wanted = {key: value for key, value in model.state_dict().items() if counts(key)}
    given = {key: value for key, value in state.items() if counts(key)}
    reshaped = [key for key in wanted if key in given and given[key].shape != wanted[key].shape]
    differences = {
        "missing": [key for key in wanted if key not in given],
        "unexpected": [key for key in given if key not in wanted],
        "of another shape": reshaped,
    }
    if any(differences.values()):
        details = "; ".join(f"{way}: {_first_three(k)}" for way, k in differences.items() if k)
        raise BackboneError(f"The weights in '{path}' do not fit {what}. Keys {details}.")
    model.load_state_dict(given, strict=False)


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a .safetensors file; empty for other files."""
    if path.suffix.lower() != SAFETENSORS:
        return {}
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def counts(key: str) -> bool:
    """Whether feature maps depend on the weights with this key."""
    return not key.startswith(HEADS) and not key.endswith(COUNTS)


def _first_three(keys: list[str]) -> str:
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(keys[:3]) + more
