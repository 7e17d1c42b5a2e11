"""Models of files as Modules: training against PyTorch, and against the layers they came from."""

import copy

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import onnx
import pytest
from mgb import tensor
from mgb.autodiff import GradManager
from mgb.jit import trace
from mgb.optimizer import SGD, Adam
from mgb.utils import load_module
from onnx import helper, numpy_helper

RANDOM = np.random.default_rng(0)


def drawn(*shape):
    return RANDOM.normal(size=shape).astype("float32")


def model_bytes():
    """A small network as exporters write it: with a normalization, scalars and a Reshape."""
    weights = {
        "conv.weight": drawn(4, 2, 3, 3) * 0.3, "conv.bias": drawn(4),
        "bn.scale": drawn(4) + 2, "bn.bias": drawn(4), "bn.mean": drawn(4), "bn.var": abs(drawn(4)) + 1,
        "fc.weight": drawn(3, 64) * 0.2, "fc.bias": drawn(3),
        "half": np.float32(0.5), "shape": np.array([0, -1]), "scales": np.array([1, 1, 1, 1], np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "bn.scale", "bn.bias", "bn.mean", "bn.var"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Resize", ["c", "", "scales"], ["d"], mode="nearest"),
        helper.make_node("Mul", ["d", "half"], ["e"]),
        helper.make_node("Reshape", ["e", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", 1, ["n", 2, 4, 4])],
        [helper.make_tensor_value_info("y", 1, ["n", 3])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString(), weights


def torch_model(torch, weights):
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
                              torch.nn.Flatten(), torch.nn.Linear(64, 3)).eval()  # fmt: skip
    names = ["conv.weight", "conv.bias", "bn.scale", "bn.bias", "bn.mean", "bn.var", "fc.weight", "fc.bias"]
    slots = [net[0].weight, net[0].bias, net[1].weight, net[1].bias, net[1].running_mean, net[1].running_var,
             net[4].weight, net[4].bias]  # fmt: skip
    with torch.no_grad():
        for name, slot in zip(names, slots, strict=True):
            slot.copy_(torch.tensor(weights[name]))
    learnt = {n: s for n, s in zip(names, slots) if "mean" not in n and "var" not in n}
    return (lambda x: net[4](net[3](net[2](net[1](net[0](x))) * 0.5))), learnt


def test_load_module_finds_parameters_and_buffers():
    content, weights = model_bytes()
    module = load_module(content)
    assert {n.removeprefix("weights.") for n, _ in module.named_parameters()} == {
        "conv.weight", "conv.bias", "bn.scale", "bn.bias", "fc.weight", "fc.bias"}  # fmt: skip
    assert {n.removeprefix("weights.") for n, _ in module.named_buffers()} == {"bn.mean", "bn.var"}
    assert [spec.name for spec in module.inputs + module.outputs] == ["x", "y"]
    x = drawn(5, 2, 4, 4)
    np.testing.assert_allclose(module(x).numpy(), mgb.jit.load(content)(x).numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(module.weights["fc.bias"].numpy(), weights["fc.bias"])


@pytest.mark.parametrize("traced", [False, True])
def test_training_matches_torch(traced):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    content, weights = model_bytes()
    module, (net, learnt) = load_module(content), torch_model(torch, weights)
    manager = GradManager().attach(module.parameters())
    ours, theirs = (
        SGD(module.parameters(), lr=0.05, momentum=0.9),
        torch.optim.SGD(learnt.values(), 0.05, 0.9),
    )

    def step(x, label):
        with manager:
            loss = F.loss.cross_entropy(module(x), label)
            manager.backward(loss)
            ours.step().clear_grad()
        return loss

    step = trace(step) if traced else step
    for _ in range(4):
        x, label = drawn(6, 2, 4, 4), RANDOM.integers(0, 3, 6)
        wanted = torch.nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(label))
        theirs.zero_grad()
        wanted.backward()
        theirs.step()
        np.testing.assert_allclose(step(tensor(x), tensor(label)).item(), wanted.item(), rtol=1e-4)
    for name, slot in learnt.items():
        np.testing.assert_allclose(module.weights[name].numpy(), slot.detach().numpy(), rtol=1e-3, atol=1e-5)
    if traced:
        assert step.stats()["body_runs"] == 1


def test_dumped_model_trains_like_its_layers(tmp_path):
    net = M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2))
    x, goal = tensor(drawn(16, 4)), tensor(drawn(16, 2))
    written = trace(net, capture_as_const=True, symbolic=True)
    written(x)
    written.dump(tmp_path / "net.onnx", optimize_for_inference=False)
    module = load_module(tmp_path / "net.onnx")

    def losses(layers):
        manager, optimizer = GradManager().attach(layers.parameters()), Adam(layers.parameters(), lr=0.01)
        found = []
        for _ in range(5):
            with manager:
                loss = ((layers(x) - goal) ** 2).mean()
                manager.backward(loss)
                optimizer.step().clear_grad()
            found.append(loss.item())
        return found

    np.testing.assert_allclose(losses(module), losses(net), rtol=1e-4)


def test_loaded_model_behaves_as_a_module():
    content, _ = model_bytes()
    module = load_module(content, outputs=["f"])
    twin = copy.deepcopy(module)
    x = drawn(2, 2, 4, 4)
    before = module(x).numpy().copy()
    assert before.shape == (2, 64)
    zeros = {n: np.zeros_like(a) for n, a in twin.state_dict().items()}
    twin.load_state_dict({**zeros, "weights.bn.var": np.ones(4, "float32")})
    assert not twin(x).numpy().any()
    np.testing.assert_array_equal(module(x).numpy(), before)

    class Head(M.Module):
        def __init__(self):
            super().__init__()
            self.features, self.last = module, M.Linear(64, 1)

        def forward(self, x):
            return self.last(self.features(x))

    head = Head()
    assert {"features.weights.conv.weight", "last.weight"} <= dict(head.named_parameters()).keys()
    assert head(x).shape == (2, 1)
