"""The losses of deep clustering against plain loops in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from helpers.bags import Array

torch: Any = pytest.importorskip("torch")
pytest.importorskip("timm")

from flawsort.research.deep.losses import (  # noqa: E402
    attention_loss,
    balanced_targets,
    confident_loss,
    entropy,
    information_loss,
    invariance_loss,
    neighbour_loss,
    separability_loss,
    sharpened_targets,
)

# Probabilities below 1e-8 are taken for it, in up to k * k places of the joint distribution.
TINY = {"rel": 0, "abs": 1e-6}


pytestmark = pytest.mark.usefixtures("one_torch_thread")


def shares(n: int, k: int, *, seed: int = 0) -> torch.Tensor:
    """(n, k) in double precision, rows sum to 1."""
    return torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(k), n))


def one_hot(clusters: list[int], k: int) -> torch.Tensor:
    return torch.eye(k, dtype=torch.float64)[clusters]


# ---- entropy ----


@pytest.mark.parametrize("k", [1, 2, 7])
def test_entropy_of_one_cluster_and_of_equal_ones(k: int) -> None:
    assert float(entropy(one_hot([k - 1], k)[0])) == 0
    assert float(entropy(torch.full((k,), 1 / k))) == pytest.approx(math.log(k), abs=1e-6)


def test_entropy() -> None:
    row = shares(1, 6)[0]
    expected = -sum(share * math.log(share) for share in row.tolist())
    assert float(entropy(row)) == pytest.approx(expected, **TINY)


# ---- IIC ----


def naive_information(first: Array, second: Array, balance: float) -> float:
    """Equations 3 and 5 of Ji et al., with the joint distribution made symmetric as they do."""
    (n, k) = first.shape
    joint = [[0.0] * k for _ in range(k)]
    for i in range(n):
        for a in range(k):
            for b in range(k):
                joint[a][b] += first[i][a] * second[i][b] / (2 * n)
                joint[b][a] += first[i][a] * second[i][b] / (2 * n)
    total = 0.0
    for a in range(k):
        for b in range(k):
            row, column = sum(joint[a]), sum(joint[c][b] for c in range(k))
            inner = math.log(joint[a][b]) - balance * (math.log(row) + math.log(column))
            total -= joint[a][b] * inner
    return total


@pytest.mark.parametrize("balance", [1.0, 0.0, 1.5])
@pytest.mark.parametrize(("n", "k"), [(1, 3), (9, 2), (20, 5)])
def test_information_loss(n: int, k: int, balance: float) -> None:
    first, second = shares(n, k, seed=1), shares(n, k, seed=2)
    expected = naive_information(first.numpy(), second.numpy(), balance)
    assert float(information_loss(first, second, balance)) == pytest.approx(expected, **TINY)
    assert float(information_loss(second, first, balance)) == pytest.approx(expected, **TINY)


def test_the_information_is_plain_unless_said() -> None:
    first, second = shares(9, 4, seed=1), shares(9, 4, seed=2)
    assert information_loss(first, second) == information_loss(first, second, 1.0)
    assert information_loss(first, second) != information_loss(first, second, 1.1)


@pytest.mark.parametrize("k", [2, 3, 10])
def test_pairs_that_agree_in_equal_clusters_tell_log_k(k: int) -> None:
    assigned = one_hot([*range(k)] * 4, k)
    assert float(information_loss(assigned, assigned)) == pytest.approx(-math.log(k), abs=1e-4)
    # Entropies of the marginals, log k each, count half as much again.
    more = float(information_loss(assigned, assigned, 1.5))
    assert more == pytest.approx(-2 * math.log(k), abs=1e-4)


def test_pairs_that_know_nothing_of_each_other_tell_nothing() -> None:
    first, second = np.divmod(np.arange(16), 4)  # every cluster with every other
    loss = information_loss(one_hot(first.tolist(), 4), one_hot(second.tolist(), 4))
    assert float(loss) == pytest.approx(0, abs=1e-6)
    alike = shares(1, 5).expand(8, 5)
    assert float(information_loss(alike, alike)) == pytest.approx(0, abs=1e-6)
    collapsed = one_hot([2] * 8, 5)
    assert float(information_loss(collapsed, collapsed)) == pytest.approx(0, abs=1e-5)


# ---- SCAN ----


@pytest.mark.parametrize("weight", [0.0, 1.0, 5.0])
@pytest.mark.parametrize(("n", "k"), [(1, 2), (12, 4)])
def test_neighbour_loss(n: int, k: int, weight: float) -> None:
    anchors, neighbours = shares(n, k, seed=1), shares(n, k, seed=2)
    agreement = 0.0
    for anchor, neighbour in zip(anchors.tolist(), neighbours.tolist(), strict=True):
        agreement += math.log(sum(a * b for a, b in zip(anchor, neighbour, strict=True))) / n
    # The entropy is that of the anchors alone, as the authors have it.
    mean = [sum(column) / n for column in anchors.T.tolist()]
    expected = -agreement + weight * sum(share * math.log(share) for share in mean)
    assert float(neighbour_loss(anchors, neighbours, weight)) == pytest.approx(expected, **TINY)


def test_neighbours_that_agree_in_equal_clusters_lose_least() -> None:
    assigned = one_hot([0, 1, 2] * 4, 3)
    assert float(neighbour_loss(assigned, assigned, 5.0)) == pytest.approx(-5 * math.log(3))


def naive_confident(logits: Array, assignments: Array, threshold: float) -> float:
    """The mean over clusters of the mean cross entropy of those that are confident in each."""
    losses: dict[int, list[float]] = {}
    for scores, row in zip(logits, assignments, strict=True):
        cluster = max(range(len(row)), key=lambda k: row[k])
        if row[cluster] > threshold:
            total = sum(math.exp(score) for score in scores)
            losses.setdefault(cluster, []).append(-math.log(math.exp(scores[cluster]) / total))
    return sum(sum(of_one) / len(of_one) for of_one in losses.values()) / len(losses)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.8])
def test_confident_loss_counts_clusters_alike(threshold: float) -> None:
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((80, 4))
    assignments = rng.dirichlet([0.6, 0.3, 0.1, 0.1], 80)  # the clusters differ much in size
    loss = confident_loss(torch.tensor(logits), torch.tensor(assignments), threshold)
    expected = naive_confident(logits, assignments, threshold)
    assert float(loss) == pytest.approx(expected, rel=1e-9)
    confident = assignments.max(axis=1) > threshold
    sizes = np.bincount(assignments[confident].argmax(axis=1))
    assert sizes.max() > 2 * sizes[sizes > 0].min()  # a plain mean would be another


def test_confident_loss_without_anybody_in_a_cluster() -> None:
    logits = np.random.default_rng(4).standard_normal((5, 3))
    assignments = one_hot([0, 2, 0, 0, 0], 3)
    loss = confident_loss(torch.tensor(logits), assignments, 0.9)
    assert float(loss) == pytest.approx(naive_confident(logits, assignments.numpy(), 0.9))


def test_who_is_just_at_the_threshold_is_not_confident() -> None:
    logits = torch.tensor(np.random.default_rng(5).standard_normal((2, 2)))
    assignments = torch.tensor([[0.75, 0.25], [0.125, 0.875]], dtype=torch.float64)
    assert confident_loss(logits, assignments, 0.875) is None
    loss = confident_loss(logits, assignments, 0.75)  # only the second
    expected = naive_confident(logits[1:].numpy(), assignments[1:].numpy(), 0)
    assert float(loss) == pytest.approx(expected)


def test_nobody_is_confident() -> None:
    assert confident_loss(torch.zeros(3, 4), torch.full((3, 4), 0.25), 0.99) is None
    assert confident_loss(torch.zeros(3, 4), torch.eye(4)[:3], 1.0) is None


def test_no_gradient_flows_into_the_labels() -> None:
    logits = torch.zeros(3, 3, requires_grad=True)
    assignments = shares(3, 3).float().requires_grad_()
    confident_loss(logits, assignments, 0.0).backward()
    assert logits.grad.abs().sum() > 0
    assert assignments.grad is None


# ---- GATCluster ----


def naive_targets(assignments: Array, power: int) -> list[list[float]]:
    sizes = [sum(column) for column in assignments.T]
    rows = []
    for row in assignments.tolist():
        values = [share**power / size for share, size in zip(row, sizes, strict=True)]
        rows.append([value / sum(values) for value in values])
    return rows


@pytest.mark.parametrize(("targets", "power"), [(balanced_targets, 1), (sharpened_targets, 2)])
@pytest.mark.parametrize(("n", "k"), [(1, 3), (15, 4)])
def test_targets(targets: Any, power: int, n: int, k: int) -> None:
    assignments = shares(n, k)
    before = assignments.clone()
    found = targets(assignments)
    np.testing.assert_allclose(found, naive_targets(assignments.numpy(), power), rtol=1e-9)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-9)
    assert torch.equal(assignments, before)


def test_targets_prefer_small_clusters_and_sharpen() -> None:
    assignments = torch.tensor([[0.6, 0.4], [0.9, 0.1], [0.9, 0.1]])
    assert balanced_targets(assignments)[0, 1] > 0.5
    even = torch.tensor([[0.8, 0.2], [0.2, 0.8]])
    np.testing.assert_allclose(balanced_targets(even), even, rtol=1e-6)
    assert (sharpened_targets(even).amax(1) > 0.9).all()


@pytest.mark.parametrize("targets", [balanced_targets, sharpened_targets])
def test_targets_where_a_cluster_is_empty(targets: Any) -> None:
    assigned = one_hot([0, 0, 2], 3)
    np.testing.assert_array_equal(targets(assigned), assigned)


def test_invariance_loss() -> None:
    changed, targets = shares(9, 4, seed=1), shares(9, 4, seed=2)
    expected = 0.0
    for row, wanted in zip(changed.tolist(), targets.tolist(), strict=True):
        expected -= sum(a * b for a, b in zip(row, wanted, strict=True)) / 9
    assert float(invariance_loss(changed, targets)) == pytest.approx(expected, rel=1e-9)


def naive_cross_entropy(share: float, target: float) -> float:
    return -target * math.log(share) - (1 - target) * math.log(1 - share)


def naive_separability(assignments: Array, alike: Array) -> float:
    losses = []
    for i, first in enumerate(assignments):
        for j, second in enumerate(assignments[:i]):
            cosine = sum(first * second) / math.sqrt(sum(first**2) * sum(second**2))
            losses.append(naive_cross_entropy(cosine, alike[i, j]))
        losses.append(0.0)  # an image and itself: their cosine is 1, and they are alike
    return sum(losses) / len(losses)


@pytest.mark.parametrize("n", [1, 2, 11])
def test_separability_loss(n: int) -> None:
    assignments, clusters = shares(n, 4, seed=n), np.arange(n) % 3
    alike = (clusters[:, None] == clusters).astype(np.float64)
    found = float(separability_loss(assignments, torch.tensor(alike)))
    assert found == pytest.approx(naive_separability(assignments.numpy(), alike), **TINY)


def test_separate_clusters_lose_nothing() -> None:
    assigned = one_hot([0, 1, 2, 1, 0], 3)
    assert float(separability_loss(assigned, assigned @ assigned.T)) == 0


def test_attention_loss() -> None:
    attended, targets = shares(7, 5, seed=1), shares(7, 5, seed=2)
    expected = 0.0
    for row, wanted in zip(attended.tolist(), targets.tolist(), strict=True):
        for share, target in zip(row, wanted, strict=True):
            expected += naive_cross_entropy(share, target) / (7 * 5)
    assert float(attention_loss(attended, targets)) == pytest.approx(expected, rel=1e-9)


def test_attended_shares_may_be_rounded_beyond_one() -> None:
    attended = torch.tensor([[1.0000002, -1e-9]])
    assert float(attention_loss(attended, torch.tensor([[1.0, 0.0]]))) == 0


# ---- all of them ----

ALIKE = torch.ones(4, 4)
LOSSES = [
    pytest.param(lambda a, b: entropy(a.mean(0)), id="entropy"),
    pytest.param(information_loss, id="information"),
    pytest.param(lambda a, b: neighbour_loss(a, b, 5.0), id="neighbour"),
    pytest.param(lambda a, b: confident_loss(a, b, 0.9), id="confident"),
    pytest.param(invariance_loss, id="invariance"),
    pytest.param(lambda a, b: separability_loss(a, ALIKE), id="separability, all alike"),
    pytest.param(lambda a, b: separability_loss(a, 1 - ALIKE), id="separability, none alike"),
    pytest.param(attention_loss, id="attention"),
]


@pytest.mark.parametrize("other", [[0, 0, 1, 1], [1, 1, 0, 0]], ids=["agreeing", "disagreeing"])
@pytest.mark.parametrize("loss", LOSSES)
def test_certain_assignments_have_finite_losses_and_gradients(
    loss: Callable[[Any, Any], Any], other: list[int]
) -> None:
    assigned = one_hot([0, 0, 1, 1], 3).float().requires_grad_()  # and nothing in the third
    value = loss(assigned, one_hot(other, 3).float())
    value.backward()
    assert value.isfinite()
    assert assigned.grad.isfinite().all()


# ---- learning ----

GROUPS = np.repeat(np.arange(3), 10)
FIRST, SECOND = np.nonzero(GROUPS[:, None] == GROUPS)


def learn(loss: Callable[[Any, Any], Any], *, seed: int, bias: float = 0.0) -> tuple[float, Array]:
    """The loss and the clusters of 30 points after 200 steps on all pairs from the same group.

    bias: how much all points are drawn to the first cluster before they learn.
    """
    start = np.random.default_rng(seed).standard_normal((30, 3))
    start[:, 0] += bias
    logits = torch.tensor(start, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(200):
        assigned = logits.softmax(1)
        value = loss(assigned[FIRST], assigned[SECOND])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return float(value.detach()), logits.detach().argmax(1).numpy()


def are_the_groups(clusters: Array) -> bool:
    """Whether they are the three groups up to their names."""
    return len(set(zip(GROUPS.tolist(), clusters.tolist(), strict=True))) == 3 == len(set(clusters))


def test_information_finds_the_groups() -> None:
    # It has local minima, two groups being mixed: hence several heads, of which the best counts.
    value, clusters = min(
        (learn(information_loss, seed=seed) for seed in range(5)), key=itemgetter(0)
    )
    assert are_the_groups(clusters)
    assert value == pytest.approx(-math.log(3), rel=0.02)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_neighbours_find_the_groups(seed: int) -> None:
    value, clusters = learn(lambda a, b: neighbour_loss(a, b, 5.0), seed=seed)
    assert are_the_groups(clusters)
    assert value == pytest.approx(-5 * math.log(3), rel=0.02)


def test_the_entropy_keeps_neighbours_from_falling_into_one_cluster() -> None:
    _, alone = learn(lambda a, b: neighbour_loss(a, b, 0.0), seed=0, bias=3.0)
    assert set(alone) == {0}
    _, kept = learn(lambda a, b: neighbour_loss(a, b, 5.0), seed=0, bias=3.0)
    assert are_the_groups(kept)
