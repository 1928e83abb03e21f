"""Nothing is sent to anybody, and no library leaves a mark of its own in the home folder."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import flawsort
from flawsort.core.offline import SWITCHED_OFF
from helpers.alone import can_be_alone, run_alone
from helpers.command_line import SMALL
from helpers.html import needs_browser
from helpers.plates import MAIN, ROOT, contents, run_code

# A user's settings that would turn everything on.
TURNED_ON = {name: "1" if value == "0" else "0" for name, value in SWITCHED_OFF.items()}
# onnxruntime 1.31 opened its first connection between 8 and 14 seconds after its import.
LONG_ENOUGH = 20.0


def new_home(folder: Path) -> dict[str, str]:
    """The variables that name the folders of a user, who has none of them yet."""
    names = ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
             "LOCALAPPDATA", "APPDATA")  # fmt: skip
    return dict.fromkeys(names, str(folder))


def run_and_wait(plates: Path, place: Path, *options: str | Path) -> dict[str, object]:
    """What `flawsort cluster` tries to reach, in a process that lives for LONG_ENOUGH seconds."""
    code = f"""
import atexit, time
begun = time.monotonic()
atexit.register(lambda: time.sleep(max(0.0, begun + {LONG_ENOUGH} - time.monotonic())))
{MAIN}
"""
    given = (plates / "parts", "-o", place / "run", *SMALL, *options)
    return run_alone(
        [sys.executable, "-c", code, "cluster", *map(str, given)],
        place / "tried.json",
        PATH=os.environ["PATH"],
        PYTHONPATH=os.pathsep.join(sys.path),
        FLAWSORT_CACHE=str(place / "cache"),
        **new_home(place / "home"),
        **TURNED_ON,
    )


def test_it_is_switched_off_in_this_process() -> None:
    assert flawsort.__version__
    assert {name: os.environ.get(name) for name in SWITCHED_OFF} == SWITCHED_OFF


@pytest.mark.parametrize(
    "code",
    [
        "import flawsort, onnxruntime",
        "from flawsort.backbones.float16 import to_half; import onnxruntime",
        "import threading, flawsort\n"
        "thread = threading.Thread(target=__import__, args=('onnxruntime',))\n"
        "thread.start(); thread.join()",
        "import flawsort, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import onnxruntime'], check=True)",
    ],
    ids=["package", "module", "thread", "process"],
)
def test_no_device_id_in_a_new_home(tmp_path: Path, code: str) -> None:
    answer = run_code(code, **new_home(tmp_path), **TURNED_ON)
    assert (answer.code, answer.err) == (0, "")
    assert contents(tmp_path) == {}


def test_a_run_writes_nothing_to_a_new_home(plates: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    given = ("cluster", plates / "parts", "--normal", plates / "good", "-o", tmp_path / "run")
    cache = {"FLAWSORT_CACHE": str(tmp_path / "cache")}
    answer = run_code(MAIN, *given, *SMALL, **new_home(home), **cache, **TURNED_ON)
    assert answer.code == 0, answer.err
    assert contents(home) == {}


@pytest.mark.skipif(not can_be_alone(), reason="needs Linux, unshare and ip")
def test_a_run_opens_no_connection(plates: Path, tmp_path: Path) -> None:
    tried = run_and_wait(plates, tmp_path, "--normal", plates / "good")
    assert (tmp_path / "run" / "manifest.json").exists()
    assert tried == {"names": [], "connections": 0, "datagrams": 0}


@needs_browser
@pytest.mark.skipif(not can_be_alone(), reason="needs Linux, unshare and ip")
def test_a_browser_that_prints_asks_nobody(tmp_path: Path) -> None:
    """Chromium asks its makers for updates, also without a window."""
    code = """
import sys
from pathlib import Path
from flawsort.outputs.printing import print_page

Path(sys.argv[1]).write_bytes(print_page("<h1>printed</h1>"))
"""
    tried = run_alone(
        [sys.executable, "-c", code, str(tmp_path / "page.pdf")],
        tmp_path / "tried.json",
        PATH=os.environ["PATH"],
        PYTHONPATH=os.pathsep.join(sys.path),
        **new_home(tmp_path / "home"),
    )
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert tried == {"names": [], "connections": 0, "datagrams": 0}


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.skipif(not can_be_alone(), reason="needs Linux, unshare and ip")
def test_a_run_on_ray_asks_nobody(plates: Path, tmp_path: Path) -> None:
    tried = run_and_wait(plates, tmp_path, "--runner", "ray")
    assert (tmp_path / "run" / "manifest.json").exists()
    assert tried["connections"] != 0  # the processes of the cluster talk to each other
    assert (tried["names"], tried["datagrams"]) == ([], 0)


@pytest.mark.skipif(not can_be_alone(), reason="needs Linux, unshare and ip")
def test_the_record_sees_a_connection(tmp_path: Path) -> None:
    code = """
import socket
try:
    socket.create_connection(("198.51.100.1", 443), 2)
except OSError:
    pass
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.sendto(b"a question", ("198.51.100.1", 4444))
try:
    socket.getaddrinfo("telemetry.example", 443)
except OSError:
    pass
"""
    tried = run_alone(
        [sys.executable, "-c", code], tmp_path / "tried.json", PATH=os.environ["PATH"],
        RES_OPTIONS="attempts:1 timeout:1",
    )  # fmt: skip
    assert "telemetry.example" in tried["names"]  # type: ignore[operator]
    assert tried["connections"] == 1
    assert tried["datagrams"] >= 2  # type: ignore[operator]


def test_what_is_switched_off_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "promises.md").read_text("utf-8")
    assert [name for name in SWITCHED_OFF if f"`{name}`" not in text] == []
