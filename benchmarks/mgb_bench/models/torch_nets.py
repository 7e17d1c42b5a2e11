"""The twins of `nets` in PyTorch."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """See `nets.MLP`."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        pairs = pairwise(widths)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, widths[0])`` to ``(batch, widths[-1])``."""
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class SmallConvNet(nn.Module):
    """See `nets.SmallConvNet`."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 5, padding=2)
        self.conv2 = nn.Conv2d(width, 2 * width, 5)
        self.fc1 = nn.Linear(2 * width * 5 * 5, 8 * width)
        self.fc2 = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, 1, 28, 28)`` to ``(batch, classes)``."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class ConvNorm(nn.Module):
    """See `nets.ConvNorm`."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map images."""
        return self.norm(self.conv(x))


class BasicBlock(nn.Module):
    """See `nets.BasicBlock`."""

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


class ResNet(nn.Module):
    """See `nets.ResNet`."""

    def __init__(self, width: int, blocks: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem = ConvNorm(3, width, 3)
        self.blocks = nn.ModuleList()
        inputs = width
        for stage, count in enumerate(blocks):
            for place in range(count):
                outputs = width << stage
                self.blocks.append(BasicBlock(inputs, outputs, 2 if stage and not place else 1))
                inputs = outputs
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, 3, height, width)`` to ``(batch, classes)``."""
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class InvertedResidual(nn.Module):
    """See `nets.InvertedResidual`."""

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


class MobileNet(nn.Module):
    """See `nets.MobileNet`."""

    def __init__(self, width: int, blocks: tuple[tuple[int, int], ...], expansion: int, classes: int) -> None:
        super().__init__()
        self.stem = ConvNorm(3, width, 3)
        self.blocks = nn.ModuleList()
        for outputs, stride in blocks:
            self.blocks.append(InvertedResidual(width, outputs, stride, expansion))
            width = outputs
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, 3, height, width)`` to ``(batch, classes)``."""
        x = F.relu6(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Attention(nn.Module):
    """The twin of `mgb.module.MultiHeadAttention`, causal."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, length, width)`` to the same."""
        q, k, v = (
            projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heads.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """See `nets.Transformer`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, length, width)`` to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class AlexNet(nn.Module):
    """See `nets.AlexNet`."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 11, stride=4, padding=2)
        self.conv2 = nn.Conv2d(width, 3 * width, 5, padding=2)
        self.conv3 = nn.Conv2d(3 * width, 6 * width, 3, padding=1)
        self.conv4 = nn.Conv2d(6 * width, 4 * width, 3, padding=1)
        self.conv5 = nn.Conv2d(4 * width, 4 * width, 3, padding=1)
        self.fc1 = nn.Linear(4 * width * 6 * 6, 64 * width)
        self.fc2 = nn.Linear(64 * width, 64 * width)
        self.fc3 = nn.Linear(64 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, 3, 224, 224)`` to ``(batch, classes)``."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 3, 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 3, 2)
        x = F.relu(self.conv4(F.relu(self.conv3(x))))
        x = F.max_pool2d(F.relu(self.conv5(x)), 3, 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))
