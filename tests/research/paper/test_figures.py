"""The paper's figures: what is drawn where, read back from the figure and from its SVG file."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from flawsort.backbones import load_backbone
from flawsort.core.errors import FlawsortError, InputError, OptionError
from flawsort.core.records import Bags
from flawsort.embeddings.weights import score_spread, soft_weights
from flawsort.research.paper import example_figures as pictures
from flawsort.research.paper import figures
from flawsort.research.paper import layout as sheet
from flawsort.research.paper.example_figures import hausdorff_picks, heat_of
from flawsort.research.paper.figures import FIGURES
from flawsort.research.paper.layout import set_name, type_name
from flawsort.research.paper.maximum_figure import farthest, misled_most
from flawsort.research.paper.methods import PAPER, represent, scores_of
from flawsort.research.paper.protocol import find_tasks
from flawsort.research.paper.shared import PreparedSet
from flawsort.research.paper.tables import FOUR, TABLES, Cell, Filled, Options
from helpers.bags import unit_vectors
from helpers.oracles import naive_nearest
from helpers.plates import SIDE, plate

GROUPS = ("object", "texture", "mtd")
DRAWN = (
    "purity",
    "tau",
    "tau-absolute",
    "top-k",
    "labelled-normals",
    "feature-extractors",
    "patch-vs-holistic",
)
KINDS = ("dent", "streak", "good")
# PNG files in few pixels, which take less time.
DPI = 50
draw = partial(figures.draw, dpi=DPI)
draw_attention = partial(figures.draw_attention, dpi=DPI)
draw_clusters = partial(figures.draw_clusters, dpi=DPI)
draw_maximum = partial(figures.draw_maximum, dpi=DPI)


def nmi(group: str, row: str) -> float:
    """A number that no other group or row has."""
    return round(0.2 + 0.2 * GROUPS.index(group) + (hash_of(row) % 997) / 9970, 4)


def hash_of(text: str) -> int:
    return sum((at + 1) ** 2 * ord(letter) for at, letter in enumerate(text))


def curve(row: str, n: int) -> list[float]:
    return (1 - np.linspace(0.9, 0, n) ** (2 + FOUR.index(row))).tolist()


def filled(name: str, groups: tuple[str, ...] = GROUPS, backbone: str = "wide_resnet50") -> Filled:
    """The table of that name with made-up numbers; the purity of two sets."""
    rows = [label for label, _ in TABLES[name].rows(Options())]
    cells = [Cell(group, row, "nmi", nmi(group, row)) for group in groups for row in rows]
    cells += [Cell("overall", row, "nmi", 0.99) for row in rows]
    found = {}
    if name == "purity":
        for place, n in (("metal_nut", 12), ("mtd", 30)):
            for row in rows:
                values = curve(row, n)
                found[place, row] = {"curve": values, "mauc": float(np.mean(values))}
    return Filled(TABLES[name], backbone, tuple(cells), found, (), (), {})


def without(part: Filled, lacks: Callable[[str, str], bool]) -> Filled:
    """The same without the numbers of some groups or sets and rows."""
    cells = [
        replace(cell, value=None) if lacks(cell.set, cell.row) else cell for cell in part.cells
    ]
    left = {place: found for place, found in part.figures.items() if not lacks(*place)}
    return replace(part, cells=tuple(cells), figures=left)


def texts(path: Path) -> list[str]:
    """Every text of an SVG file."""
    tree = ElementTree.parse(path)
    return ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]


def n_panels(path: Path) -> int:
    nodes = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}g")
    return sum(node.get("id", "").startswith("axes_") for node in nodes)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are written, as matplotlib has them."""
    written: list[Any] = []

    def note(figure: Any, folder: Path, stem: str, title: str, **_: object) -> list[Path]:
        written.append(figure)
        return [folder / stem]

    monkeypatch.setattr(figures, "write", note)
    monkeypatch.setattr(pictures, "write", note)
    return written


class TestFiles:
    @pytest.mark.parametrize("name", ["purity", "tau", "feature-extractors"])
    def test_two_files_always_the_same(self, name: str, tmp_path: Path) -> None:
        part = filled(name)
        paths = draw(name, [part], tmp_path / "a" / "b")
        assert paths == [tmp_path / "a" / "b" / f"{name}.{kind}" for kind in ("svg", "png")]
        names = [*sheet._STYLE, "font.family"]
        before = [matplotlib.rcParams[one] for one in names]
        with matplotlib.rc_context(
            {"font.size": 20, "svg.fonttype": "path", "figure.facecolor": "red"}
        ):
            again = draw(name, [part], tmp_path / "again")
            assert matplotlib.rcParams["font.size"] == 20
        assert [matplotlib.rcParams[one] for one in names] == before
        assert [one.read_bytes() for one in paths] == [one.read_bytes() for one in again]
        assert b"<dc:date>" not in paths[0].read_bytes()
        with Image.open(paths[1]) as picture:
            assert picture.info["Title"] == FIGURES[name]
            assert "Software" not in picture.info
            assert min(picture.size) > 1.5 * DPI

    def test_every_figure_is_listed(self) -> None:
        assert tuple(FIGURES) == (*DRAWN, "attention", "clusters", "maximum")
        assert set(DRAWN) <= set(TABLES)

    def test_no_pyplot(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
        draw("tau", [filled("tau")], tmp_path)


class TestErrors:
    @pytest.mark.parametrize("name", ["main", "attention"])
    def test_unknown_name(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=rf"name must be one of purity, .* Got '{name}'\."):
            draw(name, [], tmp_path)

    @pytest.mark.parametrize("name", DRAWN)
    def test_nothing_to_draw(self, name: str, tmp_path: Path) -> None:
        empty = without(filled(name), lambda group, row: True)
        for parts in ([], [empty]):
            with pytest.raises(InputError, match=f"The figure '{name}' has nothing to draw"):
                draw(name, parts, tmp_path)
        assert not list(tmp_path.iterdir())

    def test_without_matplotlib(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(FlawsortError, match=r'pip install "flawsort\[paper\]"') as caught:
            draw("tau", [filled("tau")], tmp_path)
        assert isinstance(caught.value, OptionError)


class TestPurity:
    def test_curves(self, seen: list[Any], tmp_path: Path) -> None:
        part = without(filled("purity"), lambda name, row: (name, row) == ("mtd", "wa-semi"))
        draw("purity", [part], tmp_path)
        first, second = seen[0].axes
        assert [axes.get_title() for axes in (first, second)] == ["Metal nut", "Magnetic tiles"]
        for line, row in zip(first.lines, FOUR, strict=True):
            assert line.get_xdata().tolist() == list(range(1, 13))
            assert line.get_ydata().tolist() == curve(row, 12)
        assert len(second.lines) == 3
        looks = {(line.get_color(), str(line.get_linestyle())) for line in first.lines}
        assert len({colour for colour, _ in looks}) == 4

    def test_words(self, tmp_path: Path) -> None:
        svg, _ = draw("purity", [filled("purity")], tmp_path)
        assert n_panels(svg) == 2
        said = texts(svg)
        for words in ("Number of clusters", "Purity", "Maximum Hausdorff", "Average"):
            assert said.count(words) == 1
        assert said.count("Area (mAUC)") == 2
        for row in FOUR:
            assert f"{np.mean(curve(row, 12)):.3f}" in said
            assert f"{np.mean(curve(row, 30)):.3f}" in said

    def test_several_networks_are_named(self, tmp_path: Path) -> None:
        parts = [filled("purity", backbone=name) for name in ("one", "two")]
        svg, _ = draw("purity", parts, tmp_path)
        assert n_panels(svg) == 4
        assert "Metal nut, two" in texts(svg)


class TestSweeps:
    def test_temperatures_ascend(self, seen: list[Any], tmp_path: Path) -> None:
        part = filled("tau")
        part = replace(part, cells=part.cells[::-1])
        draw("tau", [part], tmp_path)
        assert [axes.get_xscale() for axes in seen[0].axes] == ["log", "log"]
        for axes, method in zip(seen[0].axes, ("wa", "wa-semi"), strict=True):
            found = {line.get_color(): line for line in axes.lines}
            assert len(found) == 3
            drawn = {tuple(line.get_ydata()) for line in axes.lines}
            values = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10)
            assert all(tuple(line.get_xdata()) == values for line in axes.lines)
            assert drawn == {
                tuple(nmi(group, f"{method} {value:g}") for value in values) for group in GROUPS
            }

    def test_nothing_is_cut_off(self, seen: list[Any], tmp_path: Path) -> None:
        part = filled("tau")
        higher = tuple(
            replace(cell, value=cell.value + 0.3)
            if cell.value is not None and cell.row.startswith("wa-semi")
            else cell
            for cell in part.cells
        )
        draw("tau", [replace(part, cells=higher)], tmp_path)
        for axes in seen[0].axes:
            low, high = axes.get_ylim()
            assert low == 0
            assert high > max(max(line.get_ydata()) for line in axes.lines)

    def test_words(self, tmp_path: Path) -> None:
        svg, _ = draw("tau", [filled("tau")], tmp_path)
        assert n_panels(svg) == 2
        said = texts(svg)
        for words in (
            "Temperature, in standard deviations of the set's scores",
            "Normalised mutual information",
            "Weighted average, unsupervised",
            "Weighted average, semi-supervised",
            "Objects",
            "Textures",
            "Magnetic tiles",
        ):
            assert said.count(words) == 1
        assert {"0.03", "0.3", "3", "10"} <= set(said)

    def test_missing_rows_and_groups(self, seen: list[Any], tmp_path: Path) -> None:
        gaps = ("wa 0.1", "wa 3")
        part = without(
            filled("tau", ("texture",)), lambda _, row: row in gaps or row.startswith("wa-semi")
        )
        draw("tau", [part], tmp_path)
        (axes,) = seen[0].axes
        (line,) = axes.lines
        assert len(line.get_xdata()) == 11
        assert 0.1 not in line.get_xdata()
        (legend,) = seen[0].legends
        assert [text.get_text() for text in legend.get_texts()] == ["Textures"]

    def test_one_point_is_drawn(self, tmp_path: Path) -> None:
        part = without(filled("tau"), lambda _, row: row != "wa 0.3")
        svg, _ = draw("tau", [part], tmp_path)
        assert n_panels(svg) == 1

    def test_hard_and_soft(self, seen: list[Any], tmp_path: Path) -> None:
        draw("top-k", [filled("top-k")], tmp_path)
        first, second = seen[0].axes
        for axes, method in ((first, "wa"), (second, "wa-semi")):
            assert len(axes.lines) == 6
            for line in axes.lines:
                kind = "soft" if line.get_linestyle() == "-" else "hard"
                counts, values = list(line.get_xdata()), list(line.get_ydata())
                assert counts == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
                group = GROUPS[int((values[0] - 0.2) / 0.2)]
                assert line.get_color() == figures._GROUP_COLOURS[group]
                expected = [nmi(group, f"{method} {kind} {count:g}") for count in counts]
                assert values == expected
        said = [text.get_text() for text in seen[0].legends[0].get_texts()]
        assert said == [
            "Objects", "Textures", "Magnetic tiles", "hard: equal weights", "soft: by score",
        ]  # fmt: skip

    def test_shares_of_normals(self, seen: list[Any], tmp_path: Path) -> None:
        part = without(filled("labelled-normals"), lambda *place: place == ("mtd", "wa"))
        draw("labelled-normals", [part], tmp_path)
        (axes,) = seen[0].axes
        dotted = {line.get_color(): line for line in axes.lines if line.get_linestyle() == ":"}
        solid = {line.get_color(): line for line in axes.lines if line.get_linestyle() == "-"}
        assert (len(dotted), len(solid)) == (2, 3)
        for group in GROUPS:
            colour = figures._GROUP_COLOURS[group]
            shares = list(solid[colour].get_xdata())
            assert shares == [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
            expected = [nmi(group, f"wa-semi {share:g}") for share in shares]
            assert list(solid[colour].get_ydata()) == expected
            if group != "mtd":
                assert set(dotted[colour].get_ydata()) == {nmi(group, "wa")}

    def test_words_of_shares(self, tmp_path: Path) -> None:
        svg, _ = draw("labelled-normals", [filled("labelled-normals")], tmp_path)
        assert n_panels(svg) == 1
        wanted = {"Share of the normal images that are labelled", "unsupervised", "20%"}
        assert wanted <= set(texts(svg))


class TestBars:
    @pytest.mark.parametrize("name", ["feature-extractors", "patch-vs-holistic"])
    def test_groups_are_stacked(self, name: str, seen: list[Any], tmp_path: Path) -> None:
        rows = [label for label, _ in TABLES[name].rows(Options())]
        whole = filled(name, backbone="resnet50")
        part = without(
            filled(name, backbone="vit_base"), lambda *place: place == ("texture", rows[1])
        )
        draw(name, [whole, part], tmp_path)
        first, second = seen[0].axes
        assert [axes.get_title() for axes in (first, second)] == ["resnet50", "vit_base"]
        names = [label.get_text().replace("\n", " ") for label in first.get_yticklabels()]
        assert names == [sheet.METHODS[row] for row in rows]
        assert (len(first.patches), len(second.patches)) == (12, 11)
        for axes, lacking in ((first, ""), (second, "texture")):
            for at, row in enumerate(rows):
                groups = [one for one in GROUPS if (one, at) != (lacking, 1)]
                bars = [bar for bar in axes.patches if bar.get_y() < at < bar.get_y() + 1]
                ends = np.cumsum([nmi(group, row) for group in groups])
                found = [bar.get_x() + bar.get_width() for bar in bars]
                np.testing.assert_allclose(found, ends)
                colours = [to_hex(bar.get_facecolor()) for bar in bars]
                assert colours == [figures._GROUP_COLOURS[group] for group in groups]

    def test_words(self, tmp_path: Path) -> None:
        parts = [filled("feature-extractors", backbone=f"net{i}") for i in range(6)]
        svg, _ = draw("feature-extractors", parts, tmp_path)
        assert n_panels(svg) == 6
        said = texts(svg)
        assert {"net0", "net5", "Objects", "Textures", "Magnetic tiles"} <= set(said)
        assert "Normalised mutual information, added up over the groups of sets" in said
        assert f"{nmi('object', 'wa'):.2f}" in said

    def test_all_zero(self, tmp_path: Path) -> None:
        part = filled("feature-extractors")
        nothing = replace(part, cells=tuple(replace(cell, value=0.0) for cell in part.cells))
        draw("feature-extractors", [nothing], tmp_path)


class TestNames:
    def test_sets_and_types(self) -> None:
        assert set_name("metal_nut") == "Metal nut"
        assert set_name("mtd") == "Magnetic tiles"
        assert set_name("my_parts") == "my_parts"
        assert type_name("bent_wire") == "bent wire"
        assert type_name("x" * 40) == "x" * 23 + "…"

    def test_any_name_can_be_drawn(self, tmp_path: Path) -> None:
        odd = ["<a & b>", "a$\\frac$b", "bell\x07", "瑕疵", "عيب", "दोष"]
        part = filled("purity")
        found = dict(zip([(name, "wa") for name in odd], part.figures.values(), strict=False))
        svg, _ = draw("purity", [replace(part, figures=found)], tmp_path)
        said = texts(svg)
        assert all(name in said for name in [*odd[:2], "bell?", *odd[3:]])


class TestHeat:
    def test_picks_by_plain_loops(self) -> None:
        bags = Bags(unit_vectors(4, 12, 5, seed=1), (3, 4))
        for image in range(4):
            others = [other for other in range(4) if other != image]
            naive = [
                int(naive_nearest(bags.patches[image], bags.patches[other])[0].argmax())
                for other in others
            ]
            assert hausdorff_picks(bags, image, others) == naive

    def test_no_pick_where_nothing_is_seen(self) -> None:
        patches = unit_vectors(2, 12, 5, seed=2)
        first = hausdorff_picks(Bags(patches, (3, 4)), 0, [1])[0]
        valid = np.ones((2, 12), bool)
        valid[0, first] = False
        distances = naive_nearest(patches[0], patches[1])[0]
        distances[first] = -1
        picks = hausdorff_picks(Bags(patches, (3, 4), valid), 0, [1])
        assert picks == [int(distances.argmax())]

    def test_heat(self) -> None:
        weights = np.array([[0.7, 0.1, 0.1, 0.1], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]])
        heat, highest = heat_of(weights)
        assert highest == pytest.approx(2)  # the median of 2.8, 2 and 1 equal shares
        np.testing.assert_allclose(heat, [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
        heat, highest = heat_of(np.array([[0.5, 0.25, 0.125, *[0.025] * 5]]))
        assert highest == pytest.approx(4)
        np.testing.assert_allclose(heat[0, :4], [1, 0.5, 0, 0], atol=1e-12)

    def test_equal_weights_have_no_heat(self) -> None:
        heat, _ = heat_of(np.full((3, 16), 1 / 16, np.float32))
        assert heat.max() == 0


def write_image(path: Path, pixels: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def category(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MVTec-like category: dents and streaks with masks, good ones, some with both flaws."""
    root = tmp_path_factory.mktemp("sets") / "plate"
    for kind in KINDS:
        for number in range(5):
            pixels = plate(kind, number)
            write_image(root / "test" / kind / f"{number:03d}.png", pixels)
            write_image(root / "train" / "good" / f"{number:03d}.png", plate("good", 50 + number))
            if kind != "good":
                flaw = pixels.max(axis=2) < 40 if kind == "dent" else pixels[..., 0] > 200
                mask = (255 * flaw).astype(np.uint8)
                write_image(root / "ground_truth" / kind / f"{number:03d}_mask.png", mask)
    for number in range(2):
        both = np.minimum(plate("dent", number), plate("dent", number + 20))
        write_image(root / "test" / "combined" / f"{number:03d}.png", both)
    return root


@pytest.fixture(scope="module")
def prepared(category: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedSet:
    backbone = load_backbone("efficientnet-lite2", image_size=SIDE)
    return PreparedSet(find_tasks([category])[0], backbone, tmp_path_factory.mktemp("work"))


@pytest.fixture
def bare(prepared: PreparedSet) -> PreparedSet:
    """The same set without normals and masks."""
    task = prepared.task
    data = replace(task.data, normals=None, masks=(None,) * len(task.truth))
    folder = prepared.folder.parent.parent
    return PreparedSet(replace(task, data=data), prepared.backbone, folder)


def naive_pick(bags: Bags, row: int) -> int:
    """The patch that is farthest from all of the image at the least Hausdorff distance."""
    least, pick = np.inf, -1
    for other in set(range(len(bags))) - {row}:
        there = naive_nearest(bags.patches[row], bags.patches[other])[0]
        back = naive_nearest(bags.patches[other], bags.patches[row])[0]
        if max(there.max(), back.max()) < least:
            least, pick = max(there.max(), back.max()), int(there.argmax())
    return pick


class TestAttention:
    def test_files(self, prepared: PreparedSet, tmp_path: Path) -> None:
        svg, png = draw_attention(prepared, tmp_path)
        assert (svg, png) == (tmp_path / "attention-plate.svg", tmp_path / "attention-plate.png")
        said = texts(svg)
        for words in (
            "Where the weights are: plate",
            "Image",
            "Maximum Hausdorff",
            "Unsupervised weights",
            "Semi-supervised weights",
            "Weights from masks",
            *KINDS,
            "combined",
        ):
            assert said.count(words) == 1
        assert any("one scale of colours for all its images" in words for words in said)
        assert n_panels(svg) == 4 * 5 + 3

    def test_always_the_same(self, prepared: PreparedSet, tmp_path: Path) -> None:
        first = draw_attention(prepared, tmp_path / "first", rows=1)
        again = draw_attention(prepared, tmp_path / "again", rows=1)
        assert [one.read_bytes() for one in first] == [one.read_bytes() for one in again]

    def test_marked_types_come_first(
        self, prepared: PreparedSet, seen: list[Any], tmp_path: Path
    ) -> None:
        draw_attention(prepared, tmp_path, rows=3)
        said = [text.get_text() for text in seen[0].texts]
        assert [words for words in said if words in (*KINDS, "combined")] == list(KINDS)

    def test_what_is_overlaid(self, prepared: PreparedSet, seen: list[Any], tmp_path: Path) -> None:
        half = replace(PAPER, temperature=0.5)
        draw_attention(prepared, tmp_path, rows=2, method=half)
        labels = prepared.task.data.labels
        rows = [labels.index("dent"), labels.index("streak")]
        panels = [axes for axes in seen[0].axes if axes.images][:10]
        for place, method in ((2, "wa"), (3, "wa-semi")):
            scores = scores_of(prepared, method)
            weights = soft_weights(scores, 0.5 * score_spread(scores))[rows]
            heat, highest = heat_of(weights)
            for line in range(2):
                picture, layer = panels[5 * line + place].images
                assert (picture.get_array() == prepared.picture(rows[line], 256)).all()
                grid = heat[line].reshape(prepared.bags.grid)
                np.testing.assert_array_equal(layer.get_array(), grid)
                assert layer.get_extent() == picture.get_extent()
                assert (layer.norm.vmin, layer.norm.vmax) == (0, 1)
            bar = seen[0].axes[10 + place - 2]
            assert [text.get_text() for text in bar.texts][1] == f"{highest:.0f} times or more"
        marked = panels[4].images[1].get_array() > 0
        assert (marked.ravel() <= (prepared.mask_shares[rows[0]] > 0)).all()
        assert marked.any()

    def test_what_the_maximum_picks(
        self, prepared: PreparedSet, seen: list[Any], tmp_path: Path
    ) -> None:
        draw_attention(prepared, tmp_path, rows=2)
        bags, picks = prepared.bags, []
        side = 256 / bags.grid[0]
        for axes, kind in ((seen[0].axes[1], "dent"), (seen[0].axes[6], "streak")):
            row = prepared.task.data.labels.index(kind)
            pick = naive_pick(bags, row)
            picks.append(divmod(pick, bags.grid[1]))
            corners = {(box.get_x(), box.get_y()) for box in axes.patches}
            assert corners == {(picks[-1][1] * side, picks[-1][0] * side)}
            assert axes.patches[0].get_width() == side
            assert len(axes.lines) == pictures.NEAREST_SHOWN - 1
            for dot in axes.lines:
                places = np.array([*dot.get_xdata(), *dot.get_ydata()]) / side
                assert (places % 1 == 0.5).all()
        assert any(down != across for down, across in picks)

    def test_without_normals_and_masks(self, bare: PreparedSet, tmp_path: Path) -> None:
        svg, _ = draw_attention(bare, tmp_path)
        said = texts(svg)
        assert "Unsupervised weights" in said
        assert not {"Semi-supervised weights", "Weights from masks"} & set(said)
        assert n_panels(svg) == 4 * 3 + 1

    def test_nothing_is_computed_without_matplotlib(
        self, bare: PreparedSet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        for pictured in (draw_attention, draw_clusters):
            with pytest.raises(OptionError, match="Figures need matplotlib"):
                pictured(bare, tmp_path)
        assert not {"bags", "peers"} & set(bare.__dict__)

    def test_rows_are_checked(self, prepared: PreparedSet, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=r"rows must be at least 1\. Got 0\."):
            draw_attention(prepared, tmp_path, rows=0)


class TestMaximum:
    def test_who_is_misled_and_what_lacks_it_by_plain_loops(self, prepared: PreparedSet) -> None:
        image, patch = misled_most(prepared)
        bags, n = prepared.bags, len(prepared.bags)
        far = np.zeros((n, n, bags.n_patches))
        for i in range(n):
            for j in set(range(n)) - {i}:
                far[i, j] = naive_nearest(bags.patches[i], bags.patches[j])[0]
        others = [[j for j in range(n) if j != i] for i in range(n)]
        weights = []
        for scores in (
            np.array([far[i, others[i]].max(axis=0) for i in range(n)]),
            np.array([far[i, others[i]].mean(axis=0) for i in range(n)]),
        ):
            raised = np.exp(scores / (0.3 * scores.std()))
            weights.append(raised / raised.sum(axis=1, keepdims=True))
        gained = np.where(prepared.mask_shares > 0, -np.inf, weights[0] - weights[1])
        assert gained[image, patch] > gained.max() - 1e-3
        assert prepared.mask_shares[image, patch] == 0
        found = farthest(prepared, image, patch)
        assert sorted(row for row, _ in found) == others[image]
        for row, distance in found:
            assert distance == pytest.approx(far[image, row, patch], abs=2e-4)
        assert [one for _, one in found] == sorted((one for _, one in found), reverse=True)

    def test_files(self, prepared: PreparedSet, tmp_path: Path) -> None:
        paths = draw_maximum(prepared, tmp_path)
        assert paths == [tmp_path / f"maximum-plate.{kind}" for kind in ("svg", "png")]
        words = paths[0].read_text("utf-8")
        assert ">Maximum<" in words
        assert words.count(">lacks it (") == 3
        again = draw_maximum(prepared, tmp_path / "again", stem="other")
        assert [one.name for one in again] == ["other.svg", "other.png"]
        assert [one.read_bytes() for one in again] == [one.read_bytes() for one in paths]


class TestClusters:
    def test_titles_and_frames(
        self, prepared: PreparedSet, seen: list[Any], tmp_path: Path
    ) -> None:
        draw_clusters(prepared, tmp_path, n_clusters=2, per_cluster=30)
        truth, shown = prepared.task.truth, represent(prepared, "wa-semi")
        labels = shown.labels(2)
        titles, hits, frames = [], 0, Counter[str]()
        for label in range(2):
            names = [truth[row] for row in np.flatnonzero(labels == label)]
            counts = Counter(name for name in names if name is not None)
            (major, count), *_ = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            titles.append(f"{major} ({count / counts.total():.2f})")
            hits += count
            frames["#f08c00"] += names.count(None)
            frames["#c1121f"] += counts.total() - count
        assert [axes.get_title("left") for axes in seen[0].axes] == titles
        drawn = [to_hex(box.get_edgecolor()) for axes in seen[0].axes for box in axes.patches]
        assert Counter(drawn) == frames
        assert min(frames.values()) > 0
        assert sum(len(axes.images) for axes in seen[0].axes) == len(truth)
        assert f"purity {hits / 15:.2f}, 3 types" in seen[0].texts[0].get_text()

    def test_the_major_type_has_most_images(self) -> None:
        vectors = np.array([[0.0], [4.0], [2.0], [9.0]])
        truth = ["x", "a", "b", "b", None]
        found = pictures._cluster(np.array([1, 2, 3, 4]), vectors, truth)
        assert (found.major, found.hits, found.counted) == ("b", 2, 3)
        assert found.rows.tolist() == [2, 3, 1, 4]  # their mean is 3.75
        tied = pictures._cluster(np.array([0, 1]), vectors[:2], truth)
        assert (tied.major, tied.hits, tied.counted) == ("a", 1, 2)
        nobody = pictures._cluster(np.array([4]), vectors[:1], truth)
        assert (nobody.major, nobody.hits, nobody.counted) == (None, 0, 0)

    def test_typical_ones_first(
        self, prepared: PreparedSet, seen: list[Any], tmp_path: Path
    ) -> None:
        draw_clusters(prepared, tmp_path, n_clusters=1, per_cluster=4)
        vectors = represent(prepared, "wa-semi").values.astype(np.float64)
        order = np.argsort(((vectors - vectors.mean(axis=0)) ** 2).sum(axis=1))
        (axes,) = seen[0].axes
        assert len(axes.images) == 4
        for at, (layer, row) in enumerate(zip(axes.images, order[:4], strict=True)):
            assert (layer.get_array() == prepared.picture(row, 128)).all()
            left, right, bottom, top = layer.get_extent()
            assert (at, 0) < (left, top) < (right, bottom) < (at + 1, 1)
            assert (bottom - top, right - left) == pytest.approx((0.9, 0.9))
        assert axes.get_title("right") == "17 images"

    def test_files(self, prepared: PreparedSet, tmp_path: Path) -> None:
        svg, png = draw_clusters(prepared, tmp_path, n_clusters=4)
        assert (svg.name, png.name) == ("clusters-plate.svg", "clusters-plate.png")
        assert n_panels(svg) == 4
        assert "several types at once, not counted" in texts(svg)
        again = draw_clusters(prepared, tmp_path / "again", n_clusters=4)
        assert [one.read_bytes() for one in again] == [svg.read_bytes(), png.read_bytes()]

    def test_as_many_clusters_as_images(
        self, bare: PreparedSet, seen: list[Any], tmp_path: Path
    ) -> None:
        draw_clusters(bare, tmp_path, n_clusters=40)
        titles = Counter(axes.get_title("left") for axes in seen[0].axes)
        assert titles == {"several types": 2, **{f"{kind} (1.00)": 5 for kind in KINDS}}
        assert {axes.get_title("right") for axes in seen[0].axes} == {"1 image"}
        title = seen[0].texts[0].get_text()
        assert title.startswith("plate: 17 clusters, weighted average, unsupervised (purity 1.00")

    @pytest.mark.parametrize("wrong", [{"n_clusters": 0}, {"per_cluster": 0}], ids=json.dumps)
    def test_numbers_are_checked(
        self, wrong: dict[str, int], prepared: PreparedSet, tmp_path: Path
    ) -> None:
        with pytest.raises(OptionError, match=r"must be at least 1\. Got n_clusters="):
            draw_clusters(prepared, tmp_path, **wrong)
