"""Build the wheel and the sdist, and check them: their files, their bytes, and a clean install.

python tools/check_wheel.py needs hatchling, and pip's index for the packages that the wheel needs.
It exits with 1 and says what is wrong, if something is.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

from other_pythons import ROOT, install

# What may be in the package. Another kind of file, such as a font, needs a look at its licence.
SUFFIXES = {"", ".css", ".html", ".js", ".json", ".onnx", ".py", ".svg", ".typed"}
NEEDED = (
    "flawsort/py.typed",
    "flawsort/backbones/NOTICE",
    "flawsort/backbones/catalogue.json",
    "flawsort/backbones/efficientnet_lite2.onnx",
    "flawsort/backbones/dinov2_small.onnx",
    "flawsort/review/static/main.js",
    "flawsort/outputs/report/template.html",
)
# What all networks may take together, in bytes. A larger package is a burden to install.
MOST_OF_NETWORKS = 25_000_000
INFO = (
    "METADATA",
    "RECORD",
    "WHEEL",
    "entry_points.txt",
    "licenses/LICENSE",
    "licenses/src/flawsort/backbones/NOTICE",
    "sboms/flawsort.cdx.json",
)


class Wrong(Exception):  # noqa: N818
    """What is wrong, in a sentence."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(Path(folder))
        except Wrong as error:
            sys.exit(f"check_wheel: {error}")


def check(folder: Path) -> None:
    wheel, sdist = build(ROOT, folder / "first")
    again = build(ROOT, folder / "second")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    from_sdist, _ = build(source, folder / "third")
    built = {path.read_bytes() for path in (wheel, again[0], from_sdist)}
    expect(len(built) == 1, "the wheel has other bytes when it is built again, or from the sdist")
    expect(
        sdist.read_bytes() == again[1].read_bytes(), "the sdist has other bytes when built again"
    )
    check_sdist(names)
    check_files(wheel)
    check_contents(wheel)
    check_networks(wheel)
    size = megabytes(wheel.stat().st_size)
    print(f"{wheel.name}: {size}, the same bytes three times, also from the sdist")
    check_install(wheel, folder)


def build(root: Path, folder: Path) -> tuple[Path, Path]:
    """A wheel and an sdist of the sources in a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def check_sdist(names: list[str]) -> None:
    inside = {PurePosixPath(name).parts[1] for name in names if "/" in name}
    for name in ("shared", ".ci", ".venv", "dist"):
        expect(name not in inside, f"the sdist has {name}")
    for name in ("src", "tests", "LICENSE", "SECURITY.md", "tools", "hatch_build.py"):
        expect(name in inside, f"the sdist lacks {name}")


def check_files(wheel: Path) -> None:
    """Exactly the files of the sources, and what belongs to every wheel."""
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    sources = ROOT / "src"
    wanted = {
        path.relative_to(sources).as_posix()
        for path in (sources / "flawsort").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    } | {f"{info}/{name}" for name in INFO}
    expect(names == wanted, f"the files differ: {sorted(names ^ wanted)}")
    expect(set(NEEDED) <= names, f"missing: {sorted(set(NEEDED) - names)}")
    odd = {name for name in names if PurePosixPath(name).suffix not in SUFFIXES}
    odd -= {f"{info}/entry_points.txt"}
    expect(not odd, f"files of a new kind, whose licence has to be looked at: {sorted(odd)}")


def check_contents(wheel: Path) -> None:
    """The hashes of the record and of the bill of materials, and the licences."""
    archive = zipfile.ZipFile(wheel)
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    for name, known, _ in csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode())):
        digest = hashlib.sha256(archive.read(name)).digest()
        right = f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
        expect(known == right or name.endswith("/RECORD"), f"RECORD has another hash of {name}")
    bill = json.loads(archive.read(f"{info}/sboms/flawsort.cdx.json"))
    listed = {
        one["name"]: one["hashes"][0]["content"] for one in bill["components"] if "hashes" in one
    }
    there = {
        name: hashlib.sha256(archive.read(name)).hexdigest()
        for name in archive.namelist()
        if name.endswith(".onnx")
    }
    expect(listed == there, "the bill of materials lists other networks than there are")
    notice = archive.read("flawsort/backbones/NOTICE").decode()
    for entry in json.loads(archive.read("flawsort/backbones/catalogue.json")).values():
        expect(entry["file"] in notice, f"NOTICE does not name {entry['file']}")


def check_networks(wheel: Path) -> None:
    """That the networks are not too large."""
    files = zipfile.ZipFile(wheel).infolist()
    size = sum(one.file_size for one in files if one.filename.endswith(".onnx"))
    expect(
        size <= MOST_OF_NETWORKS,
        f"the networks take {megabytes(size)}, and may take {megabytes(MOST_OF_NETWORKS)}",
    )


def megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB"


def check_install(wheel: Path, folder: Path) -> None:
    """In a new environment, and away from the sources."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    expect(install(programs / "python", wheel), "the wheel cannot be installed")
    subprocess.run([programs / "flawsort", "doctor"], cwd=folder, check=True)


def expect(right: bool, sentence: str) -> None:
    if not right:
        raise Wrong(sentence)


if __name__ == "__main__":
    main()
