"""The summary that `flawsort cluster` prints: the groups, notes about them, and the next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flawsort.cli import console
from flawsort.core.tables import as_rows
from flawsort.core.text import pluralise
from flawsort.embeddings.heat import NORMAL_GROUP_SHARE, NORMAL_PRECISION
from flawsort.labels.groups import Labelling
from flawsort.labels.suggestions import decided
from flawsort.runs.folder import REPORT
from flawsort.runs.run import Run

SHOWN_ASIDE = 8
SHOWN_FINDINGS = 3


def summary(
    run: Run, output: Path, evaluation: dict[str, Any] | None, now: Labelling | None = None
) -> dict[str, Any]:
    """A run as values for JSON. now: its groups, if it began with known labels."""
    kept = ("mode", "n_images", "n_normals", "clusters", "warnings", "set_aside", "timings")
    figures = None
    if evaluation is not None:
        figures = {name: evaluation[name] for name in ("nmi", "ari", "f1", "purity", "true_k")}
    return {
        "run": str(output),
        "report": str(output / REPORT),
        **{key: run.manifest[key] for key in kept},
        "health": None if run.health is None else run.health.to_dict(),
        "evaluation": figures,
        "groups": groups(run) if now is None else named_groups(run, now),
        "images": as_rows(run.table),
    }


def groups(run: Run) -> list[dict[str, Any]]:
    """The size, the mean score and the most typical images of each group."""
    looks_normal, scores = run.looks_normal, np.array(run.table["score"])
    entries = []
    for group in range(run.n_clusters):
        members = run.rows_of(group)
        entries.append(
            {
                "group": group,
                "n_images": len(members),
                "mean_score": float(scores[np.sort(members)].mean()),
                "looks_normal": bool(looks_normal[members].mean() >= NORMAL_GROUP_SHARE),
                "typical": [run.names[row] for row in members[:3]],
            }
        )
    return entries


def named_groups(run: Run, now: Labelling) -> list[dict[str, Any]]:
    """The same of each group that has images, by its name. now: with every image where it is
    decided or suggested to be."""
    looks_normal, scores = run.looks_normal, np.array(run.table["score"])
    typical, known = np.array(run.table["typicality"]), decided(now)
    entries = []
    for group in now.groups.values():
        members = now.members(group.id)
        if not len(members):
            continue
        ranked = members[np.argsort(-typical[members], kind="stable")]
        entries.append(
            {
                "group": group.title,
                "n_images": len(members),
                "n_decided": int(known[members].sum()),
                "new": group.role == "flaw" and not group.name,
                "mean_score": float(scores[members].mean()),
                "looks_normal": bool(looks_normal[members].mean() >= NORMAL_GROUP_SHARE),
                "typical": [run.names[row] for row in ranked[:3]],
            }
        )
    return sorted(entries, key=lambda one: -int(one["n_images"]))


def show_clusters(
    run: Run, output: Path, evaluation: dict[str, Any] | None, now: Labelling | None = None
) -> None:
    """Print the groups, notes about them, the path of the report, and the next step. now: the
    groups, if the run began with known labels."""
    manifest = run.manifest
    found = pluralise(manifest["n_images"], "image")
    if manifest["n_normals"]:
        found += f" and {pluralise(manifest['n_normals'], 'known-good one')}"
    n_views = 1 + len(manifest.get("beside", []))
    views = f"; looked at in {n_views} views" if n_views > 1 else ""
    console.say(f"{found}: {manifest['scored']}{views}.")
    if now is None:
        _show_groups(run)
        _show_number(manifest["clusters"])
    else:
        _show_named_groups(run, now)
    _show_notes(run)
    if evaluation is not None:
        console.say(
            f"Against the true labels: NMI {evaluation['nmi']:.3f}, ARI {evaluation['ari']:.3f}, "
            f"F1 {evaluation['f1']:.3f}, with "
            f"{pluralise(len(evaluation['clusters']), 'group')} for "
            f"{pluralise(evaluation['true_k'], 'kind')}."
        )
    stages = dict(manifest["timings"])
    total = stages.pop("total", sum(stages.values()))
    spent = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in stages.items())
    console.say(f"Time: {total:.1f} s ({spent}).")
    console.say()
    _show_health(run)
    console.say(f"Report: {output / REPORT}")
    console.next_step("flawsort", "review", output)


def _show_health(run: Run) -> None:
    """Print the most serious findings of the health check."""
    if run.health is None or not run.health.findings:
        return
    findings = run.health.findings
    console.say("Before you trust the groups:")
    for finding in findings[:SHOWN_FINDINGS]:
        console.say(f"- {finding}")
    if len(findings) > SHOWN_FINDINGS:
        console.say(f"- {len(findings) - SHOWN_FINDINGS} more: see the report.")
    console.say()


def _show_groups(run: Run) -> None:
    found = groups(run)
    rows = [
        [one["group"], one["n_images"], one["mean_score"], ", ".join(one["typical"])]
        for one in found
    ]
    columns = ["group", "images", "mean score", "most typical"]
    any_normal = any(one["looks_normal"] for one in found)
    if any_normal:
        columns.insert(3, "")
        for row, one in zip(rows, found, strict=True):
            row.insert(3, "looks normal" if one["looks_normal"] else "")
    console.say()
    console.print_table("", columns, rows)
    console.say("A higher score is more unusual. Scores of different runs cannot be compared.")
    if any_normal:
        console.say(str(NORMAL_PRECISION))
    console.say()


def _show_named_groups(run: Run, now: Labelling) -> None:
    found = named_groups(run, now)
    rows = [
        [
            one["group"],
            one["n_images"],
            one["n_decided"],
            one["mean_score"],
            ", ".join(one["typical"]),
        ]
        for one in found
    ]
    console.say()
    console.print_table("", ["group", "images", "decided", "mean score", "most typical"], rows)
    console.say("A higher score is more unusual. Scores of different runs cannot be compared.")
    console.say()
    new = sum(one["new"] for one in found)
    console.say(
        f"Number of groups: {len(found)}, {len(found) - new} of them known and {new} new. Images "
        "that are not decided are where the known ones suggest."
    )


def _show_number(clusters: dict[str, Any]) -> None:
    """Print the number of groups, and the advised number."""
    advice = clusters["advice"]
    suggested = str(advice["k"])
    if advice["low"] < advice["high"]:
        suggested += f", and {advice['low']} to {advice['high']} are plausible"
    if advice["ambiguous"]:
        suggested += "; this is uncertain"
    console.say(f"Number of groups: {clusters['n_clusters']}. The images suggest {suggested}.")
    console.say(f"  {advice['reason']}")


def _show_notes(run: Run) -> None:
    manifest = run.manifest
    several = sum(len(kinds) > 1 for kinds in run.kinds)
    if several:
        console.say(
            f"{several:,} of the images {'seems' if several == 1 else 'seem'} to show several "
            "kinds of flaw: see the column kinds in images.csv, and regions.csv."
        )
    for warning in manifest["warnings"]:
        console.say(f"Note: {warning}")
    for entry in manifest["set_aside"][:SHOWN_ASIDE]:
        what = "Set aside" if entry["kind"] == "image" else "Set aside (known good)"
        console.say(f"{what}: {entry['name']}: {entry['reason']}")
    if len(manifest["set_aside"]) > SHOWN_ASIDE:
        more = len(manifest["set_aside"]) - SHOWN_ASIDE
        console.say(f"Set aside: {more} more; the report lists them all.")
