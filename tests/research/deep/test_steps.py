"""What an epoch of IIC, SCAN and GATCluster learns, step by step.

Chance is taken away: batches are those that a test names, and changes of images are chosen so that
the loss can be computed from what the network says. Networks are narrow, or end early.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")

from safetensors.torch import load_file, save_file  # noqa: E402

from flawsort.research.deep import (  # noqa: E402
    IIC,
    SCAN,
    GATCluster,
    augment,
    losses,
    networks,
)
from flawsort.research.deep import iic as iic_module  # noqa: E402
from flawsort.research.deep.gatcluster import _FourTasks  # noqa: E402
from flawsort.research.deep.iic import FINAL, OVER  # noqa: E402
from flawsort.research.deep.scan import HEADS, _Neighbours  # noqa: E402

nn = torch.nn
# A rate at which the loss stays as it is.
STILL = 1e-12

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small networks, of the same random weights each time."""
    monkeypatch.setattr(networks, "RESIDUAL", "resnet18")
    stages = ((6, 6, 6), (8, 8, 8), (8, 8, 8), (8, 8))
    monkeypatch.setattr(networks.AttentionNetwork, "STAGES", stages)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a ResNet-18's first stage, with norms that have seen something."""
    import timm

    rng = np.random.default_rng(0)
    state = {}
    for name, value in timm.create_model("resnet18", num_classes=0).state_dict().items():
        if not name.startswith(("conv1.", "bn1.", "layer1.")):
            continue
        low, high = (-0.2, 0.2) if name.endswith(("bias", "running_mean")) else (0.4, 1.0)
        if value.ndim == 1:
            state[name] = torch.tensor(rng.uniform(low, high, len(value)), dtype=torch.float32)
        elif value.ndim:
            state[name] = torch.tensor(
                rng.normal(0, (2 / value[0].numel()) ** 0.5, value.shape), dtype=torch.float32
            )
    path = tmp_path_factory.mktemp("weights") / "first.safetensors"
    save_file(state, path)
    return path


def coarse(n: int, side: int) -> torch.Tensor:
    """(n, 3, side, side) bytes: squares of random colours, others in each image."""
    squares = np.random.default_rng(7).integers(0, 256, (n, 3, 4, 4), dtype=np.uint8)
    return torch.from_numpy(squares.repeat(side // 4, axis=2).repeat(side // 4, axis=3))


def name_batches(monkeypatch: pytest.MonkeyPatch, module: str, size: int, *parts: Any) -> None:
    """Every epoch has these batches."""

    def batches(n: int, asked: int, rng: np.random.Generator) -> list[Any]:
        assert (n, asked) == (sum(map(len, parts)), size)
        return [np.array(part) for part in parts]

    monkeypatch.setattr(f"flawsort.research.deep.{module}.batches", batches)


def state_of(module: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def moved(module: Any, before: dict[str, torch.Tensor]) -> set[str]:
    """The parameters that are not as they were."""
    return {
        name for name, value in module.named_parameters() if not torch.equal(value, before[name])
    }


def watch_beginnings(monkeypatch: pytest.MonkeyPatch, course: Any) -> list[dict[str, torch.Tensor]]:
    """The network's state before each epoch of such a course."""
    found: list[dict[str, torch.Tensor]] = []
    plain = course.epoch

    def epoch(self: Any, rng: np.random.Generator) -> Any:
        found.append(state_of(self.modules["network"]))
        return plain(self, rng)

    monkeypatch.setattr(course, "epoch", epoch)
    return found


def assert_begun_with(weights: Path, state: dict[str, torch.Tensor]) -> None:
    """Filters, norms and what the norms have seen are those of the file."""
    for name, value in load_file(weights).items():
        assert torch.equal(state[f"trunk.trunk.{name}"], value), name


def assert_down(network: Any, before: Any, rate: float) -> None:
    """All parameters made a first step of Adam, which is as long as its rate, against the slopes
    that are noted in the network as it was."""
    slopes = {name: one.grad for name, one in before.named_parameters()}
    assert moved(network, dict(before.named_parameters())) == set(slopes)
    largest = max(float(one.abs().max()) for one in slopes.values())
    for name, after in network.named_parameters():
        clear = slopes[name].abs() > 0.01 * largest  # where rounding does not decide on the sign
        step = (after - before.get_parameter(name))[clear].detach()
        expected = -rate * slopes[name][clear].sign()
        np.testing.assert_allclose(step, expected, rtol=0.02, err_msg=name)


def assert_last_slopes(course: Any, network: Any) -> None:
    """What a course stepped by last is noted in this network: of the last batch alone."""
    (group,) = course.optimizer.param_groups
    slopes = [one.grad for one in network.parameters()]
    rounding = 0.002 * max(float(one.abs().max()) for one in slopes)
    for one, slope in zip(group["params"], slopes, strict=True):
        np.testing.assert_allclose(one.grad, slope, rtol=0.01, atol=rounding)


def rate_of(optimizer: Any) -> float:
    (group,) = optimizer.param_groups
    return float(group["lr"])


# ---- GATCluster ----

# Of six images, two of each cluster, no two alike.
ASSIGNED = [
    [0.80, 0.15, 0.05],
    [0.20, 0.70, 0.10],
    [0.10, 0.30, 0.60],
    [0.60, 0.10, 0.30],
    [0.05, 0.90, 0.05],
    [0.15, 0.05, 0.80],
]
KINDS = [0, 1, 2, 0, 1, 2]


def four_tasks(**options: Any) -> Any:
    chosen = {"n_clusters": 3, "batch_size": 4, "n_repeats": 1, "device": "cpu", **options}
    return _FourTasks(GATCluster(**chosen), networks.AttentionNetwork(3), coarse(6, 128))


def naive_tasks(whole: torch.Tensor, attended: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """The loss of these images: 5, 1, 3 and 5 times its four tasks."""
    now = torch.tensor(ASSIGNED)
    balanced, sharpened = losses.balanced_targets(now), losses.sharpened_targets(now)
    alike = torch.tensor([[float(KINDS[a] == KINDS[b]) for b in rows] for a in rows])
    invariance = losses.invariance_loss(whole, torch.stack([balanced[row] for row in rows]))
    separability = losses.separability_loss(whole, alike)
    spread = losses.entropy(whole.mean(0)) + losses.entropy(attended.mean(0))
    attention = losses.attention_loss(attended, torch.stack([sharpened[row] for row in rows]))
    return 5 * invariance + separability - 3 * spread + 5 * attention


class TestGATCluster:
    @pytest.fixture
    def changed(self) -> torch.Tensor:
        """(6, 3, 128, 128): what the network is to see of the images."""
        return augment.as_pixels(augment.as_floats(coarse(6, 128).flip(3)))

    def prepared(self, changed: torch.Tensor, **options: Any) -> Any:
        """A course that found `ASSIGNED` and learns from `changed`."""
        course = four_tasks(**options)
        with torch.no_grad():  # images that are told apart: the logarithm of no tiny number
            course._network.of_all[2].weight *= 10
        course._network.eval()
        course.assign = lambda: torch.tensor(ASSIGNED)
        course._changed = lambda rng: changed
        return course

    def test_the_loss_is_that_of_four_tasks(
        self, changed: torch.Tensor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parts = [4, 0, 5, 2], [3, 1]
        name_batches(monkeypatch, "gatcluster", 4, *parts)
        course = self.prepared(changed, n_repeats=2, learning_rate=STILL)
        network = deepcopy(course._network).train()
        total = 0.0
        for rows in parts:
            network.zero_grad()
            loss = naive_tasks(*network(torch.stack([changed[row] for row in rows])), rows)
            loss.backward()
            total += len(rows) * float(loss.detach())
        assert course.epoch(np.random.default_rng(0)) == pytest.approx(total / 6, rel=1e-4)
        nn.utils.clip_grad_value_(network.parameters(), 10)
        assert_last_slopes(course, network)

    def test_a_step_goes_down_that_loss(
        self, changed: torch.Tensor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = [4, 0, 5, 2, 1, 3]
        name_batches(monkeypatch, "gatcluster", 6, rows)
        course = self.prepared(changed, batch_size=6, learning_rate=0.01)
        network = deepcopy(course._network).train()
        naive_tasks(*network(changed[rows]), rows).backward()
        course.epoch(np.random.default_rng(0))
        assert_down(course._network, network, 0.01)

    def test_slopes_are_cut_off_at_ten(
        self, changed: torch.Tensor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("flawsort.research.deep.gatcluster.INVARIANCE", 1e5)
        course = self.prepared(changed)
        course.epoch(np.random.default_rng(0))
        assert max(float(one.grad.abs().max()) for one in course._network.parameters()) == 10

    def test_it_repeats(self, changed: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
        name_batches(monkeypatch, "gatcluster", 4, [4, 0, 5], [2, 1, 3])
        course = self.prepared(changed, n_repeats=3)
        course.epoch(np.random.default_rng(0))
        steps = {int(one["step"]) for one in course.optimizer.state.values()}
        assert steps == {6}
        assert rate_of(course.optimizer) == 1e-3

    def test_targets_are_of_unchanged_photos(self) -> None:
        course = four_tasks()
        pixels = augment.normalise(coarse(6, 128).float() / 255)
        networks.settle_norms(course._network, [pixels[:4]])
        network = deepcopy(course._network)
        with torch.no_grad():
            whole, attended = network(pixels)
        assert not torch.allclose(whole, attended, atol=0.01)
        course._network.train()
        np.testing.assert_allclose(course.assign(), whole, atol=1e-4)
        for name, value in course._network.state_dict().items():
            assert torch.equal(value, network.state_dict()[name]), name

    def test_every_image_is_changed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        course = four_tasks()
        pixels = augment.normalise(coarse(6, 128).float() / 255)

        def gaps() -> torch.Tensor:
            """(6,): between images and their changed versions."""
            return (course._changed(np.random.default_rng(0)) - pixels).abs().mean((1, 2, 3))

        place = "flawsort.research.deep.gatcluster"
        with monkeypatch.context() as patch:
            patch.setattr(f"{place}.jitter", lambda photos, rng, **_: photos)
            assert (gaps() > 0.1).all()  # moved
        for name in ("random_affine", "random_flip"):
            monkeypatch.setattr(f"{place}.{name}", lambda n, rng, **_: augment.still(n))
        assert (gaps() > 0.05).all()  # tinted
        monkeypatch.setattr(f"{place}.jitter", lambda photos, rng, **_: photos)
        assert (gaps() < 1e-4).all()


# ---- IIC ----


def naive_information(first: torch.Tensor, second: torch.Tensor) -> float:
    """Minus the mutual information of pairs of assignments, in loops."""
    one, other = first.double().tolist(), second.double().tolist()
    n, k = len(one), len(one[0])
    joint = [
        [sum(a[i] * b[j] + b[i] * a[j] for a, b in zip(one, other, strict=True)) for j in range(k)]
        for i in range(k)
    ]
    found = np.array(joint) / (2 * n)
    rows, columns = found.sum(1), found.sum(0)
    return -sum(
        found[i, j] * np.log(found[i, j] / rows[i] / columns[j]) for i in range(k) for j in range(k)
    )


class TestIIC:
    @pytest.fixture(autouse=True)
    def inverted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A changed version is the negative of the photo."""
        monkeypatch.setattr(iic_module, "random_flip", lambda n, rng: augment.still(n))
        monkeypatch.setattr(iic_module, "jitter", lambda photos, rng, **_: 1 - photos)

    def course(self, weights: Path | None, **options: Any) -> Any:
        """Photos of 32 x 32 are cropped to all of them. weights: None for random ones."""
        chosen = {"n_clusters": 3, "n_heads": 2, "over_clusters": 2, "n_repeats": 2, "n_epochs": 1}
        begin = {"pretrained": weights is not None, "weights": weights}
        sizes = {"crop_size": 32, "side": 32, "batch_size": 4}
        made = IIC(**{"device": "cpu", **chosen, **begin, **sizes, **options})
        course = made._stages(coarse(6, 32))[0]()
        self.spread_out(course)
        course._network.eval()
        return course

    def seen(self, photos: torch.Tensor, weights: Path | None) -> torch.Tensor:
        """Colours by a network that knows them, else edges."""
        return augment.sobel(photos) if weights is None else augment.normalise(photos)

    def spread_out(self, course: Any) -> None:
        """Heads are no longer undecided."""
        photos = coarse(6, 32).float() / 255
        seen = self.seen(torch.cat([photos, 1 - photos]), course._options.weights)
        with torch.no_grad():
            features = deepcopy(course._network.trunk).train()(seen)
            middle = features.mean(0)
            for heads in course._network.heads.values():
                heads.linear.weight /= heads(features - middle).std()
                heads.linear.bias.copy_(-heads.linear.weight @ middle)

    @pytest.mark.parametrize("known", [True, False], ids=["colours", "edges"])
    def test_the_loss_is_of_photos_and_their_changed_versions(
        self, weights: Path, known: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parts = [4, 0, 5, 2], [3, 1]
        name_batches(monkeypatch, "iic", 4, *parts)
        file = weights if known else None
        course = self.course(file, learning_rate=STILL)
        network = deepcopy(course._network).train()
        photos = coarse(6, 32).float() / 255
        sums = {OVER: np.zeros(2), FINAL: np.zeros(2)}
        for name in (OVER, FINAL):
            for rows in parts:
                plain = torch.stack([photos[row] for row in rows])
                seen = self.seen(torch.cat([plain, 1 - plain, 1 - plain]), file)
                with torch.no_grad():
                    said = network(seen, name).softmax(2)
                first, second = said[:, : len(rows)], said[:, len(rows) : 2 * len(rows)]
                for head in range(2):
                    sums[name][head] += len(rows) * naive_information(first[head], second[head])
        loss = course.epoch(np.random.default_rng(0))
        assert loss == pytest.approx(sums[FINAL].mean() / 6, rel=1e-3)
        for name, expected in sums.items():
            np.testing.assert_allclose(course._network.heads[name].losses, expected / 6, rtol=1e-3)

    def test_all_of_it_learns(self, weights: Path) -> None:
        course = self.course(weights)
        before = state_of(course._network)
        course.epoch(np.random.default_rng(0))
        assert moved(course._network, before) == {n for n, _ in course._network.named_parameters()}
        assert rate_of(course.optimizer) == 1e-4
        # Two batches for the trunk from either set of heads.
        steps = {
            name: int(course.optimizer.state[one]["step"])
            for name, one in course._network.named_parameters()
        }
        assert steps["heads.over.linear.weight"] == steps["heads.final.linear.weight"] == 2
        assert steps["trunk.trunk.conv1.weight"] == 4

    @pytest.mark.parametrize("known", [True, False], ids=["colours", "edges"])
    def test_the_best_final_head_is_asked_for_whole_photos(
        self, weights: Path, known: bool
    ) -> None:
        file = weights if known else None
        course = self.course(file)
        course._network.heads[FINAL].losses.copy_(torch.tensor([0.0, -1.0]))
        network = deepcopy(course._network).eval()
        with torch.no_grad():
            expected = network(self.seen(coarse(6, 32).float() / 255, file), FINAL)[1].softmax(1)
        np.testing.assert_allclose(course.assign(), expected, atol=1e-4)

    def test_training_begins_with_the_weights_of_a_file(
        self, weights: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = watch_beginnings(monkeypatch, iic_module._Pairs)
        options = {"n_clusters": 2, "n_epochs": 1, "side": 40, "crop_size": 32, "device": "cpu"}
        IIC(pretrained=True, weights=weights, **options).fit(
            list(coarse(4, 40).permute(0, 2, 3, 1).numpy())
        )
        assert_begun_with(weights, begun[0])


# ---- SCAN ----


def scan(weights: Path | None, **options: Any) -> SCAN:
    """weights: None for random ones."""
    chosen = {"n_clusters": 3, "n_epochs": 1, "label_epochs": 1, "batch_size": 4, "n_heads": 2}
    begin = {"pretrained": weights is not None, "weights": weights}
    given = {"n_neighbours": 1, "image_size": 56, "device": "cpu", **chosen, **begin, **options}
    return SCAN(**given)


def whole_photos() -> torch.Tensor:
    """(6, 3, 56, 56): what SCAN sees of its six photos when it does not change them."""
    return augment.whole(coarse(6, 64).float() / 255, 56)


def raw_features(network: Any, photos: torch.Tensor) -> torch.Tensor:
    """(n, width): the means of the maps, norms as they are, nothing taken away."""
    trunk = network.trunk.trunk.eval()
    return trunk.forward_features(augment.normalise(photos)).mean((2, 3))


def centred(features: torch.Tensor) -> torch.Tensor:
    """Less their mean, of mean length 1."""
    apart = features - sum(features) / len(features)
    return apart / (sum(one.norm() for one in apart) / len(apart))


class TestSCAN:
    @pytest.fixture(autouse=True)
    def inverted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Changed images are negatives, strongly changed ones pale negatives, and what is cut out
        has a third of the contrast."""
        place = "flawsort.research.deep.scan"
        monkeypatch.setattr(
            f"{place}._changed", lambda photos, size, rng: 1 - augment.whole(photos, size)
        )
        monkeypatch.setattr(
            f"{place}.strong", lambda photos, size, rng: 1 - augment.whole(photos, size) / 2
        )
        monkeypatch.setattr(f"{place}.cut_out", lambda pixels, rng, share: pixels / 3)

    def begun(self, method: SCAN) -> tuple[Any, Any]:
        """What builds the two stages; heads are no longer undecided."""
        first, second = method._stages(coarse(6, 64))
        with torch.no_grad():
            second().modules["network"].heads[HEADS].linear.weight *= 200
        return first, second

    # -- both stages

    def test_training_begins_with_the_weights_of_a_file(
        self, weights: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = watch_beginnings(monkeypatch, _Neighbours)
        scan(weights).fit(list(coarse(6, 64).permute(0, 2, 3, 1).numpy()))
        assert_begun_with(weights, begun[0])

    def test_random_weights_have_norms_of_these_photos(self) -> None:
        network = scan(None)._stages(coarse(6, 64))[1]().modules["network"]
        first = network.trunk.trunk
        with torch.no_grad():
            seen = first.conv1(augment.normalise(whole_photos()))
        np.testing.assert_allclose(first.bn1.running_mean, seen.mean((0, 2, 3)), atol=1e-4)

    def test_features_begin_centred(self, weights: Path) -> None:
        network = scan(weights)._stages(coarse(6, 64))[1]().modules["network"].eval()
        with torch.no_grad():
            features = network.trunk(augment.normalise(whole_photos()))
            expected = centred(raw_features(network, whole_photos()))
        np.testing.assert_allclose(features, expected, atol=1e-4)

    # -- the first

    def naive_neighbours(self, network: Any, rows: list[int]) -> list[torch.Tensor]:
        """The loss of each head for these images and their nearest others, all changed."""
        with torch.no_grad():
            features = centred(raw_features(network, whole_photos())).double()
        nearest = []
        for row in rows:
            cosines = [
                float(features[row] @ one / features[row].norm() / one.norm()) for one in features
            ]
            cosines[row] = -np.inf
            nearest.append(int(np.argmax(cosines)))
        shown = torch.stack([1 - whole_photos()[row] for row in rows + nearest])
        said = network.heads[HEADS](centred(raw_features(network, shown))).softmax(2)
        n = len(rows)
        return [losses.neighbour_loss(one[:n], one[n:], 5.0) for one in said]

    def test_neighbours_are_to_be_alike(
        self, weights: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parts = [4, 0, 5, 2], [3, 1]
        name_batches(monkeypatch, "scan", 4, *parts)
        course = self.begun(scan(weights, learning_rate=STILL))[0]()
        network = deepcopy(course.modules["network"])
        sums = torch.zeros(2)
        for rows in parts:
            network.zero_grad()
            found = torch.stack(self.naive_neighbours(network, rows))
            found.sum().backward()
            sums += len(rows) * found.detach()
        loss = course.epoch(np.random.default_rng(0))
        assert loss == pytest.approx(float(sums.min()) / 6, rel=1e-4)
        assert_last_slopes(course, network.heads[HEADS])

    def test_only_heads_learn_from_neighbours(
        self, weights: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = [4, 0, 5, 2, 3, 1]
        name_batches(monkeypatch, "scan", 6, rows)
        course = self.begun(scan(weights, batch_size=6, learning_rate=8))[0]()
        network, before = course.modules["network"], deepcopy(course.modules["network"])
        sum(self.naive_neighbours(before, rows)).backward()
        course.epoch(np.random.default_rng(0))
        heads = {"heads.clusters.linear.weight", "heads.clusters.linear.bias"}
        assert moved(network, dict(before.named_parameters())) == heads
        for name, value in network.trunk.state_dict().items():
            assert torch.equal(value, before.trunk.state_dict()[name]), name
        for name in heads:
            step = (network.get_parameter(name) - before.get_parameter(name)).detach()
            assert step.abs().max() > 1e-4
            expected = -8 * 6 / 512 * before.get_parameter(name).grad
            np.testing.assert_allclose(step, expected, rtol=1e-3, atol=1e-6)

    @pytest.mark.parametrize(("batch_size", "rate"), [(3, 8 * 3 / 512), (64, 8 * 6 / 512)])
    def test_the_rate_is_scaled_to_the_batch(
        self, weights: Path, batch_size: int, rate: float
    ) -> None:
        method = scan(weights, batch_size=batch_size, learning_rate=8, label_rate=0.01)
        first, second = method._stages(coarse(6, 64))
        assert rate_of(first().optimizer) == pytest.approx(rate)
        assert rate_of(second().optimizer) == 0.01

    # -- the second

    def answers(self, network: Any) -> torch.Tensor:
        """(6, 3): what the best head says of whole photos."""
        trunk = network.trunk
        with torch.no_grad():
            features = (raw_features(network, whole_photos()) - trunk.middle) / trunk.length
            said = network.heads[HEADS](features).softmax(2)
        return said[int(network.heads[HEADS].losses.argmin())]

    def naive_labels(self, network: Any, rows: list[int], threshold: float) -> torch.Tensor:
        """Of strongly changed images, against confident answers for whole ones."""
        mean = torch.tensor(augment.MEAN).reshape(3, 1, 1)
        shown = torch.stack([1 - whole_photos()[row] / 2 for row in rows])
        shrunk = mean + (shown - mean) / 3
        logits = network.heads[HEADS](centred(raw_features(network, shrunk)))
        best = logits[int(network.heads[HEADS].losses.argmin())]
        answers = torch.stack([self.answers(network)[row] for row in rows])
        loss = losses.confident_loss(best, answers, threshold)
        assert loss is not None
        return loss

    def labelled(self, weights: Path, **options: Any) -> tuple[Any, list[int], float]:
        """The second stage, its second head the best; the images from the most to the least
        certain; and a threshold between the fourth and the fifth."""
        course = self.begun(scan(weights, **options))[1]()
        network = course.modules["network"]
        network.heads[HEADS].losses.copy_(torch.tensor([0.0, -1.0]))
        certain = self.answers(network).amax(1)
        order = certain.argsort(descending=True).tolist()
        threshold = float(certain[order[3]] + certain[order[4]]) / 2
        course._options.threshold = threshold
        return course, order, threshold

    def test_confident_answers_are_learnt(
        self, weights: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        course, order, threshold = self.labelled(weights, label_rate=STILL)
        # One batch with a doubtful image, and one with one confident image.
        parts = [order[4], *order[2::-1]], [order[3], order[5]]
        name_batches(monkeypatch, "scan", 4, *parts)
        network = deepcopy(course.modules["network"])
        total = 0.0
        for rows in parts:
            network.zero_grad()
            found = self.naive_labels(network, rows, threshold)
            found.backward()
            total += len(rows) * float(found.detach())
        assert course.epoch(np.random.default_rng(0)) == pytest.approx(total / 6, rel=1e-4)
        assert_last_slopes(course, network)

    def test_a_batch_without_confident_answers_does_not_count(
        self, weights: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        course, order, threshold = self.labelled(weights, label_rate=STILL)
        name_batches(monkeypatch, "scan", 4, order[3::-1], order[4:])
        network = deepcopy(course.modules["network"])
        with torch.no_grad():
            expected = float(self.naive_labels(network, order[3::-1], threshold))
        assert course.epoch(np.random.default_rng(0)) == pytest.approx(expected, rel=1e-4)

    def test_all_but_norms_learn_from_labels(
        self, weights: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        course, order, threshold = self.labelled(weights, batch_size=6, label_rate=0.01)
        name_batches(monkeypatch, "scan", 6, order)
        network, before = course.modules["network"], deepcopy(course.modules["network"])
        self.naive_labels(before, order, threshold).backward()
        course.epoch(np.random.default_rng(0))
        assert_down(network, before, 0.01)
        buffers = dict(before.named_buffers())
        for name, value in network.named_buffers():
            assert "running" not in name or torch.equal(value, buffers[name]), name

    def test_features_are_centred_again(self, weights: Path) -> None:
        course, _, _ = self.labelled(weights, label_rate=0.01)
        course.epoch(np.random.default_rng(0))
        network = course.modules["network"].eval()
        with torch.no_grad():
            features = network.trunk(augment.normalise(whole_photos()))
            expected = centred(raw_features(network, whole_photos()))
        np.testing.assert_allclose(features, expected, atol=1e-4)

    def test_the_best_head_is_asked_for_whole_photos(self, weights: Path) -> None:
        course, _, _ = self.labelled(weights)
        expected = self.answers(course.modules["network"])
        np.testing.assert_allclose(course.assign(), expected, atol=1e-4)
