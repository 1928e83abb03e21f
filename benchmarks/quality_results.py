"""The rows that benchmarks/quality.py measures, and the file that keeps them.

A row is one setting on one set, with or without normals. The file has one row a line, as JSON, so
that an interrupted benchmark resumes. A row counts again only if everything that it depends on is
the same: the set and its number of images, the setting, the number of subsets, and the source code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import flawsort

Kind = TypeVar("Kind")

KEY = ("set", "mode", "setting", "subsets", "version", "images", "normals")
CODE_SUFFIXES = (".py", ".onnx")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one setting gives on one set.

    mode: "normals" or "none". name: what the setting is called; setting: all of its values.
    images, normals, kinds: how many the set has, the kinds without `combined`.
    nmi, ari, f1: at the true number of kinds. subset_nmi, subset_error: the mean of NMI over the
    subsets and its standard error. auroc, pixel_auroc: of the scores of images and of pixels.
    precision, recall: of `looks normal`. advised: the advised number of groups, and advised_nmi
    the NMI there. seconds: of the fit, and timings those of its stages. None: does not apply.
    """

    set: str
    mode: str
    name: str
    setting: dict[str, Any]
    subsets: int
    version: str
    images: int
    normals: int
    kinds: int
    nmi: float
    ari: float
    f1: float
    subset_nmi: float | None
    subset_error: float | None
    auroc: float | None
    pixel_auroc: float | None
    precision: float | None
    recall: float | None
    advised: int
    advised_nmi: float
    seconds: float
    timings: dict[str, float]

    @property
    def key(self) -> str:
        """Equal for rows that need to be measured only once."""
        return key_of({name: getattr(self, name) for name in KEY})

    @property
    def choice_nmi(self) -> float:
        """The NMI that settings are compared by: over subsets, if there are any."""
        return self.nmi if self.subset_nmi is None else self.subset_nmi

    @property
    def advice_off(self) -> int:
        return abs(self.advised - self.kinds)

    @property
    def advice_cost(self) -> float:
        """How much NMI is lost with the advised number of groups instead of the true one."""
        return self.nmi - self.advised_nmi


def key_of(identity: dict[str, Any]) -> str:
    """identity: the values of the fields in KEY."""
    return json.dumps([identity[name] for name in KEY], sort_keys=True)


def read_rows(path: Path) -> list[Row]:
    """The rows of a results file; see `read_json`."""
    return read_json(path, Row)


def read_json(path: Path, kind: type[Kind]) -> list[Kind]:
    """The rows of a results file, empty if there is none. The half line of a run that was killed
    and rows with other figures than today's are left out. kind: a dataclass."""
    if not path.exists():
        return []
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    rows = []
    for line in path.read_text("utf-8").splitlines():
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(values, dict) and values.keys() == names:
            rows.append(kind(**values))
    return rows


def append_row(path: Path, row: Row) -> None:
    append_json(path, row)


def append_json(path: Path, row: Any) -> None:
    """Add a row, a dataclass, to a results file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half_line = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if half_line else "") + json.dumps(asdict(row)) + "\n")


def rows_to_compare(
    measured: Iterable[Row], stored: Iterable[Row], sets: Collection[str], modes: Collection[str]
) -> list[Row]:
    """The measured rows, and the stored ones that can be compared with them: of the same source
    code, subsets, sets and modes. Of two settings with one name the last one keeps it."""
    measured = list(measured)
    if not measured:
        return []
    alike = {(row.version, row.subsets) for row in measured}
    rows = {row.key: row for row in stored if (row.version, row.subsets) in alike}
    for row in measured:  # last, and under the names that they have now
        rows.pop(row.key, None)
        rows[row.key] = row
    setting_of = {row.name: row.setting for row in rows.values()}
    name_of = {_text(setting): name for name, setting in setting_of.items()}
    name_of |= {_text(row.setting): row.name for row in measured}
    # One row for each setting, set and mode, the last: a set may have had other images before.
    found = {
        (_text(row.setting), row.set, row.mode): replace(row, name=name_of[_text(row.setting)])
        for row in rows.values()
        if _text(row.setting) in name_of and row.set in sets and row.mode in modes
    }
    return list(found.values())


def source_version(folder: Path | None = None) -> str:
    """The version of flawsort and a hash of its code and its networks."""
    folder = Path(flawsort.__file__).parent if folder is None else folder
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in CODE_SUFFIXES:
            name = path.relative_to(folder).as_posix()
            digest.update(f"{name} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    return f"{flawsort.__version__}+{digest.hexdigest()[:12]}"


def _text(setting: dict[str, Any]) -> str:
    return json.dumps(setting, sort_keys=True)
