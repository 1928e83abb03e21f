"""The losses of IIC, SCAN and GATCluster, each a small function of assignments.

Assignments are probabilities (n, k) unless said: row i is how image i is spread over k clusters.
They are to be in single precision, whatever a network computed in.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

# A probability whose logarithm is taken is at least this.
TINY = 1e-8


def entropy(shares: torch.Tensor) -> torch.Tensor:
    """Of a distribution (k,), in nats: 0 where everything is in one cluster, log k at most."""
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
    """Images and their neighbours alike and certain, clusters of equal size.

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
    Clusters count the same, however many are confident in each. None where nobody is.
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
    """Each cluster divided by its size, rows made to sum to 1: targets of the invariance task."""
    return _rows_to_one(assignments / assignments.sum(0).clamp_min(TINY))


def sharpened_targets(assignments: torch.Tensor) -> torch.Tensor:
    """Squares divided by each cluster's size, rows made to sum to 1: targets of the attention
    task."""
    return _rows_to_one(assignments**2 / assignments.sum(0).clamp_min(TINY))


def _rows_to_one(values: torch.Tensor) -> torch.Tensor:
    return values / values.sum(1, keepdim=True).clamp_min(TINY)


def invariance_loss(changed: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Minus the agreement of changed images with the targets of the unchanged ones."""
    return -(changed * targets).sum(1).mean()


def separability_loss(assignments: torch.Tensor, alike: torch.Tensor) -> torch.Tensor:
    """Pairs of images of a cluster alike, others not: the cross entropy of their cosines.

    alike: (n, n), 1 where two images are in one cluster, else 0. A pair counts once, an image with
    itself too.
    """
    directions = F.normalize(assignments, dim=1)
    cosines = (directions @ directions.T).clamp(0, 1)
    rows, columns = torch.tril_indices(len(alike), len(alike), device=alike.device)
    return F.binary_cross_entropy(cosines[rows, columns], alike[rows, columns])


def attention_loss(attended: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """What the attended part of an image says alone, against the sharpened targets."""
    return F.binary_cross_entropy(attended.clamp(0, 1), targets)
