"""What the service counts, in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds. A request of one image takes from tenths of a second to seconds.
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# Why a request was refused, by the status of the answer.
REASONS = {
    400: "host or length", 401: "token", 403: "another site", 404: "no such page", 405: "method",
    413: "too large", 415: "content type", 422: "not usable", 429: "busy", 500: "fault",
    503: "not ready", 507: "disk",
}  # fmt: skip

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters of one service. Safe for several threads. gauges: values that are read when they are
    asked for, by name, each with what it means."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]] | None = None) -> None:
        self._lock = threading.Lock()
        self._gauges = dict(gauges or {})
        self._requests: Counter[Labels] = Counter()
        self._errors: Counter[Labels] = Counter()
        self._images: Counter[Labels] = Counter()
        self._verdicts: Counter[Labels] = Counter()
        self._set_aside = 0
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request was answered. path: one of few. seconds: how long that took."""
        with self._lock:
            self._requests[("path", path), ("status", str(status))] += 1
            if status >= 400:
                self._errors[(("reason", REASONS.get(status, str(status))),)] += 1
            elif path.startswith("/image"):
                self._buckets[bisect_left(BUCKETS, seconds)] += 1
                self._seconds += seconds

    def sorted(self, groups: Iterable[str], verdicts: Iterable[str], set_aside: int) -> None:
        """Images were sorted. groups, verdicts: of each. set_aside: those that could not be."""
        with self._lock:
            self._images.update((("group", title),) for title in groups)
            self._verdicts.update((("verdict", verdict or "none"),) for verdict in verdicts)
            self._set_aside += set_aside

    def text(self) -> str:
        """All of it."""
        with self._lock:
            lines = [
                *_counter("requests", "Requests that were answered.", self._requests),
                *_counter("errors", "Requests that were refused, by reason.", self._errors),
                *_counter("images", "Images that were sorted, by group.", self._images),
                *_counter("verdicts", "Images that were sorted, by verdict.", self._verdicts),
                *_counter("images_set_aside", "Images that cannot be used.", {(): self._set_aside}),
                *self._histogram(),
            ]
        for name, (meaning, value) in self._gauges.items():
            lines += [*_head(name, meaning, "gauge"), f"flawsort_{name} {_number(value())}"]
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name, total = "flawsort_request_seconds", 0
        lines = _head(
            "request_seconds", "Time from a request of images to its answer.", "histogram"
        )
        for limit, count in zip([*map(_number, BUCKETS), "+Inf"], self._buckets, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{limit}"}} {total}')
        return [*lines, f"{name}_sum {_number(self._seconds)}", f"{name}_count {total}"]


def _counter(name: str, meaning: str, values: Mapping[Labels, int]) -> list[str]:
    lines = _head(f"{name}_total", meaning, "counter")
    for labels, value in sorted(values.items()):
        lines.append(f"flawsort_{name}_total{_shown(labels)} {value}")
    return lines


def _head(name: str, meaning: str, kind: str) -> list[str]:
    return [f"# HELP flawsort_{name} {meaning}", f"# TYPE flawsort_{name} {kind}"]


def _shown(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
