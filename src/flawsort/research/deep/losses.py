"""The losses of IIC, SCAN and GATCluster, as functions of assignments.

Assignments are probabilities (n, k) unless noted: row i is the distribution of image i over k
clusters. They must be in single precision, whatever the network computes in.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

# Probabilities are raised to this before a logarithm is taken.
TINY = 1e-8


def entropy(shares: torch.Tensor) -> torch.Tensor:
    """The entropy of a distribution (k,), in nats: from 0 (all in one cluster) to log k."""
    return -(shares * shares.clamp_min(TINY).log()).sum()


# ---- IIC


def information_loss(
    first: torch.Tensor, second: torch.Tensor, balance: float = 1.0
) -> torch.Tensor:
    """Minus the mutual information of the assignments of images and of their changed versions.

    (Ji et al. 2019, Eq. 3.) Rows are pairs. balance: the weight of the marginals' entropies
    (lambda of their Eq. 5); 1 is mutual information itself.
    """
    joint = first.T @ second / len(first)
    joint = ((joint + joint.T) / 2).clamp_min(TINY)  # a pair has no order
    rows = joint.sum(1, keepdim=True)
    columns = joint.sum(0, keepdim=True)
    return -(joint * (joint.log() - balance * rows.log() - balance * columns.log())).sum()


# ---- SCAN


def neighbour_loss(
    anchors: torch.Tensor, neighbours: torch.Tensor, entropy_weight: float
) -> torch.Tensor:
    """Low where images agree with their neighbours with certainty, and clusters are equal in size.

    (Van Gansbeke et al. 2020, Eq. 2.) Row i of the neighbours is a neighbour of anchor i.
    """
    agreement = (anchors * neighbours).sum(1)
    return -agreement.clamp_min(TINY).log().mean() - entropy_weight * entropy(anchors.mean(0))


def confident_loss(
    logits: torch.Tensor, assignments: torch.Tensor, threshold: float
) -> torch.Tensor | None:
    """Cross entropy of strongly changed images against the cluster that the unchanged ones are
    assigned to, for those assigned with more than `threshold` (their Section 2.3).

    logits: (n, k), of the changed images, before the softmax. assignments: of the unchanged ones.
    Every cluster has the same weight, however many images it has. None if no image is confident.
    """
    certainty, cluster = assignments.max(1)
    chosen = certainty > threshold
    if not chosen.any():
        return None
    sizes = torch.bincount(cluster[chosen], minlength=logits.shape[1])
    weights = sizes.sum() / sizes.clamp_min(1)
    return F.cross_entropy(logits[chosen], cluster[chosen], weight=weights.to(logits.dtype))


# ---- GATCluster


def balanced_targets(assignments: torch.Tensor) -> torch.Tensor:
    """Each column divided by its sum, then each row: the targets of the invariance task."""
    return _rows_to_one(assignments / assignments.sum(0).clamp_min(TINY))


def sharpened_targets(assignments: torch.Tensor) -> torch.Tensor:
    """Squares divided by the sum of their column, then each row by its sum: the targets of the
    attention task."""
    return _rows_to_one(assignments**2 / assignments.sum(0).clamp_min(TINY))


def _rows_to_one(values: torch.Tensor) -> torch.Tensor:
    return values / values.sum(1, keepdim=True).clamp_min(TINY)


def invariance_loss(changed: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Minus the agreement of changed images with the targets of the unchanged ones."""
    return -(changed * targets).sum(1).mean()


def separability_loss(assignments: torch.Tensor, alike: torch.Tensor) -> torch.Tensor:
    """The cross entropy of the cosines of pairs of images, against whether they share a cluster.

    alike: (n, n), 1 where two images are in one cluster, else 0. Each pair counts once, and each
    image with itself.
    """
    directions = F.normalize(assignments, dim=1)
    cosines = (directions @ directions.T).clamp(0, 1)
    rows, columns = torch.tril_indices(len(alike), len(alike), device=alike.device)
    return F.binary_cross_entropy(cosines[rows, columns], alike[rows, columns])


def attention_loss(attended: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The cross entropy of assignments by the attended part alone, against sharpened targets."""
    return F.binary_cross_entropy(attended.clamp(0, 1), targets)
