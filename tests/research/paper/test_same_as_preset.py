"""The rows `wa` and `wa-semi` are the preset `paper` of AnomalyClusterer, but for
the last digits, and to the same groups."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort import AnomalyClusterer
from flawsort.backbones import load_backbone
from flawsort.fitting.memory import Sizes
from flawsort.research.paper.methods import represent, scores_of, weights_of
from flawsort.research.paper.protocol import find_tasks
from flawsort.research.paper.shared import PreparedSet
from flawsort.scores.engines import CpuLimits, choose_engine
from helpers.bags import same_partition
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
        cache=None,
    )
    # The preset compares exactly and in single precision, however much there is to compare.
    model.sizes = Sizes(cpu=CpuLimits(exact_flop=0.0, singles_flop=0.0))
    normals = list(map(str, data.normals.sources)) if row == "wa-semi" else None
    model.fit(list(map(str, data.images.sources)), normal=normals)
    assert model.images_.digests == data.images.digests

    # The estimator compares images in the order of their content. On some processors a product of
    # matrices rounds its last digit by where in the matrix it is.
    np.testing.assert_allclose(model.scores_, scores_of(one, row), rtol=0, atol=2e-6)
    np.testing.assert_allclose(model.weights_, weights_of(one, row), rtol=1e-4)
    found = represent(one, row)
    np.testing.assert_allclose(model.embeddings_, found.values, rtol=0, atol=2e-6)
    # Groups of equal size are numbered by content there, and by the order of the images here.
    assert same_partition(model.labels_, found.labels(one.task.n_classes))
    merges = found.linkage()
    np.testing.assert_array_equal(model.linkage_[:, [0, 1, 3]], merges[:, [0, 1, 3]])
    np.testing.assert_allclose(model.linkage_[:, 2], merges[:, 2], rtol=1e-4)
