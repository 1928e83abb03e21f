"""Charts as SVG text: the number of images of each group by day or lot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from flawsort.core.text import clean
from flawsort.labels.groups import NO_GROUP, Group
from flawsort.runs.trends import Counts, Increase, rises

PERIODS_SHOWN = 90
"""A chart shows at most this many periods, the last ones."""

_PANEL = (390, 132)
_PLOT = (42, 28, 362, 104)  # left, top, right, bottom within a panel


def chart_svg(counts: Counts, titles: Mapping[int, str], *, columns: int = 2) -> str:
    """A chart as SVG text: bars over the periods for each group, groups with an increase first,
    then the largest. Text has the colour of the surrounding page.

    titles: of groups by id; escaped here. columns: the number of groups side by side.
    """
    names, order, risen = _arranged(counts, titles)
    above = 0 if len(counts.periods) <= PERIODS_SHOWN else 24
    width = _PANEL[0] * max(1, min(columns, len(order)))
    height = above + _PANEL[1] * max(1, -(-len(order) // columns))
    body = []
    if above:
        words = f"The last {PERIODS_SHOWN} of {len(counts.periods):,} periods"
        body.append(_words(0, 14, words, size=13))
    if not order:
        body.append(_words(0, 20, "No images", size=13))
    for place, column in enumerate(order):
        left, top = place % columns * _PANEL[0], above + place // columns * _PANEL[1]
        group = counts.groups[column]
        body.append(f'<g transform="translate({left} {top})">')
        body += _panel(counts, column, names[group], risen.get(group))
        body.append("</g>")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="Images of each group by '
            'period" font-family="system-ui, sans-serif" fill="currentColor">',
            *body,
            "</svg>\n",
        ]
    )


def chart_panels(counts: Counts, titles: Mapping[int, str]) -> list[str]:
    """The groups of `chart_svg` in the same order, each as an SVG of its own: a page can be broken
    between them."""
    names, order, risen = _arranged(counts, titles)
    found = []
    for column in order:
        group = counts.groups[column]
        label = f"{_safe(names[group])} by period"
        body = _panel(counts, column, names[group], risen.get(group))
        found.append(
            f'<svg viewBox="0 0 {_PANEL[0]} {_PANEL[1]}" role="img" aria-label="{label}" '
            f'font-family="system-ui, sans-serif" fill="currentColor">{"".join(body)}</svg>'
        )
    return found


def _arranged(
    counts: Counts, titles: Mapping[int, str]
) -> tuple[dict[int, str], list[int], dict[int, Increase]]:
    """The titles of the groups, their columns in the order of the panels, and the increases."""
    risen = {rise.group: rise for rise in rises(counts)}
    totals = counts.table.sum(axis=0)
    order = sorted(
        range(len(counts.groups)),
        key=lambda column: (counts.groups[column] not in risen, -totals[column], column),
    )
    names = {group: titles.get(group, _default_title(group)) for group in counts.groups}
    return names, order, risen


def _default_title(group: int) -> str:
    return f"Group {group}" if group >= 0 else "New kind"


def _panel(counts: Counts, column: int, title: str, rise: Increase | None) -> list[str]:
    """The bars of one group, its title above and periods below."""
    left, top, right, bottom = _PLOT
    group = counts.groups[column]
    colour = Group(group).colour if group >= 0 else NO_GROUP
    shown_periods = counts.periods[-PERIODS_SHOWN:]
    values = counts.table[-PERIODS_SHOWN:, column].tolist()
    most = max(1, *values)
    step = (right - left) / len(values)
    wide = min(0.8 * step, 36)
    parts = [
        f'<rect x="0" y="5" width="10" height="10" rx="2" fill="{colour}"/>',
        _words(16, 15, title, size=13, most=26 if rise else 42, weight=600),
    ]
    if rise:
        words = f"▲ {rise.count:,}, expected {rise.expected:,.1f}"
        parts.append(_words(right, 15, words, anchor="end"))
    parts += [
        _words(left - 4, top + 5, f"{most:,}", anchor="end"),
        f'<path d="M{left} {top}H{right}" stroke="currentColor" stroke-opacity=".2"/>',
    ]
    for place, (period, value) in enumerate(zip(shown_periods, values, strict=True)):
        if not value:
            continue
        tall = (bottom - top) * value / most
        x = left + (place + 0.5) * step - wide / 2
        edge = ' stroke="currentColor"' if rise and rise.period == period else ""
        parts.append(
            f'<rect x="{x:.2f}" y="{bottom - tall:.2f}" width="{wide:.2f}" height="{tall:.2f}" '
            f'fill="{colour}"{edge}><title>{_safe(period)}: {value:,}</title></rect>'
        )
    axis = f'<path d="M{left} {bottom}H{right}" stroke="currentColor" stroke-opacity=".5"/>'
    return [*parts, axis, *_below(shown_periods, step)]


def _below(names: Sequence[str], step: float) -> list[str]:
    """The names of the periods under their bars; only the first and the last if there are many."""
    left, _, right, bottom = _PLOT
    y = bottom + 14
    if len(names) > 4:
        last = _words(right, y, names[-1], most=22, anchor="end")
        return [_words(left, y, names[0], most=22), last]
    return [
        _words(left + (place + 0.5) * step, y, name, most=44 // len(names), anchor="middle")
        for place, name in enumerate(names)
    ]


def _words(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 11,
    most: int = 60,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    """A line of text, cut to `most` characters; the tooltip of a cut line has the whole text."""
    clipped = words if len(words) <= most else words[: most - 1].rstrip() + "…"
    tip = f"<title>{_safe(words)}</title>" if clipped != words else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{tip}{_safe(clipped)}</text>'
    )


def _safe(words: str) -> str:
    """Text for XML: escaped, and without characters that XML does not allow."""
    return escape(clean(words))
