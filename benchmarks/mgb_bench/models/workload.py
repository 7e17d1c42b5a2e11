"""The workloads: a network, its sizes, a loss, an optimizer, one batch; without any framework."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Workload:
    """One training step, the same for every framework.

    Attributes
    ----------
    net : str
        The name of the network in `nets`, `torch_nets` and `jax_nets`.
    sizes : dict
        Its keyword arguments.
    image : tuple of int
        The shape of one input.
    batch : int
    loss : str
        ``"cross_entropy"`` with labels, or ``"square"`` with targets of the shape of the input.
    optimizer : str
        ``"SGD"`` with momentum 0.9, ``"Adam"`` or ``"AdamW"``.
    lr, weight_decay : float
    """

    net: str
    sizes: dict[str, Any] = field(hash=False)
    image: tuple[int, ...]
    batch: int
    loss: str = "cross_entropy"
    optimizer: str = "SGD"
    lr: float = 0.01
    weight_decay: float = 0.0

    def data(self) -> tuple[Array, Array]:
        """Return inputs and what the loss compares with, the same at every call."""
        random = np.random.default_rng(0)
        x = random.standard_normal((self.batch, *self.image), np.float32)
        if self.loss == "square":
            return x, random.standard_normal(x.shape, np.float32)
        return x, random.integers(0, self._classes(), self.batch).astype(np.int32)

    def _classes(self) -> int:
        classes: int = self.sizes["classes"] if "classes" in self.sizes else self.sizes["widths"][-1]
        return classes

    def smaller(self, batch: int, **sizes: Any) -> Workload:
        """Return the same with other sizes, for tests."""
        image = (sizes["widths"][0],) if "widths" in sizes else self.image
        image = (image[0], sizes["width"]) if self.net == "Transformer" else image
        return replace(self, batch=batch, image=image, sizes={**self.sizes, **sizes})


#: Sizes for which a step takes from 5 to 300 ms on two cores.
WORKLOADS = {
    "MLP": Workload("MLP", {"widths": (784, 1024, 1024, 10)}, (784,), 128, optimizer="Adam", lr=1e-3),
    "small conv net": Workload("SmallConvNet", {"width": 16, "classes": 10}, (1, 28, 28), 64),
    "ResNet-18": Workload(
        "ResNet",
        {"width": 64, "blocks": (2, 2, 2, 2), "classes": 10},
        (3, 32, 32),
        8,
        weight_decay=5e-4,
    ),
    "MobileNetV2 blocks": Workload(
        "MobileNet",
        {
            "width": 32,
            "blocks": ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1)),
            "expansion": 6,
            "classes": 10,
        },
        (3, 32, 32),
        32,
    ),
    "transformer block": Workload(
        "Transformer",
        {"width": 256, "heads": 8},
        (256, 256),
        8,
        loss="square",
        optimizer="AdamW",
        lr=1e-3,
        weight_decay=1e-2,
    ),
    "AlexNet, Adam": Workload(
        "AlexNet", {"width": 64, "classes": 1000}, (3, 224, 224), 4, optimizer="Adam", lr=1e-4
    ),
}
