"""The rows `wa` and `wa-semi` are the preset `paper` of AnomalyClusterer, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort import AnomalyClusterer
from flawsort.backbones import load_backbone
from flawsort.research.paper.methods import represent, scores_of, weights_of
from flawsort.research.paper.protocol import find_tasks
from flawsort.research.paper.shared import PreparedSet
from flawsort.scores.engines import choose_engine
from helpers.paper_sets import SIDE, make_mvtec, make_tiles

BACKBONE = "efficientnet-lite2"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PreparedSet]:
    """An MVTec category and the magnetic tiles, by name."""
    home = tmp_path_factory.mktemp("same")
    folders = make_mvtec(home / "mvtec", ("bottle",)), make_tiles(home / "tiles")
    backbone = load_backbone(BACKBONE, image_size=SIDE)
    engine = choose_engine("cpu", exact=True)
    return {
        task.name: PreparedSet(task, backbone, home / "work", engine=engine)
        for task in find_tasks(folders)
    }


@pytest.mark.parametrize("row", ["wa", "wa-semi"])
@pytest.mark.parametrize("name", ["bottle", "mtd"])
def test_a_row_is_the_preset(prepared: dict[str, PreparedSet], name: str, row: str) -> None:
    one = prepared[name]
    data = one.task.data
    assert data.normals is not None
    model = AnomalyClusterer(
        n_clusters=one.task.n_classes,
        method="paper",
        backbone=BACKBONE,
        image_size=SIDE,
        device="cpu",
        arithmetic="float32",
        cache=None,
    )
    normals = list(map(str, data.normals.sources)) if row == "wa-semi" else None
    model.fit(list(map(str, data.images.sources)), normal=normals)
    assert model.images_.digests == data.images.digests

    np.testing.assert_array_equal(model.scores_, scores_of(one, row))
    np.testing.assert_array_equal(model.weights_, weights_of(one, row))
    found = represent(one, row)
    np.testing.assert_array_equal(model.embeddings_, found.values)
    np.testing.assert_array_equal(model.labels_, found.labels(one.task.n_classes))
    merges = found.linkage()
    np.testing.assert_array_equal(model.linkage_[:, [0, 1, 3]], merges[:, [0, 1, 3]])
    # The estimator links images in the order of their content, which may round otherwise.
    np.testing.assert_allclose(model.linkage_[:, 2], merges[:, 2], rtol=1e-14)
