"""The HTML report: self-contained, safe with any file name, and right in a real browser."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster

from flawsort.core.errors import RunError
from flawsort.embeddings.heat import NORMAL_PRECISION
from flawsort.outputs.report import page, render_report
from flawsort.outputs.report.page import advice_sentence
from flawsort.outputs.report.payload import payload
from helpers.html import Page, browse, needs_browser, shown_sizes
from helpers.report_runs import (
    HOSTILE,
    advice,
    make_evaluation,
    make_run,
)


def unpacked(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


def test_page_is_well_formed_and_points_nowhere() -> None:
    run = make_run()
    html = render_report(run, make_evaluation(run))
    assert "http://" not in html
    assert "https://" not in html
    seen = Page(html)
    for tag, attributes in seen.tags:
        assert tag not in {"link", "iframe", "object", "base"}
        assert "src" not in attributes, tag
        assert (attributes.get("href") or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]


def test_policy_allows_this_script_and_data_images_only() -> None:
    html = render_report(make_run())
    seen = Page(html)
    policy = next(a["content"] for t, a in seen.tags if a.get("http-equiv"))
    script = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}'; ")
    assert "img-src data:;" in policy


def test_hostile_names_stay_text() -> None:
    run = make_run()
    html = render_report(run, make_evaluation(run))
    html.encode("utf-8")
    seen = Page(html)
    assert [tag for tag, _ in seen.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in seen.tags]
    assert "dent" not in [tag for tag, _ in seen.tags]
    assert seen.data()["names"][:5] == list(HOSTILE[:5])
    assert seen.data()["names"][5] == "bytes that are no text \ufffd.png"
    assert HOSTILE[0] in seen.words()
    assert "mind <b>this</b>" in seen.words()
    assert "cut <short>" in seen.words()


def test_data_island_gives_the_run_back() -> None:
    run = make_run()
    data = Page(render_report(run)).data()
    assert data["n"] == 40
    assert data["k"] == {"saved": 4, "min": 2, "max": 40}
    assert data["cluster"] == run.table["cluster"]
    assert [base64.b64decode(t) for t in data["thumbs"]] == list(run.thumbnails)
    assert data["aspect"][:2] == [round(16 / 24, 4), 2.0]
    assert np.array_equal(unpacked(data["merges"], "<i4").reshape(-1, 2), run.linkage[:, :2])
    assert np.allclose(unpacked(data["heights"], "<f4"), run.linkage[:, 2])
    assert np.allclose(
        unpacked(data["layout"], "<u2").reshape(-1, 2) / 65535, run.layout, atol=1e-4
    )
    heat = unpacked(data["heat"], "u1").reshape(40, 20) / 255
    assert np.allclose(heat, np.clip((run.scores - 0.1) / 0.9, 0, 1), atol=1 / 255)
    assert data["truth"] is None


@pytest.mark.parametrize("dim", [12, 48])
def test_reduced_vectors_keep_the_distances(dim: int) -> None:
    run = make_run(n=30, dim=dim)
    data = Page(render_report(run)).data()
    packed = unpacked(data["vectors"], "<i2").reshape(30, data["dims"]).astype(float)
    assert data["dims"] == min(dim, 30)
    here = np.linalg.norm(packed[:, None] - packed, axis=2)
    there = np.linalg.norm(run.embeddings[:, None] - run.embeddings, axis=2)
    assert np.allclose(here / here.max(), there / there.max(), atol=1e-3)


def test_patches_that_do_not_count_are_cold() -> None:
    run = make_run()
    valid = np.ones(run.scores.shape, dtype=bool)
    valid[:, 7] = False
    data = Page(render_report(dataclasses.replace(run, valid=valid))).data()
    assert unpacked(data["heat"], "u1").max() == 0


def test_too_many_patches_are_kept_as_hottest_of_blocks() -> None:
    data = payload(make_run(), max_heat_cells=300)
    assert data["grid"] == [2, 3]
    heat = unpacked(data["heat"], "u1").reshape(40, 2, 3)
    hot = heat.reshape(40, -1).max(axis=1) == 255
    assert hot.any()
    assert (heat[hot, 0, 1] == 255).all()  # patch 7: second row, third column


def test_without_normals_nothing_looks_normal() -> None:
    run = make_run()
    cold = (run.scores.max(axis=1) < 0.5).astype(int)
    assert 0 < cold.sum() < 40
    assert Page(render_report(run)).data()["looksNormal"] == cold.tolist()
    run.table["flags"] = [""] * 40
    assert Page(render_report(run)).data()["looksNormal"] == [0] * 40


def test_same_run_same_text_without_timings() -> None:
    assert render_report(make_run()) == render_report(make_run())
    assert "123.456" not in render_report(make_run())


def test_settings_are_named_once_and_rounded() -> None:
    run = make_run()
    run.manifest["settings"] = {"seed": 7, "temperature": 2.7255570336808694}
    html = render_report(run)
    assert html.count("<dt>seed</dt>") == 1
    assert "<dd>2.72556</dd>" in html
    del run.manifest["settings"]["seed"]  # as in runs of older versions
    assert render_report(run).count("<dt>seed</dt>") == 1


def test_tables_and_tiles_show_the_evaluation() -> None:
    run = make_run()
    words = Page(render_report(run, make_evaluation(run))).words()
    for text in ("0.912", "0.800", "Left out: mixed<i>", "17", "Apache-2.0", "c0ffee", "copy.png"):
        assert text in words
    assert "given is the true number of kinds" not in words
    run.manifest["clusters"]["chosen"] = "given"
    known = make_evaluation(run) | {"true_k": run.manifest["clusters"]["n_clusters"]}
    words = Page(render_report(run, known)).words()
    assert "The number of groups given is the true number of kinds" in words
    assert "Against the truth" not in Page(render_report(run)).words()


@pytest.mark.parametrize(
    ("clusters", "tone", "text"),
    [
        ({"chosen": "auto", "advice": advice(4)}, "sure", "suggest 4 groups; anything from 3 to 5"),
        ({"chosen": "given", "advice": advice(6)}, "sure", "for 4 groups. The images suggest 6"),
        ({"chosen": "given", "advice": advice(4)}, "sure", "The images suggest 4 groups too"),
        ({"chosen": "auto", "advice": advice(4) | {"ambiguous": True}}, "unsure", "do not settle"),
        ({"chosen": "given", "advice": None}, "none", "You asked for 4 groups. No advice"),
        ({}, "none", "No advice"),
    ],
)  # fmt: skip
def test_advice_is_one_plain_sentence(clusters: dict[str, Any], tone: str, text: str) -> None:
    said = advice_sentence(clusters, 4)
    assert said[0] == tone
    assert text in said[1]


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_small_runs_without_advice(n: int, k: int) -> None:
    run = make_run(n, k)
    run.manifest["clusters"]["advice"] = None
    run.manifest.update(set_aside=[], duplicates=[], warnings=[])
    seen = Page(render_report(run))
    assert seen.data()["k"] == {"saved": k, "min": min(2, k), "max": n}
    assert "Every file could be read." in seen.words()


def test_parts_that_do_not_fit_are_refused() -> None:
    run = make_run()
    with pytest.raises(RunError, match="The run has 40 images, but layout has 39"):
        render_report(dataclasses.replace(run, layout=run.layout[:-1]))
    with pytest.raises(RunError, match="grid is 3 x 3, but scores have 20 patches"):
        render_report(dataclasses.replace(run, manifest={**run.manifest, "grid": [3, 3]}))


@needs_browser
def test_browser_shows_the_saved_groups(tmp_path: Path) -> None:
    run = make_run()
    dom = browse(render_report(run, make_evaluation(run)), tmp_path)
    sizes = np.bincount(run.table["cluster"]).tolist()
    assert shown_sizes(dom) == sizes
    assert re.findall(r'<h2 class="file">Group (\d+)</h2>', dom) == ["0", "1", "2", "3"]
    assert dom.count('class="badge"') == 1
    cold = run.table["cluster"][int(run.scores.max(axis=1).argmin())]
    group = dom.split('<article class="group" id="g')[cold + 1]
    (badge,) = re.findall(r'<span class="badge" title="([^"]*)">looks normal', group)
    assert badge.endswith(str(NORMAL_PRECISION))
    assert "alert(1)</script>" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)


@needs_browser
def test_browser_shows_no_badge_where_nothing_was_compared(tmp_path: Path) -> None:
    run = make_run()
    run.table["flags"] = [""] * 40
    dom = browse(render_report(run), tmp_path)
    assert len(shown_sizes(dom)) == 4
    assert 'class="badge"' not in dom


@needs_browser
def test_browser_cuts_the_tree_as_scipy_does(tmp_path: Path) -> None:
    run = make_run()
    dom = browse(render_report(run), tmp_path, "#k=7")
    expected = np.bincount(fcluster(run.linkage, 7, "maxclust"))[1:]
    assert shown_sizes(dom) == sorted(expected.tolist(), reverse=True)


@needs_browser
def test_browser_filters_by_what_the_address_says(tmp_path: Path) -> None:
    run = make_run()
    run.table["flags"] = ["borderline" if row % 3 == 0 else "" for row in range(40)]
    least = sorted(run.table["score"])[15]
    found = [
        row for row in range(40) if row % 3 == 0 and run.table["score"][row] >= round(least, 3)
    ]
    address = f"#flags=borderline&score={least:.3f}..&colour=red"
    dom = browse(render_report(run), tmp_path, address)
    assert f"{len(found)} of 40 images" in dom
    assert dom.count('class="chip-words') == 2
    per_group = np.bincount(np.array(run.table["cluster"])[found])
    said = re.findall(r"(\d+) of \d+ images? match", dom)
    assert sorted(map(int, said)) == sorted(per_group[per_group > 0].tolist())
    nothing = browse(render_report(run), tmp_path, "#name=no-such-file")
    assert "No image meets these filters." in nothing


DRIVE = """
setTimeout(() => {
  const said = [];
  document.querySelector("#g1 .thumb").click();
  said.push($("box").open, $("box-name").textContent, document.querySelectorAll("#box img").length);
  $("box").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  said.push($("box-name").textContent, $("box-place").textContent);
  $("box").close();
  document.querySelector("#g0 .quiet").click();
  said.push(document.querySelectorAll("#g0 .thumb").length);
  const field = document.querySelector("#finding input");
  field.value = "<\\/SCRIPT ><img";
  field.dispatchEvent(new Event("input"));
  setTimeout(() => {
    said.push(document.querySelectorAll(".group").length);
    said.push(document.querySelectorAll(".thumb").length);
    document.title = JSON.stringify(said);
  }, 200);
}, 200);
"""


@needs_browser
def test_browser_opens_steps_expands_and_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = page._source
    added = {"report.js": DRIVE}
    monkeypatch.setattr(page, "_source", lambda name: source(name) + added.get(name, ""))
    run = make_run()
    dom = browse(render_report(run), tmp_path)
    said = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert said is not None
    table = run.table
    group = [i for i in range(40) if table["cluster"][i] == 1]
    group.sort(key=lambda i: -table["typicality"][i])
    names = [table["name"][i] for i in group[:2]]
    got = json.loads(said[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert got == [True, names[0], 1, names[1], f"2 of {len(group)}",
                   table["cluster"].count(0), 1, 1]  # fmt: skip


@needs_browser
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2)])
def test_browser_shows_tiny_runs(tmp_path: Path, n: int, k: int) -> None:
    run = make_run(n, k)
    run.manifest["clusters"]["advice"] = None
    assert shown_sizes(browse(render_report(run), tmp_path)) == [1] * k
