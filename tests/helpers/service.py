"""A run that answers in this process, and what flawsort assign says of the same images."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flawsort.daily.current import CurrentRun
from flawsort.daily.service import make_service
from helpers.plates import Cli
from helpers.review_client import Client, Reply

WHERE = {"device": "cpu", "arithmetic": None}
# What an answer has besides the columns of the table, and what it has in another form.
FURTHER = (
    "index", "name", "kinds", "place", "regions", "heat_map", "photo_width", "photo_height"
)  # fmt: skip


class ServiceClient(Client):
    """A program that sends images."""

    def image(self, content: bytes, query: str = "", **headers: str) -> Reply:
        given = {"content_type": "image/png", "origin": "", **headers}
        return self.post(f"/image{query}", content, **given)

    def batch(self, contents: Sequence[bytes], **others: Any) -> Reply:
        return self.post("/images", batch_of(contents, **others), origin="")


def batch_of(contents: Sequence[bytes], **others: Any) -> dict[str, Any]:
    sent = [{"content": base64.b64encode(content).decode()} for content in contents]
    return {"images": sent, **others}


@contextmanager
def service_on(folder: Path, token: str | None = None, **options: Any) -> Iterator[ServiceClient]:
    """A client of a service in this process."""
    with CurrentRun(folder, where=WHERE) as run:
        app = make_service(run, token, **options)
        try:
            yield ServiceClient(app)
        finally:
            app.state.desk.close()


def assigned(cli: Cli, run: Path, sources: Sequence[Path]) -> list[dict[str, Any]]:
    """The rows of flawsort assign, in the order of the sources."""
    answer = cli("assign", *sources, "--run", run, "--no-cache", "--device", "cpu", "--json")
    assert answer.code == 0, answer.err
    rows = {row["path"]: row for row in json.loads(answer.out)["images"]}
    return [rows[str(source.absolute())] for source in sources]


def check_same(said: dict[str, Any], row: dict[str, Any]) -> None:
    """An answer says bit for bit what a row of flawsort assign says."""
    common = {name for name in said if name not in FURTHER}
    assert len(common) == 14
    assert {name: said[name] for name in common} == {name: row[name] for name in common}
    assert ";".join(map(str, said["kinds"])) == row["kinds"]
    width, height = said["photo_width"], said["photo_height"]
    scale = {"x": width, "y": height, "width": width, "height": height}
    assert said["place"] == {name: row[name] * by for name, by in scale.items()}
