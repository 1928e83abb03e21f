"""What all figures of the paper share: style, display names and the writing of files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flawsort.core.errors import OptionError
from flawsort.core.storage import write_whole
from flawsort.research.paper.protocol import OBJECTS, TEXTURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The rows of the tables and the groups of sets, in words.
METHODS = {
    "average": "Average",
    "holistic": "Whole image",
    "max-hausdorff": "Maximum Hausdorff",
    "wa": "Weighted average, unsupervised",
    "wa-semi": "Weighted average, semi-supervised",
}
GROUP_NAMES = {
    "object": "Objects",
    "texture": "Textures",
    "mtd": "Magnetic tiles",
    "other": "Other sets",
}
INK = "#333333"
FAINT = "#777777"
DPI = 160

_STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": "#999999",
    "ytick.color": "#999999",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    # Words stay words, to be searched and read aloud; a folder's name is never a formula.
    "svg.fonttype": "none",
    "text.parse_math": False,
    # Names of parts of an SVG file are random without it.
    "svg.hashsalt": "flawsort",
}


def set_name(name: str) -> str:
    """A set's name in words; the name of a folder that is not the paper's stays as it is."""
    if name in (*OBJECTS, *TEXTURES):
        return name.replace("_", " ").capitalize()
    return printable(GROUP_NAMES.get(name, name))


def type_name(name: str) -> str:
    """A type's name in words, cut short where it would not fit."""
    words = printable(name).replace("_", " ")
    return words if len(words) <= 24 else f"{words[:23]}…"


def printable(name: str) -> str:
    """A folder's name without the characters that XML, and so an SVG file, forbids."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


@contextmanager
def house_style() -> Iterator[None]:
    """A context for computing, drawing and writing a figure. Raises OptionError without matplotlib.

    The style is the same everywhere, whatever the user's own settings.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise OptionError(
            'Figures need matplotlib, which is not installed: pip install "flawsort[paper]".'
        ) from error
    with matplotlib.rc_context(), warnings.catch_warnings():
        # Letters that the font lacks are right in the SVG file and boxes in the PNG file.
        warnings.filterwarnings(
            "ignore", r"Glyph \d+ .* missing from|Matplotlib currently does not"
        )
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def write(figure: Figure, folder: Path, stem: str, title: str, *, dpi: int = DPI) -> list[Path]:
    """The figure as SVG and as PNG; the same bytes each time. dpi: of the PNG file."""
    written = []
    kinds: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("svg", "svg", {"Date": None, "Title": title}),
        ("png", "agg", {"Software": None, "Title": title}),
    )
    for suffix, backend, metadata in kinds:
        stream = io.BytesIO()
        figure.savefig(stream, format=suffix, backend=backend, dpi=dpi, metadata=metadata)
        path = folder / f"{stem}.{suffix}"
        write_whole(path, stream.getvalue(), parents=True)
        written.append(path)
    return written
