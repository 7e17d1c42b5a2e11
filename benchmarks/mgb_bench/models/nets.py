"""The networks of the training steps, in mgb, as a user would write them.

`torch_nets` and `jax_nets` hold their twins under the same names, with parameters under the same names.
"""

from __future__ import annotations

from itertools import pairwise

import mgb.functional as F
import mgb.module as M
from mgb import Tensor


class MLP(M.Module):
    """Linear layers with ReLU between them.

    Parameters
    ----------
    widths : tuple of int
        Of the input, of what is between the layers, of the output.
    """

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = [M.Linear(a, b) for a, b in pairwise(widths)]

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, widths[0])`` to ``(batch, widths[-1])``."""
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class SmallConvNet(M.Module):
    """Two convolutions with pooling and two linear layers (LeCun et al. 1998), for 28x28 images.

    Parameters
    ----------
    width : int
        Channels of the first convolution.
    classes : int
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(1, width, 5, padding=2)
        self.conv2 = M.Conv2d(width, 2 * width, 5)
        self.fc1 = M.Linear(2 * width * 5 * 5, 8 * width)
        self.fc2 = M.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, 1, 28, 28)`` to ``(batch, classes)``."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(F.flatten(x, 1))))


class ConvNorm(M.Module):
    """A convolution without bias that keeps the size, and batch normalisation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = M.Conv2d(
            inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
        )
        self.norm = M.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map images."""
        return self.norm(self.conv(x))


class BasicBlock(M.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = ConvNorm(inputs, outputs, 3, stride)
        self.second = ConvNorm(outputs, outputs, 3)
        changes = stride != 1 or inputs != outputs
        self.shortcut = ConvNorm(inputs, outputs, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """Map images."""
        around = x if self.shortcut is None else self.shortcut(x)
        return F.relu(self.second(F.relu(self.first(x))) + around)


class ResNet(M.Module):
    """A residual network for 32x32 images: with two blocks in each of four stages, ResNet-18.

    Parameters
    ----------
    width : int
        Channels of the first stage; each later stage has twice as many.
    blocks : tuple of int
        How many there are in each stage.
    classes : int
    """

    def __init__(self, width: int, blocks: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem = ConvNorm(3, width, 3)
        self.blocks = []
        inputs = width
        for stage, count in enumerate(blocks):
            for place in range(count):
                outputs = width << stage
                self.blocks.append(BasicBlock(inputs, outputs, 2 if stage and not place else 1))
                inputs = outputs
        self.head = M.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, 3, height, width)`` to ``(batch, classes)``."""
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(F.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class InvertedResidual(M.Module):
    """Expand, filter each channel, project back (Sandler et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = ConvNorm(inputs, hidden, 1)
        self.depthwise = ConvNorm(hidden, hidden, 3, stride, groups=hidden)
        self.project = ConvNorm(hidden, outputs, 1)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Map images."""
        out = F.relu6(self.expand(x))
        out = self.project(F.relu6(self.depthwise(out)))
        return out + x if self.residual else out


class MobileNet(M.Module):
    """A stem, blocks of MobileNetV2, and a linear head.

    Parameters
    ----------
    width : int
        Channels of the stem.
    blocks : tuple of (int, int)
        Outputs and stride of each.
    expansion : int
        How many times wider the middle of a block is.
    classes : int
    """

    def __init__(self, width: int, blocks: tuple[tuple[int, int], ...], expansion: int, classes: int) -> None:
        super().__init__()
        self.stem = ConvNorm(3, width, 3)
        self.blocks = []
        for outputs, stride in blocks:
            self.blocks.append(InvertedResidual(width, outputs, stride, expansion))
            width = outputs
        self.head = M.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, 3, height, width)`` to ``(batch, classes)``."""
        x = F.relu6(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(F.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Transformer(M.Module):
    """One block: causal attention and a GELU perceptron, each after a layer norm (Xiong et al. 2020).

    Parameters
    ----------
    width, heads : int
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = M.LayerNorm(width)
        self.attention = M.MultiHeadAttention(width, heads)
        self.norm2 = M.LayerNorm(width)
        self.fc1 = M.Linear(width, 4 * width)
        self.fc2 = M.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, length, width)`` to the same."""
        x = x + self.attention(self.norm1(x), is_causal=True)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class AlexNet(M.Module):
    """The network of Krizhevsky, Sutskever and Hinton (2012) in one column, without dropout.

    Parameters
    ----------
    width : int
        64 for the full size; the other widths follow it.
    classes : int
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(3, width, 11, stride=4, padding=2)
        self.conv2 = M.Conv2d(width, 3 * width, 5, padding=2)
        self.conv3 = M.Conv2d(3 * width, 6 * width, 3, padding=1)
        self.conv4 = M.Conv2d(6 * width, 4 * width, 3, padding=1)
        self.conv5 = M.Conv2d(4 * width, 4 * width, 3, padding=1)
        self.fc1 = M.Linear(4 * width * 6 * 6, 64 * width)
        self.fc2 = M.Linear(64 * width, 64 * width)
        self.fc3 = M.Linear(64 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, 3, 224, 224)`` to ``(batch, classes)``."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 3, 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 3, 2)
        x = F.relu(self.conv4(F.relu(self.conv3(x))))
        x = F.max_pool2d(F.relu(self.conv5(x)), 3, 2)
        x = F.relu(self.fc1(F.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))
