"""Fill the report's template: the text that needs no script, and the data of the script."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from flawsort.core.text import clean, pluralise
from flawsort.outputs.report.payload import island, payload, shown_groups
from flawsort.outputs.report.reviewed import Reviewed, render_sections, style
from flawsort.outputs.web import STYLES, bundle, script_policy, shared_scripts, shared_style
from flawsort.runs.preview import PAGE, Limits, excerpt
from flawsort.runs.run import Run

SCRIPTS = ("model.js", "pictures.js", "box.js", "charts.js", "filters.js", "report.js")

MODES = {
    "with normals": "compared with known-good images",
    "unsupervised": "compared with each other, no known-good images given",
    "uniform": "compared as whole images, all patches weighted equally",
    "masks": "compared by what their masks mark",
    "heat-maps": "compared by where their given heat maps are hot",
}


def render_report(
    run: Run,
    evaluation: dict[str, Any] | None = None,
    *,
    reviewed: Reviewed | None = None,
    limits: Limits = PAGE,
) -> str:
    """The report of a run as one HTML page that fetches nothing.

    evaluation: scores against truth labels, where there are any: nmi, ari, f1, f1_micro, purity,
    n_evaluated, excluded, true_k, classes, clusters, confusion (classes x clusters) and truth (a
    label or None for each image). reviewed: what people made of the run; its groups take the place
    of the clusters. limits: of the images shown. The same run gives the same text.
    """
    n_images, shown = len(run), None
    if reviewed is None:
        run, rows = excerpt(run, limits)
    else:
        content = reviewed.content
        run, rows = excerpt(run, limits, content.labelling.labels, content.titles)
        shown = shown_groups(content, rows)
    truth = [evaluation["truth"][row] for row in rows] if evaluation else None
    data = payload(run, truth, shown)
    modules = {**shared_scripts(), **{name: _source(name) for name in SCRIPTS}}
    script = bundle("report.js", modules)
    styles = [_source("style.css"), *map(shared_style, STYLES)]
    clusters = run.manifest["clusters"]
    k, n_clusters = data["k"]["saved"], len(np.unique(run.labels))
    return _template().render(
        csp=script_policy(script),
        style=Markup("".join(styles) + ("" if shown is None else style())),
        script=Markup(script),
        island=Markup(island(data)),
        k=k,
        reviewed=None if reviewed is None else Markup(render_sections(reviewed)),
        edits=0 if reviewed is None else reviewed.n_edits,
        n_clusters=n_clusters,
        advice=advice_sentence(clusters, n_clusters),
        chosen=clusters.get("chosen"),
        slider=data["k"],
        evaluation=_evaluation(evaluation) if evaluation else None,
        **_facts(run, n_images),
    )


def advice_sentence(clusters: dict[str, Any], k: int) -> tuple[str, str]:
    """How k was chosen and what the images suggest: a tone and a sentence.

    The tone is "sure", "unsure" or "none".
    """
    advice, chosen = clusters.get("advice"), clusters.get("chosen")
    groups = pluralise(k, "group")
    origin = f"You asked for {groups}." if chosen == "given" else ""
    if not advice:
        return "none", f"{origin} No advice on the number of groups was computed.".strip()
    best, low, high = int(advice["k"]), int(advice["low"]), int(advice["high"])
    span = "" if low == high else f"anything from {low} to {high} is defensible"
    reason = clean(advice.get("reason") or "").strip()
    if advice.get("ambiguous"):
        verdict = f"The images do not settle the number of groups: {span or f'{best} is a guess'}."
        return "unsure", " ".join(filter(None, (origin, verdict, reason)))
    agrees = " too" if origin and best == k else ""
    verdict = f"The images suggest {pluralise(best, 'group')}{agrees}{'; ' + span if span else ''}."
    return "sure", " ".join(filter(None, (origin, verdict, reason)))


def _facts(run: Run, n: int) -> dict[str, Any]:
    """The parts of the manifest that are shown, as text."""
    manifest, mode = run.manifest, clean(run.mode)
    backbones = [one for one in (manifest["backbone"], *manifest.get("beside", [])) if one]
    return {
        "version": clean(manifest.get("flawsort", "")),
        "n": n,
        "n_normals": int(manifest.get("n_normals") or 0),
        "mode": mode,
        "mode_words": MODES.get(mode, ""),
        "grid": run.grid,
        "seed": _text(manifest.get("seed")),
        "heat": _heat(run),
        "backbones": [
            {clean(key).replace("_", " "): _text(value) for key, value in one.items()}
            for one in backbones
        ],
        "backbone_names": ", ".join(_text(one.get("name")) for one in backbones) or _text(None),
        "set_aside": [
            {key: clean(entry.get(key) or "") for key in ("name", "reason", "kind")}
            for entry in manifest.get("set_aside") or []
        ],
        "duplicates": [[clean(name) for name in group] for group in manifest.get("duplicates", [])],
        "warnings": [clean(text) for text in manifest.get("warnings") or []],
        "findings": [
            {"sentence": clean(one.sentence), "advice": clean(one.advice)}
            for one in (run.health.findings if run.health else ())
        ],
        "not_looked_at": [clean(text) for text in run.health.not_looked_at] if run.health else [],
        "settings": _texts(manifest.get("settings") or {}),
        "versions": _texts(manifest.get("versions") or {}),
    }


def _heat(run: Run) -> dict[str, str]:
    """The scale of the heat maps, and the score below which an image looks normal, as text."""
    scale = run.heat
    shown = {"heat, from": scale.low, "heat, full at": scale.high}
    if scale.normal_below is not None:
        shown["looks normal below a score of"] = scale.normal_below
    return {name: f"{value:.4g}" for name, value in shown.items()}


def _evaluation(evaluation: dict[str, Any]) -> dict[str, Any]:
    """The evaluation with each confusion row's counts and their share of the row."""
    rows = []
    for label, counts in zip(evaluation["classes"], evaluation["confusion"], strict=True):
        total = sum(counts)
        cells = [(int(count), round(count / total, 3) if total else 0.0) for count in counts]
        rows.append({"label": clean(label), "cells": cells, "total": int(total)})
    tiles = [
        ("NMI", "nmi", "normalised mutual information; 1 is a perfect match"),
        ("ARI", "ari", "adjusted Rand index; 0 is chance, 1 a perfect match"),
        ("F1", "f1", "mean over the kinds, each matched with one group"),
        ("F1 micro", "f1_micro", "share of images in the group matched with their kind"),
        ("Purity", "purity", "share of images of the commonest kind in their group"),
    ]
    return {
        "tiles": [
            (title, f"{float(evaluation[key]):.3f}", words)
            for title, key, words in tiles
            if evaluation.get(key) is not None
        ],
        "rows": rows,
        "clusters": [int(value) for value in evaluation["clusters"]],
        "n_evaluated": int(evaluation["n_evaluated"]),
        "true_k": int(evaluation["true_k"]),
        "excluded": [clean(label) for label in evaluation.get("excluded") or []],
    }


def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["count"] = pluralise
    return environment.from_string(_source("template.html"))


def _source(name: str) -> str:
    return files("flawsort.outputs.report").joinpath(name).read_text(encoding="utf-8")


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {clean(key): _text(value) for key, value in values.items()}


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | dict | bool):
        return clean(json.dumps(value, ensure_ascii=False))
    return clean(value)
