"""Backbones that timm builds and torch runs, on the CPU or a GPU. They need flawsort[torch]."""

from __future__ import annotations

import hashlib
import importlib
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from flawsort.backbones.base import BackboneInfo
from flawsort.backbones.networks import NETWORKS, Network, find_network
from flawsort.backbones.weight_files import counts, fit_weights, read_weights
from flawsort.core.devices import torch_device
from flawsort.core.errors import BackboneError, first_line
from flawsort.core.records import Floats

if TYPE_CHECKING:
    import torch

# A network built by timm: a torch module with timm's methods.
Model = Any

LARGEST_INPUT = 2048


class TimmBackbone:
    """A network of `flawsort.backbones.networks` with its weights."""

    def __init__(
        self, network: Network, model: Model, info: BackboneInfo, device: torch.device
    ) -> None:
        import torch

        self.info = info
        self._network = network
        self._device = device
        if hasattr(model, "set_input_size"):  # transformers interpolate their position embeddings
            model.set_input_size(info.input_size)
        self._model = model.eval().to(device)
        mean, std = _mean_and_std(model)
        self._mean = torch.tensor(mean, device=device).reshape(3, 1, 1)
        self._std = torch.tensor(std, device=device).reshape(3, 1, 1)
        # One call at a time: torch uses all processors for each call, so calls from several threads
        # would compete for them.
        self._turn = Lock()

    @classmethod
    def load(
        cls,
        name: str,
        *,
        weights: Path | None = None,
        image_size: int | None = None,
        device: str | None = None,
        _random_seed: int | None = None,
    ) -> TimmBackbone:
        """Load a network by its name.

        weights: a file with its weights; None downloads them with timm.
        image_size: side of the square input, a multiple of 32 or of a transformer's patch size.
        device: see flawsort.core.devices; None for a GPU if there is one.
        """
        network = find_network(name)
        if network is None:
            known = ", ".join(sorted(NETWORKS))
            raise BackboneError(f"The network must be one of {known}. Got '{name}'.")
        side = _side(name, network, image_size)
        _need_torch(name, network)
        place = torch_device(device)
        licence = network.licence
        if _random_seed is not None:
            model = _with_random_weights(network, _random_seed)
            licence, source = "none", "random weights"
        elif weights is not None:
            model = _from_file(name, network, weights)
            licence += " (of the published weights)"  # the file may contain others
            source = f"weights from the file '{weights.name}'"
        else:
            model = _from_the_hub(name, network)
            source = f"weights from {_hub_page(network)}"
        origin = f"timm's {network.model}, {source}"
        digest = _digest(name, network, model)
        info = BackboneInfo(name, digest, licence, origin, (side, side), network.kernel)
        return cls(network, model, info, place)

    def feature_maps(self, pixels: Floats) -> list[Floats]:
        """pixels: (n, 3, height, width), RGB in 0..1. Returns maps (n, channels, rows, cols)."""
        import torch

        values = torch.tensor(np.asarray(pixels, np.float32))
        # Single precision on a GPU too, where convolutions otherwise use 10-bit mantissas: cached
        # bags must not depend on the device.
        exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
        try:
            with self._turn, exact, torch.inference_mode():
                scaled = (values.to(self._device) - self._mean) / self._std
                found = tap(self._model, self._network, scaled)
                maps = [features.cpu().numpy() for features in found]
        except Exception as error:
            raise BackboneError(
                f"Backbone '{self.info.name}' failed on a batch of shape {np.shape(pixels)}: "
                f"{first_line(error)}"
            ) from error
        return maps


def tap(model: Model, network: Network, pixels: torch.Tensor) -> list[torch.Tensor]:
    """The feature maps (n, channels, rows, cols) of a network. pixels: normalised for it."""
    if network.taps:
        maps: list[torch.Tensor] = model.forward_intermediates(
            pixels, list(network.taps), stop_early=True, intermediates_only=True
        )
        return maps
    last: torch.Tensor = model.forward_features(pixels)
    if last.ndim == 3:  # tokens (n, prefix + rows * cols, channels)
        rows, cols = (side // network.step for side in pixels.shape[2:])
        patches = last[:, model.num_prefix_tokens :]
        last = patches.transpose(1, 2).reshape(len(last), -1, rows, cols)
    return [last]


def _side(name: str, network: Network, image_size: int | None) -> int:
    if image_size is None:
        return network.input_size
    step = network.step
    if not (step <= image_size <= LARGEST_INPUT and image_size % step == 0):
        raise BackboneError(
            f"must be a multiple of {step} between {step} and {LARGEST_INPUT} for '{name}'. "
            f"Got {image_size}.",
            parameter="image_size",
        )
    return image_size


def _need_torch(name: str, network: Network) -> None:
    try:
        import timm
        import torch  # noqa: F401
    except ImportError as error:
        raise BackboneError(
            f"Backbone '{name}' runs in torch, which cannot be loaded here ({first_line(error)}). "
            f'Install it with pip install "flawsort[torch]".'
        ) from error
    if not timm.is_model_pretrained(network.model):
        raise BackboneError(
            f"timm {timm.__version__} does not know '{network.model}', which backbone '{name}' "
            f"needs. Install a newer one with pip install --upgrade timm."
        )


def _build(network: Network, *, pretrained: bool) -> Model:
    import timm

    return timm.create_model(network.model, pretrained=pretrained, num_classes=0)


def _with_random_weights(network: Network, seed: int) -> Model:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _build(network, pretrained=False)


def _from_the_hub(name: str, network: Network) -> Model:
    try:
        return _build(network, pretrained=True)
    except Exception as error:
        raise BackboneError(
            f"The weights of '{name}' could not be downloaded ({first_line(error)}). Load it once "
            f"with an internet connection, or fetch the weights from {_hub_page(network)} and pass "
            f"the file (--backbone-weights FILE, or --weights FILE of flawsort paper)."
        ) from error


def _hub_page(network: Network) -> str:
    import timm

    config = timm.get_pretrained_cfg(network.model)
    return f"https://huggingface.co/{config.hf_hub_id}" if config else "timm"


def _from_file(name: str, network: Network, path: Path) -> Model:
    state = read_weights(path)
    model = _build(network, pretrained=False)
    # For networks trained elsewhere, timm has a filter that renames the keys of their weights.
    rename = getattr(importlib.import_module(type(model).__module__), "checkpoint_filter_fn", None)
    if rename:
        # It fails on the weights of other networks; `fit_weights` then reports their keys.
        with suppress(Exception):
            state = rename(state, model)
    fit_weights(model, state, path, f"'{name}' ({network.model})")
    return model


def _digest(name: str, network: Network, model: Model) -> str:
    """A hash of everything that determines an image's patches besides its size: the network's name,
    its taps, the pooling, and every weight, sorted by name."""
    described = (name, network.model, network.taps, network.kernel, *_mean_and_std(model))
    digest = hashlib.sha256(repr(described).encode())
    for key, value in sorted(model.state_dict().items()):
        if counts(key):
            array = np.ascontiguousarray(value.numpy())
            digest.update(f"{key} {array.dtype} {array.shape}".encode())
            digest.update(array.data)
    return digest.hexdigest()


def _mean_and_std(model: Model) -> tuple[tuple[float, ...], tuple[float, ...]]:
    config = model.pretrained_cfg
    return tuple(config["mean"]), tuple(config["std"])
