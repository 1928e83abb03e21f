"""Whether there are enough normals, of the same kind as the images and apart from them."""

from __future__ import annotations

import numpy as np

from flawsort.embeddings.heat import HeatScale
from flawsort.health.normals import FEW_NORMALS, among_images, few, nothing_stands_out, unlike
from helpers.facts import N, changed, made_facts


def test_normals_of_another_product() -> None:
    facts = made_facts()
    assert unlike(facts) == []
    scores = facts.scores.copy()
    scores[: N // 2 + 1, :420] = 5.0
    (found,) = unlike(changed(facts, scores=scores))
    assert found.value == 420 / 480
    scores[N // 2 :] = 0.0  # of half of the images only
    assert unlike(changed(facts, scores=scores)) == []
    assert unlike(changed(facts, scores=np.full_like(scores, 5.0), normal_digests=None)) == []


def test_few_normals_are_counted_by_content() -> None:
    assert few(made_facts(normals=0)) == few(made_facts(normals=FEW_NORMALS)) == []
    (found,) = few(made_facts(normal_digests=("a",) * 30 + ("b",)))
    assert found.sentence.startswith("There are only 2 known-good images")
    (found,) = few(made_facts(normals=1))
    assert found.sentence.startswith("There is only 1 known-good image:")


def test_normals_among_the_images() -> None:
    assert among_images(made_facts()) == []
    (found,) = among_images(made_facts(normal_digests=("007", "x", "008")))
    assert found.images == ("007.png", "008.png")
    (found,) = among_images(made_facts(normal_digests=("007", "x")))
    assert found.sentence.startswith("1 of the images is also among the known-good ones")


def test_nothing_stands_out() -> None:
    facts = made_facts()
    assert nothing_stands_out(facts) == []
    calm = changed(facts, image_scores=np.full(N, 1.0))
    (found,) = nothing_stands_out(calm)
    assert found.sentence.startswith("None of the 40 images is more unusual")
    one = np.full(N, 1.0)
    one[3] = 1.6
    (found,) = nothing_stands_out(changed(facts, image_scores=one))
    assert found.sentence.startswith("Only 1 image of 40 is")
    one[3] = 9.0  # a flaw
    assert nothing_stands_out(changed(facts, image_scores=one)) == []
    one[:] = 1.0
    one[:4] = 1.6  # more than chance makes
    assert nothing_stands_out(changed(facts, image_scores=one)) == []
    assert nothing_stands_out(changed(calm, heat=HeatScale(1.0, 2.0))) == []
