"""What the service counts, and how Prometheus reads it."""

from __future__ import annotations

import re
import threading

import pytest

from flawsort.daily.metrics import BUCKETS, Metrics

# The text format of Prometheus: a line of a sample.
SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (?P<value>\S+)'
)


def read(text: str) -> dict[str, float]:
    """The samples by name and labels, with every line checked."""
    assert text.endswith("\n")
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            mark, name, rest = line[2:].split(" ", 2)
            assert mark in ("HELP", "TYPE")
            if mark == "TYPE":
                assert rest in ("counter", "gauge", "histogram")
                assert name not in kinds
                kinds[name] = rest
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        base = re.sub(r"_(bucket|sum|count)$", "", sample["name"])
        assert sample["name"] in kinds or kinds.get(base) == "histogram", line
        key = sample["name"] + (f"{{{sample['labels']}}}" if sample["labels"] else "")
        assert key not in found
        found[key] = float(sample["value"])
    return found


def test_nothing_yet() -> None:
    samples = read(Metrics().text())
    assert samples["flawsort_images_set_aside_total"] == 0
    assert samples["flawsort_request_seconds_count"] == 0


def test_requests_and_errors_by_reason() -> None:
    metrics = Metrics()
    for path, status in (("/image", 200), ("/image", 401), ("/images", 401), ("other", 418)):
        metrics.answered(path, status, 0.1)
    samples = read(metrics.text())
    assert samples['flawsort_requests_total{path="/image",status="200"}'] == 1
    assert samples['flawsort_errors_total{reason="token"}'] == 2
    assert samples['flawsort_errors_total{reason="418"}'] == 1


def test_images_groups_and_verdicts() -> None:
    metrics = Metrics()
    metrics.sorted(["dent", "dent", 'a "b"\\\n'], ["OK", "not OK", ""], 2)
    samples = read(metrics.text())
    assert samples['flawsort_images_total{group="dent"}'] == 2
    assert samples['flawsort_images_total{group="a \\"b\\"\\\\\\n"}'] == 1
    assert samples['flawsort_verdicts_total{verdict="none"}'] == 1
    assert samples["flawsort_images_set_aside_total"] == 2


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.051, 60.0, 1000.0])
def test_the_histogram_is_cumulative(seconds: float) -> None:
    metrics = Metrics()
    metrics.answered("/image", 200, seconds)
    metrics.answered("/health", 200, 5.0)  # not about images
    metrics.answered("/image", 422, 5.0)  # not answered
    samples = read(metrics.text())
    for limit in BUCKETS:
        shown = str(int(limit)) if limit == int(limit) else str(limit)
        counted = samples[f'flawsort_request_seconds_bucket{{le="{shown}"}}']
        assert counted == (seconds <= limit)
    assert samples['flawsort_request_seconds_bucket{le="+Inf"}'] == 1
    assert samples["flawsort_request_seconds_count"] == 1
    assert samples["flawsort_request_seconds_sum"] == seconds


def test_gauges_are_read_when_asked() -> None:
    value = [3.0]
    metrics = Metrics({"waiting": ("How many.", lambda: value[0])})
    assert read(metrics.text())["flawsort_waiting"] == 3
    value[0] = 0.5
    assert read(metrics.text())["flawsort_waiting"] == 0.5


def test_several_threads_lose_no_count() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(2000):
            metrics.answered("/image", 200, 0.01)
            metrics.sorted(["a"], ["OK"], 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    samples = read(metrics.text())
    assert samples['flawsort_images_total{group="a"}'] == 8000
    assert samples["flawsort_request_seconds_count"] == 8000
