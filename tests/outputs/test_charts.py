"""The chart of groups by period: every count is drawn, every name is safe."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from flawsort.labels.groups import COLOURS, NO_GROUP
from flawsort.outputs.charts import chart_svg
from flawsort.runs.trends import Counts, counts

SVG = "{http://www.w3.org/2000/svg}"


def made(table: list[list[int]], periods: str = "abcdefgh") -> Counts:
    values = np.array(table)
    return Counts(tuple(periods[: len(values)]), tuple(range(values.shape[1])), values)


def texts(chart: ElementTree.Element) -> list[str]:
    return ["".join(one.itertext()) for one in chart.iter(f"{SVG}text")]


def bars(panel: ElementTree.Element) -> list[ElementTree.Element]:
    return [one for one in panel.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]


def test_the_chart_shows_every_count() -> None:
    table = made([[4, 1, 0], [2, 0, 8], [3, 1, 7]])
    chart = ElementTree.fromstring(chart_svg(table, {0: "dents", 2: "cracks"}))
    panels = chart.findall(f"{SVG}g")
    assert [texts(panel)[0] for panel in panels] == ["cracks", "dents", "Group 1"]
    for panel, column in zip(panels, (2, 0, 1), strict=True):
        values = table.table[:, column]
        found = bars(panel)
        tips = [one.findtext(f"{SVG}title") for one in found]
        assert tips == [f"{p}: {v}" for p, v in zip("abc", values, strict=True) if v]
        heights = [float(one.get("height", "")) for one in found]
        np.testing.assert_allclose(heights, 76 * values[values > 0] / values.max(), atol=0.01)
        for one in found:
            assert float(one.get("y", "")) + float(one.get("height", "")) == pytest.approx(
                104, abs=0.02
            )
            assert one.get("fill") == COLOURS[column]
        places = [float(one.get("x", "")) + float(one.get("width", "")) / 2 for one in found]
        middles = 42 + (np.flatnonzero(values) + 0.5) * 320 / 3
        np.testing.assert_allclose(places, middles, atol=0.02)
        assert texts(panel)[1:] == [str(values.max()), "a", "b", "c"]


def test_panels_do_not_overlap_and_lie_on_the_page() -> None:
    table = made([[1] * 5, [2] * 5])
    for columns, shape in ((1, (1, 5)), (2, (2, 3)), (3, (3, 2)), (9, (5, 1))):
        chart = ElementTree.fromstring(chart_svg(table, {}, columns=columns))
        assert chart.get("viewBox") == f"0 0 {390 * shape[0]} {132 * shape[1]}"
        places = [panel.get("transform") for panel in chart.findall(f"{SVG}g")]
        assert len(set(places)) == 5
        assert places[-1] == f"translate({4 % columns * 390} {4 // columns * 132})"


def test_groups_that_rise_come_first_and_say_so() -> None:
    table = Counts(("a", "b", "unknown"), (0, 3), np.array([[500, 12], [100, 40], [9, 9]]))
    chart = ElementTree.fromstring(chart_svg(table, {}))
    first, second = chart.findall(f"{SVG}g")
    assert texts(first)[:2] == ["Group 3", "▲ 40, expected 3.3"]
    assert [one.get("stroke") for one in bars(first)] == [None, "currentColor", None]
    assert texts(second)[0] == "Group 0"
    assert {one.get("stroke") for one in bars(second)} == {None}


def test_names_are_escaped_and_clipped() -> None:
    table = Counts(("<lot & 'x'>", "b\x00\ud800"), (0, 1), np.array([[1, 1], [1, 1]]))
    long = "scratches " * 30
    text = chart_svg(table, {0: '<script>alert("x")</script>&', 1: long})
    assert "<script" not in text
    chart = ElementTree.fromstring(text.encode("utf-8"))
    first, second = chart.findall(f"{SVG}g")
    assert texts(first)[0] == '<script>alert("x")</script>&'
    assert bars(first)[0].findtext(f"{SVG}title") == "<lot & 'x'>: 1"
    assert bars(first)[1].findtext(f"{SVG}title") == "b\ufffd\ufffd: 1"
    (title, *_) = second.iter(f"{SVG}text")
    assert title.findtext(f"{SVG}title") == long
    assert len("".join(title.itertext()).removeprefix(long)) <= 42


def test_of_many_periods_the_last_are_shown() -> None:
    table = Counts(
        tuple(f"lot {lot}" for lot in range(120)), (5,), np.arange(1, 121).reshape(-1, 1)
    )
    chart = ElementTree.fromstring(chart_svg(table, {}))
    assert texts(chart)[0] == "The last 90 of 120 periods"
    found = bars(chart)
    assert len(found) == 90
    assert found[0].findtext(f"{SVG}title") == "lot 30: 31"
    assert texts(chart)[-2:] == ["lot 30", "lot 119"]
    assert chart.get("viewBox") == "0 0 390 156"


def test_images_of_no_group_and_no_images_at_all() -> None:
    chart = ElementTree.fromstring(chart_svg(counts(np.array([-1, 8]), ["a", "a"]), {}))
    first, second = chart.findall(f"{SVG}g")
    assert texts(first) == ["New kind", "1", "a"]
    assert bars(first)[0].get("fill") == NO_GROUP
    assert bars(second)[0].get("fill") == COLOURS[0]  # after eight groups
    assert texts(ElementTree.fromstring(chart_svg(counts(np.array([], int), []), {}))) == [
        "No images"
    ]


def test_text_has_the_colour_of_the_page_and_nothing_is_fetched() -> None:
    text = chart_svg(made([[4, 1], [2, 3]]), {})
    assert text == chart_svg(made([[4, 1], [2, 3]]), {})
    chart = ElementTree.fromstring(text)
    assert chart.get("fill") == "currentColor"
    assert all(one.get("fill") is None for one in chart.iter(f"{SVG}text"))
    assert text.count("http") == 1  # the name of SVG itself
    assert "style" not in text  # which a page's policy may forbid
