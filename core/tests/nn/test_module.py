"""Modules: the walk over attributes, states, hooks."""

from __future__ import annotations

import copy
import pickle

import mgb.module as M
import numpy as np
import pytest
from mgb.errors import StateDictError
from mgb.module import init
from mgb.module.module import Module
from mgb.tensor import Parameter, Tensor

RNG = np.random.default_rng(0)


class Inner(Module):
    def __init__(self):
        super().__init__()
        self.weight = Parameter([1.0, 2.0])
        self.count = Tensor([3.0])

    def forward(self, x):
        return x * self.weight


class Net(Module):
    def __init__(self):
        super().__init__("net")
        self.z = Inner()
        self.a = Parameter([[5.0]])
        self.blocks = [Inner(), {"x": Inner(), "w": (Parameter([7.0]), 3)}]
        self.shared = self.z
        self.number = 4
        self.table = {1: "no tensor, so any key will do"}

    def forward(self, x, scale=1):
        return self.z(x) * scale


#: What stands in two places has the name that a state dict, which is sorted, gives it.
NAMES = ["shared.weight", "a", "blocks.0.weight", "blocks.1.x.weight", "blocks.1.w.0"]


def test_named_iterators_yield_dotted_names_once_in_order():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == NAMES
    assert [n for n, _ in net.named_buffers()] == ["shared.count", "blocks.0.count", "blocks.1.x.count"]
    assert [n for n, _ in net.named_children()] == ["shared", "blocks.0", "blocks.1.x"]
    assert [n for n, _ in net.named_modules()] == ["", "shared", "blocks.0", "blocks.1.x"]
    assert [n for n, _ in net.named_parameters(prefix="p")] == [f"p.{n}" for n in NAMES]
    assert [n for n, _ in net.named_parameters(recursive=False)] == ["a", "blocks.1.w.0"]
    assert [n for n, _ in net.named_modules(prefix="p")][:2] == ["p", "p.shared"]
    assert len(list(net.tensors())) == len(NAMES) + 3
    assert next(net.modules()) is net
    assert next(net.parameters()) is net.z.weight
    assert len(list(net.children())) == len(list(net.buffers())) == 3


def test_recursive_module_is_visited_once():
    net = Net()
    net.z.parent = net
    assert [n for n, _ in net.named_parameters()] == NAMES
    assert [n for n, _ in net.named_modules()] == ["", "shared", "blocks.0", "blocks.1.x"]


def test_non_string_dict_keys_of_tensors_raise():
    net = Net()
    net.table[2] = Tensor([1.0])
    with pytest.raises(AssertionError, match="keys for Tensor and Module must be str, error key: 2"):
        list(net.parameters())


def test_assigning_a_module_before_init_raises():
    class Early(Module):
        def __init__(self):
            self.inner = Inner()

        def forward(self, x):
            return x

    with pytest.raises(AttributeError, match=r"cannot assign module before Module\.__init__\(\) call"):
        Early()


def test_train_eval_and_apply():
    net = Net()
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    seen = []
    net.apply(seen.append)
    assert seen == list(net.modules())


def test_call_forwards_its_arguments():
    np.testing.assert_array_equal(Net()(Tensor([1.0, 1.0]), scale=3).numpy(), [3, 6])


def test_forward_hooks():
    inner, x = Inner(), Tensor([1.0, 1.0])
    seen = []
    spy = inner.register_forward_hook(lambda m, i, o: seen.append((m is inner, i[0].tolist(), o.tolist())))
    pre = inner.register_forward_pre_hook(lambda m, inputs: inputs[0] * 10)
    post = inner.register_forward_hook(lambda m, i, o: o + 1)
    np.testing.assert_array_equal(inner(x).numpy(), [11, 21])
    assert seen == [(True, [10, 10], [10, 20])]
    for handler in (spy, pre, post):
        handler.remove()
        handler.remove()
    np.testing.assert_array_equal(inner(x).numpy(), [1, 2])
    assert len(seen) == 1
    inner.register_forward_pre_hook(lambda m, inputs: (inputs[0] * 2,))
    np.testing.assert_array_equal(inner(x).numpy(), [2, 4])


def test_repr_is_a_tree():
    net = M.Sequential(M.Linear(2, 3), M.Sequential({"act": M.ReLU(), "drop": M.Dropout(0.5)}))
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): Sequential(\n"
        "    (act): ReLU()\n"
        "    (drop): Dropout(drop_prob=0.5)\n"
        "  )\n"
        ")"
    )


# state


def test_state_dict_round_trip():
    net, other = Net(), Net()
    for k, tensor in enumerate(net.tensors()):
        init.fill_(tensor, k + 10)
    state = net.state_dict()
    assert list(state) == sorted(n for n, _ in net.named_tensors())  # whatever the order of definition
    assert all(type(v) is np.ndarray for v in state.values())
    identities = [id(t) for t in other.tensors()]
    other.load_state_dict(state)
    assert [id(t) for t in other.tensors()] == identities
    for a, b in zip(net.tensors(), other.tensors(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    init.zeros_(net.a)
    assert state["a"].item() == 12  # a copy
    assert net.state_dict(keep_var=True)["a"] is net.a
    assert next(iter(net.state_dict(prefix="p"))) == "p.a"


def test_norm_parameters_are_flat_in_a_state_dict():
    net = M.Sequential(M.BatchNorm2d(3), M.LayerNorm((2, 2)))
    shapes = {name: array.shape for name, array in net.state_dict().items()}
    assert set(shapes.values()) == {(3,), (4,)}
    state = {name: RNG.normal(size=shape) for name, shape in shapes.items()}
    net.load_state_dict(state)
    np.testing.assert_allclose(net[0].running_var.numpy().ravel(), state["0.running_var"], rtol=1e-6)
    net.load_state_dict({name: t.numpy() for name, t in net.named_tensors()})  # full shapes are fine too
    assert net[0].weight.shape == (1, 3, 1, 1)


def test_load_state_dict_is_strict_and_all_or_nothing():
    net = Net()
    state = net.state_dict()
    with pytest.raises(KeyError, match=r"Unused params violate `strict=True`, unused=.*'more'") as info:
        net.load_state_dict({**state, "more": np.ones(1)})
    assert isinstance(info.value, StateDictError)
    less = {k: v + 1 for k, v in state.items() if k != "shared.weight"}
    with pytest.raises(KeyError, match=r"Missing params .*shared\.weight"):
        net.load_state_dict(less)
    with pytest.raises(ValueError, match=r"param `shared.weight` shape mismatch, should be \(2,\), get"):
        net.load_state_dict({**less, "shared.weight": np.ones(3)})
    assert net.a.item() == 5  # nothing was changed by any of these
    with pytest.warns(UserWarning, match="Missing params"):
        net.load_state_dict(less, strict=False)
    assert net.a.item() == 6


def test_load_state_dict_accepts_a_function():
    net = Net()
    net.load_state_dict(lambda name, tensor: np.full(tensor.shape, 9.0) if name.endswith("weight") else None)
    assert net.a.item() == 5
    np.testing.assert_array_equal(net.z.weight.numpy(), [9, 9])


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent_and_keep_sharing(clone):
    net = M.Sequential(M.Linear(2, 2), M.BatchNorm1d(2))
    net.again = net[0]
    other = clone(net)
    assert other.again is other[0]
    init.zeros_(other[0].weight)
    assert np.any(net[0].weight.numpy())


def test_sequential():
    net = M.Sequential([M.Linear(2, 3), M.ReLU(), M.Linear(3, 1)])
    assert len(net) == 3
    assert isinstance(net[-1], M.Linear)
    assert [type(m).__name__ for m in net[:2]] == ["Linear", "ReLU"]
    assert list(net.state_dict()) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    net[1] = M.Identity()
    x = Tensor(RNG.normal(size=(4, 2)))
    np.testing.assert_array_equal(net(x).numpy(), net[2](net[0](x)).numpy())
    del net[1]
    assert len(net) == 2
    named = M.Sequential({"first": M.Identity(), "second": M.ReLU()})
    assert named["second"] is named[1] is named.second
