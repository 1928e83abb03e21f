"""Run a command in a network of its own, which leads nowhere, and record what it tries to reach.

`python alone.py RECORD COMMAND...` must be started by `unshare --net --map-root-user`. Every
address of that network is this machine. RECORD becomes JSON: the names that the command looked up,
and how many connections it opened and datagrams it sent.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

UNSHARE = ("unshare", "--net", "--map-root-user")


def can_be_alone() -> bool:
    """Whether this machine has the tools, and lets this user have a network of their own."""
    if sys.platform != "linux" or shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0


def run_alone(command: list[str], record: Path, **environment: str) -> dict[str, object]:
    """What a command tried to reach. environment: all of the command's."""
    place = str(Path(__file__))
    subprocess.run(
        [*UNSHARE, sys.executable, place, str(record), *command],
        env=environment,
        check=True,
        timeout=600,
        stdout=subprocess.DEVNULL,
    )
    tried: dict[str, object] = json.loads(record.read_text("utf-8"))
    return tried


def _record(record: Path, command: list[str]) -> int:
    for change in (["link", "set", "lo", "up"], ["route", "add", "local", "default", "dev", "lo"]):
        subprocess.run(["ip", *change], check=True)
    questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    questions.bind(("", 53))
    code = subprocess.run(command).returncode
    found = {
        "names": sorted(_asked(questions)),
        "connections": _counted("Tcp:", "ActiveOpens"),
        "datagrams": _counted("Udp:", "OutDatagrams"),
    }
    record.write_text(json.dumps(found), "utf-8")
    return code


def _asked(questions: socket.socket) -> set[str]:
    """The names that were looked up. Nobody answers, so the system has kept the questions."""
    names = set()
    questions.setblocking(False)
    while True:
        try:
            question = questions.recv(4096)
        except BlockingIOError:
            return names
        labels, place = [], 12  # after the header
        while place < len(question) and question[place]:
            end = place + 1 + question[place]
            labels.append(question[place + 1 : end].decode("ascii", "replace"))
            place = end
        names.add(".".join(labels))


def _counted(protocol: str, what: str) -> int:
    """A counter of the kernel's for this network."""
    lines = Path("/proc/net/snmp").read_text("ascii").splitlines()
    heads, values = (line.split() for line in lines if line.startswith(protocol))
    return int(values[heads.index(what)])


if __name__ == "__main__":
    sys.exit(_record(Path(sys.argv[1]), sys.argv[2:]))
