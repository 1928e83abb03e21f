"""Random augmentations of photos, a batch at a time, on the device of the network.

Random numbers come from a NumPy generator, so that a CPU and a GPU see the same augmentations.
Photos go in and come out as (n, 3, height, width), RGB in 0..1. All moves of an image are combined
into one affine map, so that nothing is resampled twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

Rng: TypeAlias = np.random.Generator
Matrices: TypeAlias = NDArray[np.float64]

# ImageNet's mean and standard deviation of colours, which pretrained networks expect.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
# Brightness of red, green and blue (ITU-R 601), as pillow and torchvision have it.
LUMA = (0.299, 0.587, 0.114)


def as_floats(photos: torch.Tensor) -> torch.Tensor:
    """Bytes to 0..1."""
    return photos.float() / 255


def normalise(photos: torch.Tensor) -> torch.Tensor:
    """Mean and deviation of each colour as in ImageNet."""
    mean = photos.new_tensor(MEAN).reshape(3, 1, 1)
    return (photos - mean) / photos.new_tensor(STD).reshape(3, 1, 1)


def as_pixels(photos: torch.Tensor) -> torch.Tensor:
    """The input of a network: normalised, in the memory layout that convolutions are fast on."""
    return normalise(photos).contiguous(memory_format=torch.channels_last)


def whole(photos: torch.Tensor, size: int) -> torch.Tensor:
    """Each photo resized to (n, 3, size, size); unchanged if it has that size."""
    if photos.shape[-2:] == (size, size):
        return photos
    sized: torch.Tensor = F.interpolate(
        photos, (size, size), mode="bilinear", antialias=True, align_corners=False
    )
    return sized.clamp(0, 1)


def grey(photos: torch.Tensor) -> torch.Tensor:
    """(n, 1, height, width): the brightness."""
    return (photos * photos.new_tensor(LUMA).reshape(3, 1, 1)).sum(1, keepdim=True)


def sobel(photos: torch.Tensor) -> torch.Tensor:
    """(n, 2, height, width): the gradients of the brightness across and down, without colour."""
    across = photos.new_tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
    kernels = torch.stack([across, across.T])[:, None]
    return F.conv2d(grey(photos), kernels, padding=1)


# ---- moves: 3 x 3 matrices from places in the result to places in the photo, both in -1..1


def still(n: int) -> Matrices:
    """(n, 3, 3): identity matrices."""
    return np.tile(np.eye(3), (n, 1, 1))


def random_flip(n: int, rng: Rng) -> Matrices:
    """Mirrored left to right, with probability 1/2."""
    moved = still(n)
    moved[:, 0, 0] = rng.choice([-1.0, 1.0], n)
    return moved


def random_crop(n: int, share: float, rng: Rng) -> Matrices:
    """A square at a random place. share: its side, in sides of the photo."""
    moved = still(n)
    moved[:, 0, 0] = moved[:, 1, 1] = share
    moved[:, :2, 2] = rng.uniform(-(1 - share), 1 - share, (n, 2))
    return moved


def random_resized_crop(n: int, area: tuple[float, float], rng: Rng) -> Matrices:
    """A rectangle at a random place, stretched to a square. area: the range of its share of the
    photo. Its aspect is 3:4 to 4:3."""
    shares = rng.uniform(*area, n)
    ratios = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3), n))
    sides = np.minimum(np.stack([np.sqrt(shares * ratios), np.sqrt(shares / ratios)], axis=1), 1)
    moved = still(n)
    moved[:, 0, 0], moved[:, 1, 1] = sides.T
    moved[:, :2, 2] = rng.uniform(-1, 1, (n, 2)) * (1 - sides)
    return moved


def turned(degrees: NDArray[np.float64]) -> Matrices:
    """Rotations about the middle."""
    moved = still(len(degrees))
    angles = np.deg2rad(degrees)
    moved[:, 0, 0] = moved[:, 1, 1] = np.cos(angles)
    moved[:, 0, 1], moved[:, 1, 0] = np.sin(angles), -np.sin(angles)
    return moved


def random_affine(
    n: int, rng: Rng, *, degrees: float, shift: float, scale: tuple[float, float], shear: float
) -> Matrices:
    """Turned, shifted by up to a share of the side, scaled, and sheared by up to some degrees."""
    sheared = still(n)
    sheared[:, 0, 1] = np.tan(np.deg2rad(rng.uniform(-shear, shear, n)))
    sized = still(n)
    sized[:, 0, 0] = sized[:, 1, 1] = 1 / rng.uniform(*scale, n)
    moved = sized @ sheared @ turned(rng.uniform(-degrees, degrees, n))
    moved[:, :2, 2] = 2 * rng.uniform(-shift, shift, (n, 2))
    return moved


def move(photos: torch.Tensor, moved: Matrices, size: int) -> torch.Tensor:
    """(n, 3, size, size): the photos moved; beyond its border a photo is mirrored."""
    theta = torch.tensor(moved[:, :2], dtype=photos.dtype, device=photos.device)
    grid = F.affine_grid(theta, [len(photos), 3, size, size], align_corners=False)
    return F.grid_sample(photos, grid, padding_mode="reflection", align_corners=False)


# ---- changes of colour


def jitter(
    photos: torch.Tensor,
    rng: Rng,
    *,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    share: float = 1.0,
) -> torch.Tensor:
    """Colours changed at random in a share of the images. brightness, contrast, saturation: factors
    are drawn from 1 - x to 1 + x. hue: turned by up to this part of the circle."""
    n = len(photos)
    chosen = rng.random(n) < share

    def factors(reach: float) -> torch.Tensor:
        return _each(photos, np.where(chosen, rng.uniform(1 - reach, 1 + reach, n), 1))

    changed = (photos * factors(brightness)).clamp(0, 1)
    changed = _blend(grey(changed).mean((2, 3), keepdim=True), changed, factors(contrast))
    changed = _blend(grey(changed), changed, factors(saturation))
    turns = np.where(chosen, rng.uniform(-hue, hue, n), 0)
    return _turn_hues(changed, turns) if hue else changed


def random_grey(photos: torch.Tensor, rng: Rng, share: float) -> torch.Tensor:
    """Colour removed from a share of the images."""
    chosen = _each(photos, rng.random(len(photos)) < share)
    return _blend(grey(photos).expand_as(photos), photos, 1 - chosen)


def cut_out(photos: torch.Tensor, rng: Rng, share: float) -> torch.Tensor:
    """A square of zeros at a random place in each image. share: its largest side, in heights."""
    n, _, height, width = photos.shape
    half = rng.uniform(0, share * height, n) / 2
    rows, columns = rng.uniform(0, height, n), rng.uniform(0, width, n)
    down = np.abs(np.arange(height) + 0.5 - rows[:, None]) <= half[:, None]
    across = np.abs(np.arange(width) + 0.5 - columns[:, None]) <= half[:, None]
    hole = torch.tensor(down[:, :, None] & across[:, None, :], device=photos.device)
    return photos.masked_fill(hole[:, None], 0)


def strong(photos: torch.Tensor, size: int, rng: Rng, *, n_changes: int = 4) -> torch.Tensor:
    """SCAN's strong augmentation: flipped, cropped to 7/8, then changed at random.

    n_changes: of each image, drawn from the fourteen of RandAugment that its authors use.
    """
    n = len(photos)
    moved = random_crop(n, 7 / 8, rng) @ random_flip(n, rng)
    picks = rng.integers(len(_CHANGES), size=(n_changes, n))
    amounts = rng.random((n_changes, n))
    changed = photos
    for pick, amount in zip(picks, amounts, strict=True):
        for number, change in enumerate(_CHANGES):
            rows = np.flatnonzero(pick == number)
            if not len(rows):
                continue
            values = amount[rows]
            if change in _MOVES:
                moved[rows] = moved[rows] @ _MOVES[change](values)  # of what was cropped
            elif change in _TONES:
                index = torch.tensor(rows, device=photos.device)
                part = _TONES[change](changed[index], values)
                changed = changed.index_copy(0, index, part)
    return move(changed, moved, size).clamp(0, 1)


def _each(photos: torch.Tensor, values: NDArray[np.generic]) -> torch.Tensor:
    """(n, 1, 1, 1): one number an image, to be multiplied with photos."""
    numbers = torch.tensor(values, dtype=photos.dtype, device=photos.device)
    return numbers.reshape(-1, 1, 1, 1)


def _blend(base: torch.Tensor, photos: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return (base + (photos - base) * factor).clamp(0, 1)


def _turn_hues(photos: torch.Tensor, turns: NDArray[np.float64]) -> torch.Tensor:
    """Turned about the grey axis in YIQ, which is linear and so one product a pixel."""
    to_yiq = np.array([LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)])
    rotation = still(len(turns))
    rotation[:, 1:, 1:] = turned(360 * turns)[:, :2, :2]
    mixed = np.linalg.inv(to_yiq) @ rotation @ to_yiq
    matrix = torch.tensor(mixed, dtype=photos.dtype, device=photos.device)
    return torch.einsum("nij,njhw->nihw", matrix, photos).clamp(0, 1)


def _autocontrast(photos: torch.Tensor, amounts: NDArray[np.float64]) -> torch.Tensor:
    low = photos.amin((2, 3), keepdim=True)
    span = photos.amax((2, 3), keepdim=True) - low
    return torch.where(span > 0, (photos - low) / span.clamp_min(1e-6), photos)


def _equalise(photos: torch.Tensor, amounts: NDArray[np.float64]) -> torch.Tensor:
    """Each colour's values spread evenly, as pillow does it: a value becomes the share of pixels
    below it, of those that are not the largest. A colour of one value stays."""
    flat = (photos * 255).round().long().flatten(2)
    counts = photos.new_zeros((*flat.shape[:2], 256))
    counts.scatter_add_(2, flat, torch.ones_like(flat, dtype=photos.dtype))
    below = counts.cumsum(2) - counts
    rest = below.masked_fill(counts == 0, 0).amax(2, keepdim=True)
    spread = (below / rest.clamp_min(1)).gather(2, flat).reshape(photos.shape)
    return torch.where(rest[..., None] > 0, spread, photos)


def _solarise(photos: torch.Tensor, amounts: NDArray[np.float64]) -> torch.Tensor:
    return torch.where(photos >= _each(photos, amounts), 1 - photos, photos)


def _posterise(photos: torch.Tensor, amounts: NDArray[np.float64]) -> torch.Tensor:
    levels = _each(photos, 2.0 ** (8 - np.floor(4 + 4 * amounts)))
    return torch.floor(photos * 255 / levels) * levels / 255


def _sharpen(photos: torch.Tensor, amounts: NDArray[np.float64]) -> torch.Tensor:
    kernel = photos.new_tensor([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]]) / 13
    around = F.pad(photos, (1, 1, 1, 1), mode="replicate")
    soft = F.conv2d(around, kernel.expand(3, 1, 3, 3), groups=3)
    return _blend(soft, photos, _fading(photos, amounts))


def _fading(photos: torch.Tensor, amounts: NDArray[np.float64]) -> torch.Tensor:
    """The share of colour, contrast, brightness or sharpness that is kept: 0.05 to 0.95."""
    return _each(photos, 0.05 + 0.9 * amounts)


def _fade_contrast(photos: torch.Tensor, amounts: NDArray[np.float64]) -> torch.Tensor:
    middle = grey(photos).mean((2, 3), keepdim=True)
    return _blend(middle, photos, _fading(photos, amounts))


def _sheared(axis: int, amounts: NDArray[np.float64]) -> Matrices:
    moved = still(len(amounts))
    moved[:, axis, 1 - axis] = 0.2 * amounts - 0.1
    return moved


def _shifted(axis: int, amounts: NDArray[np.float64]) -> Matrices:
    moved = still(len(amounts))
    moved[:, axis, 2] = 2 * (0.2 * amounts - 0.1)
    return moved


_TONES: dict[str, Callable[[torch.Tensor, NDArray[np.float64]], torch.Tensor]] = {
    "autocontrast": _autocontrast,
    "equalise": _equalise,
    "solarise": _solarise,
    "posterise": _posterise,
    "sharpness": _sharpen,
    "contrast": _fade_contrast,
    "colour": lambda photos, amounts: _blend(grey(photos), photos, _fading(photos, amounts)),
    "brightness": lambda photos, amounts: photos * _fading(photos, amounts),
}
_MOVES: dict[str, Callable[[NDArray[np.float64]], Matrices]] = {
    "rotate": lambda amounts: turned(60 * amounts - 30),
    "shear across": lambda amounts: _sheared(0, amounts),
    "shear down": lambda amounts: _sheared(1, amounts),
    "shift across": lambda amounts: _shifted(0, amounts),
    "shift down": lambda amounts: _shifted(1, amounts),
}
_CHANGES = ("nothing", *_TONES, *_MOVES)
