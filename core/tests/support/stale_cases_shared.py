"""What several files of cases use; executed anew for each world, as they are."""

from __future__ import annotations

from types import SimpleNamespace

import mgb.functional as F
import mgb.module as M
import numpy as np
from mgb import tensor
from mgb.autodiff import GradManager
from stale_cases import changing


def helper(x):
    return x * 2.0


def other(x):
    return x - 5.0


class Box:
    total = 0

    def __init__(self):
        self.calls = 0
        self.last = None

    def count(self):
        self.calls += 1


class Layer:
    def __init__(self):
        self.gain = 2.0

    def apply(self, x):
        return x * self.gain

    def __call__(self, x):
        return x + self.gain

    def __add__(self, number):
        return number * 3.0

    def __len__(self):
        return 2

    def __bool__(self):
        return True

    @staticmethod
    def fixed(x):
        return x * 2.0

    @classmethod
    def made(cls, x):
        return x * 3.0


def linear(seed=0, bias=True):
    layer = M.Linear(3, 3, bias=bias)
    draw = np.random.default_rng(seed)
    layer.weight[...] = tensor(draw.standard_normal((3, 3)).astype(np.float32))
    return layer


class Net(M.Module):
    factor = 2.0

    def __init__(self):
        super().__init__()
        self.first, self.second = linear(1), linear(2)
        self.gain = 2.0
        self.act = F.tanh
        self.residual = False
        self.shift = tensor([1.0, 2.0, 3.0])
        self.cfg = SimpleNamespace(k=2.0, deep={"a": [1.0]})
        self.blocks = [linear(3), linear(4)]
        self.heads = {"a": linear(5), "b": linear(6)}

    def forward(self, x):
        y = self.act(self.first(x)) * self.gain * self.factor
        return y + x if self.residual else y


def training(optimizer_of, body=None, more=lambda net, opt, gm: ()):
    net = linear()
    opt = optimizer_of(net)
    gm = GradManager().attach(net.parameters())

    def step(x):
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return changing(step, *more(net, opt, gm), written=lambda: [p.numpy() for p in net.parameters()])
