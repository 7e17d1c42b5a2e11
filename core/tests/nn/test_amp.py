"""Mixed precision: which op computes in what, against float64 and PyTorch, in every way of running."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
import pytest
from mgb import Tensor
from mgb.amp import GradScaler, autocast
from mgb.autodiff import Function, GradManager
from mgb.errors import DeviceError, StateDictError
from mgb.jit import partial_trace, trace

RNG = np.random.default_rng(0)
#: One rounding to 16 bits, relative.
STEP = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def tensor(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(RNG.standard_normal(shape)).astype(dtype)


# which op computes in what

LOW: dict[str, Callable[[Tensor], Tensor]] = {
    "matmul": lambda x: F.matmul(x, x),
    "at": lambda x: x @ x,
    "array": lambda x: F.matmul(x, np.eye(4)),
    "linear": lambda x: M.Linear(4, 3)(x),
    "conv2d": lambda x: M.Conv2d(1, 2, 3)(F.reshape(x, (1, 1, 4, 4))),
    "conv1d": lambda x: M.Conv1d(4, 2, 3)(F.reshape(x, (1, 4, 4))),
    "conv_transpose2d": lambda x: M.ConvTranspose2d(1, 2, 3)(F.reshape(x, (1, 1, 4, 4))),
    "attention": lambda x: M.MultiHeadAttention(4, 2)(F.reshape(x, (1, 4, 4))),
    "batch norm of a product": lambda x: M.BatchNorm1d(4)(x @ x),
    "relu of a product": lambda x: F.relu(x @ x),
    "gelu of a product": lambda x: F.gelu(x @ x),
    "max of a product": lambda x: (x @ x).max(axis=0),
}
HIGH: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda x: F.exp(x @ x),
    "log": lambda x: F.log(F.abs(x @ x)),
    "power": lambda x: (x @ x) ** 2.5,
    "quotient": lambda x: (x @ x) / 3,
    "softplus": lambda x: F.softplus(x @ x),
    "sum": lambda x: (x @ x).sum(axis=1),
    "mean": lambda x: (x @ x).mean(),
    "softmax": lambda x: F.softmax(x @ x, axis=1),
    "logsoftmax": lambda x: F.logsoftmax(x @ x, axis=1),
    "layer norm": lambda x: M.LayerNorm(4)(x @ x),
    "group norm": lambda x: M.GroupNorm(2, 4)(x @ x),
    "cross entropy": lambda x: F.loss.cross_entropy(x @ x, Tensor([0, 1, 2, 3])),
    "square loss": lambda x: F.loss.square_loss(x @ x, x @ x),
    "sum of both": lambda x: x @ x + x,
}


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [*LOW, *HIGH])
def test_autocast_dtypes_do_not_depend_on_recording_gradients(name: str, low: str) -> None:
    mgb.random.seed(0)
    function, x = (LOW | HIGH)[name], tensor(4, 4)
    with autocast(low_prec_dtype=low):
        out = function(x)
        with GradManager().attach(x) as manager:  # which has bodies of ops run
            taped = function(x)
            manager.backward(taped.sum())
    assert out.dtype == taped.dtype == (low if name in LOW else "float32")
    assert x.grad is not None and x.grad.dtype == np.float32
    assert (function(x).dtype, F.matmul(x, x).dtype) == (np.float32, np.float32)  # outside nothing changes


def test_autocast_options_are_validated_and_nest() -> None:
    x = tensor(4, 4)
    with autocast(low_prec_dtype="bfloat16") as outer:
        assert (x @ x).dtype == "bfloat16"
        with autocast(enabled=False):
            assert (x @ x).dtype == "float32"
            with autocast():
                assert (x @ x).dtype == "float16"
        with outer:
            assert (x @ x).dtype == "bfloat16"
        assert (x @ x).dtype == "bfloat16"
        assert (x.astype("float64") @ x.astype("float64")).dtype == "float64"
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: (x @ x).dtype).result() == "float32"
    for options in ({"low_prec_dtype": "float32"}, {"high_prec_dtype": "float16"}):
        with pytest.raises(ValueError, match=r"autocast: \w+_prec_dtype="):
            autocast(**options)
    decorated = autocast(low_prec_dtype="bfloat16")(lambda x: x @ x)
    assert decorated(x).dtype == trace(decorated)(x).dtype == "bfloat16"


def test_autocast_applies_inside_custom_functions() -> None:
    class Square(Function):
        def forward(self, x):
            self.x = x
            return x @ x

        def backward(self, dy):
            return dy @ self.x.astype(dy.dtype)

    with autocast():
        assert Square()(tensor(4, 4)).dtype == "float16"


# ways of running


def loss_of(net: M.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.loss.cross_entropy(net(x), y)


def network() -> M.Module:
    mgb.random.seed(3)
    return M.Sequential(
        M.Conv2d(1, 8, 3, padding=1), M.BatchNorm2d(8), M.ReLU(), M.Flatten(), M.Linear(288, 16), M.GELU(),
        M.LayerNorm(16), M.Linear(16, 5),
    )  # fmt: skip


IMAGES = Tensor(RNG.standard_normal((20, 1, 6, 6)))
LABELS = Tensor(np.arange(20) % 5)


def curve(way: Callable[[Any], Any], low: str | None, steps: int = 12, cut: bool = False) -> list[float]:
    """The losses of a training; `cut`, only the forward and backward pass is traced."""
    net = network()
    manager, opt = GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=3e-3)

    def differentiated(x, y):
        with manager:
            with autocast(low is not None, low or "float16"):
                loss = loss_of(net, x, y)
            manager.backward(loss)
        return loss

    def whole(x, y):
        loss = differentiated(x, y)
        opt.step().clear_grad()
        return loss

    step = way(differentiated if cut else whole)
    losses = []
    for _ in range(steps):
        losses.append(step(IMAGES, LABELS).item())
        if cut:
            opt.step().clear_grad()
    return losses


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
def test_autocast_loss_curves_match_full_precision(low: str) -> None:
    """16 bits perturb each loss by some roundings of its logits, and training by as much at each step."""
    exact, eager = curve(lambda f: f, None), curve(lambda f: f, low)
    ways = {"trace": trace, "body": trace(run_body=True), "symbolic": trace(symbolic=True)}
    curves = {name: curve(way, low) for name, way in ways.items()}
    curves["forward and backward"] = curve(trace, low, cut=True)
    assert exact[-1] < 0.5 * exact[0]
    for name, losses in {"eager": eager, **curves}.items():
        np.testing.assert_allclose(losses, exact, atol=16 * STEP[low], err_msg=name)
        assert losses != exact


def test_loss_curve_matches_torch_autocast() -> None:
    """Ours is as near to PyTorch's float32 as its own autocast is, up to a factor."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    T = torch.nn

    def train(casts: bool) -> list[float]:
        net = T.Sequential(
            T.Conv2d(1, 8, 3, padding=1), T.BatchNorm2d(8), T.ReLU(), T.Flatten(), T.Linear(288, 16),
            T.GELU(), T.LayerNorm(16), T.Linear(16, 5),
        )  # fmt: skip
        state = mgb.utils.torch_state_dict(network())
        net.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
        opt, losses = torch.optim.Adam(net.parameters(), lr=3e-3), []
        x, y = torch.from_numpy(IMAGES.numpy().copy()), torch.from_numpy(LABELS.numpy().astype(np.int64))
        for _ in range(12):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=casts):
                loss = T.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return losses

    exact = np.array(train(False))
    np.testing.assert_allclose(curve(lambda f: f, None), exact, rtol=1e-3)  # the same program
    theirs, ours = np.array(train(True)), np.array(curve(trace, "bfloat16"))
    assert abs(ours - exact).max() < 4 * max(abs(theirs - exact).max(), STEP["bfloat16"])


def test_gradients_do_not_depend_on_where_backward_is_called() -> None:
    net, grads = network(), []
    for inside in (True, False):
        manager = GradManager().attach(net.parameters())
        with manager:
            with autocast(low_prec_dtype="bfloat16"):
                loss = loss_of(net, IMAGES, LABELS)
                if inside:
                    manager.backward(loss)
            if not inside:
                manager.backward(loss)
        grads.append([p.grad.numpy() for p in net.parameters()])
        for p in net.parameters():
            p.grad = None
    for one, other in zip(*grads, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("way", [trace, partial_trace])
def test_autocast_around_a_trace_makes_a_specialization(way: Any) -> None:
    x = tensor(4, 4)
    function = way(lambda x: F.exp(x @ x) + 1)
    matrix = way(lambda x: x @ x)
    for _ in range(2):
        assert matrix(x).dtype == "float32"
        with autocast(low_prec_dtype="bfloat16"):
            for _ in range(3):
                assert (matrix(x).dtype, function(x).dtype) == ("bfloat16", "float32")
        with autocast():
            assert matrix(x).dtype == "float16"
    if way is trace:
        assert matrix.stats()["body_runs"] == 3


def test_recorded_graphs_are_not_cast_again(tmp_path: Any) -> None:
    """A function from a file, that of a gradient and that of a batch do what they did."""
    x, path = tensor(4, 4), tmp_path / "function.mgb"

    def function(x):
        return F.softmax(F.gelu(x) @ x, axis=1)

    trace(function).export(path, "f32[4,4]")
    loaded = mgb.jit.load_compiled(path, backend="eager")
    want = loaded(x).numpy()
    with autocast():
        got = loaded(x)
        batched, one = mgb.vmap(function)(Tensor(np.stack([x.numpy()] * 3))), function(x)
    assert got.dtype == batched.dtype == one.dtype == "float32"
    np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_allclose(batched.numpy()[1], one.numpy(), rtol=1e-6)
    assert (one.numpy() != want).any()


def test_autocast_flag_read_in_the_body_is_guarded() -> None:
    flag = {"on": False}

    @trace
    def step(x):
        with autocast(enabled=flag["on"]):
            return x @ x

    x, seen = tensor(4, 4), []
    for on in (False, True, False, True):
        flag["on"] = on
        seen.append(step(x).dtype.name)
    assert seen == ["float32", "float16"] * 2


# the scaler


def trained(way: Any, optimizer: Any, scales: list[float], **options: Any) -> tuple[Any, Any, GradScaler]:
    weight = mgb.Parameter([1.0, -2.0, 3.0])
    manager, scaler = GradManager().attach(weight), GradScaler(**options)
    opt = optimizer([weight])

    @way
    def step(factor):
        with manager:
            scaler.backward(manager, (weight * weight).sum() * factor)
            opt.step().clear_grad()

    for scale in scales:
        step(Tensor(scale))
    return weight, opt, scaler


OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: optim.Adam(p, lr=0.1),
    "adamw": lambda p: optim.AdamW(p, lr=0.1),
    "lamb": lambda p: optim.LAMB(p, lr=0.1),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.1),
}
WAYS = {"eager": lambda f: f, "trace": trace, "body": trace(run_body=True), "no body": trace(run_body=False)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_step_with_overflow_is_skipped(name: str, way: str) -> None:
    good, inf = 1.0, np.inf
    mixed = trained(WAYS[way], OPTIMIZERS[name], [good, inf, good, np.nan, inf, good], init_scale=64.0)
    plain = trained(lambda f: f, OPTIMIZERS[name], [good] * 3, init_scale=1.0)
    np.testing.assert_allclose(mixed[0].numpy(), plain[0].numpy(), rtol=1e-6)
    for one, other in zip(mixed[1]._state.values(), plain[1]._state.values(), strict=True):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_allclose(one[key].numpy(), other[key].numpy(), rtol=1e-6, err_msg=key)
    assert mixed[2].scale_factor.item() == 8.0  # three times a half


LOSSES = [1.0, 1.0, 1.0, np.inf, 1.0, 1.0, np.nan, 1.0, 1.0, 1.0, 1.0, 1.0]
SCALER = {"init_scale": 32.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3}


@pytest.mark.parametrize("way", [lambda f: f, trace])
def test_scale_grows_after_an_interval_and_backs_off_at_overflow(way: Any) -> None:
    weight, scaler, scales = mgb.Parameter([1.0, 1.0]), GradScaler(**SCALER), []
    manager, sgd = GradManager().attach(weight), optim.SGD([weight], lr=0.01)

    @way
    def step(factor):
        with manager:
            scaler.backward(manager, (weight * weight).sum() * factor)
            sgd.step().clear_grad()

    for loss in LOSSES:
        step(Tensor(loss))
        scales.append(scaler.scale_factor.item())
    assert scales == [32, 32, 128, 32, 32, 32, 8, 8, 8, 32, 32, 32]
    np.testing.assert_allclose(weight.numpy(), 0.98**10, rtol=1e-6)  # w - 0.01 * 2 w at each finite loss


def test_loss_scale_matches_torch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    theirs, p = torch.amp.GradScaler("cpu", **SCALER), torch.nn.Parameter(torch.ones(2))
    opt, scales = torch.optim.SGD([p], lr=0.01), []
    for loss in LOSSES:
        opt.zero_grad()
        theirs.scale((p * p).sum() * loss).backward()
        theirs.step(opt)
        theirs.update()
        scales.append(theirs.get_scale())
    assert scales == [32, 32, 128, 32, 32, 32, 8, 8, 8, 32, 32, 32]
    np.testing.assert_allclose(p.detach().numpy(), 0.98**10, rtol=1e-6)


def test_scaler_with_backward_and_step_in_separate_traces() -> None:
    weight = mgb.Parameter([1.0, 2.0])
    manager, scaler, opt = GradManager().attach(weight), GradScaler(), optim.SGD([weight], lr=0.1)

    @trace
    def differentiate(factor):
        with manager:
            scaler.backward(manager, (weight * weight).sum() * factor)

    @trace
    def update():
        opt.step().clear_grad()

    for factor in (1.0, np.inf, 1.0, np.inf):
        differentiate(Tensor(factor))
        update()
    np.testing.assert_allclose(weight.numpy(), np.array([1.0, 2.0]) * 0.8**2, rtol=1e-6)


def test_scaler_created_later_retraces_the_step() -> None:
    """A step that was recorded before is recorded again."""
    weight = mgb.Parameter([1.0])
    opt = optim.SGD([weight], lr=0.5)

    @trace
    def update(grad):
        weight.grad = grad
        opt.step()

    update(Tensor([1.0]))
    update(Tensor([np.nan]))
    assert np.isnan(weight.item())
    weight._reset(Tensor([1.0]))
    GradScaler().unscale([weight])
    update(Tensor([np.nan]))
    assert weight.item() == 1.0


def test_loss_scaling_preserves_small_gradients() -> None:
    """In float16, 2**-30 is 0 unless it is scaled."""
    found = []
    for scale in (1.0, 2.0**14):
        weight = mgb.Parameter([[2.0**-10]])
        manager, scaler = GradManager().attach(weight), GradScaler(init_scale=scale)
        with manager:
            with autocast():
                loss = (F.matmul(weight, Tensor([[2.0**-10]])) * 2.0**-20).sum()
            scaler.backward(manager, loss)
        found.append(weight.grad.item())
    assert found == [0.0, 2.0**-30]


def test_scaler_accumulation_update_and_state() -> None:
    weight = mgb.Parameter([2.0])
    manager, scaler = GradManager().attach(weight), GradScaler(init_scale=8.0, growth_interval=1)
    for last in (False, True):
        with manager:
            scaler.backward(manager, weight * 3, Tensor([2.0]), unscale_grad=last)
    assert weight.grad.item() == 12.0 and scaler.scale_factor.item() == 16.0
    state = scaler.state_dict()
    other = GradScaler()
    other.load_state_dict(state)
    assert other.state_dict() == state and repr(other) == repr(scaler)
    other.update(3.0)
    assert other.scale_factor.item() == 3.0
    with pytest.raises(StateDictError, match="has no growth_factor, tracker"):
        other.load_state_dict({name: state[name] for name in state.keys() - {"growth_factor", "tracker"}})
    for wrong in ({"init_scale": 0.0}, {"growth_factor": 0.5}, {"backoff_factor": 1.0}):
        with pytest.raises(ValueError, match=f"GradScaler.*{next(iter(wrong))}"):
            GradScaler(**wrong)
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == state


# dtypes and places of whole modules


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
def test_module_converted_to_16_bits(low: str) -> None:
    net = network().eval()
    want, names = net(IMAGES).numpy(), dict(net.named_tensors())
    assert (net.half() if low == "float16" else net.to(low)) is net
    assert all(tensor.dtype == low for tensor in net.tensors())
    assert {name: id(t) for name, t in net.named_tensors()} == {name: id(t) for name, t in names.items()}
    for function in (net, trace(net)):
        got = function(IMAGES.astype(low))
        assert got.dtype == low
        np.testing.assert_allclose(got.astype("float32").numpy(), want, atol=16 * STEP[low])
    net.to("xpux", "float32")
    assert {t.dtype.name for t in net.tensors()} == {"float32"}


def test_training_in_16_bits_stores_optimizer_state_in_float32() -> None:
    net = M.Linear(4, 2).to("bfloat16")
    manager, opt = GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=0.1)
    with manager:
        manager.backward((net(tensor(3, 4, dtype="bfloat16")) ** 2).sum())
        opt.step()
    assert net.weight.dtype == "bfloat16"
    assert {t.dtype.name for state in opt._state.values() for t in state.values()} == {"float32"}
    net.to("float32")
    assert net.weight.grad.dtype == "float32"


def test_to_accepts_a_dtype_or_a_device() -> None:
    x = tensor(2, 3)
    assert x.to("float16").dtype == x.to(np.float16).dtype == x.to("xpux", "float16").dtype == "float16"
    assert x.to("cpu0").dtype == x.to(device="cpu0").dtype == "float32"
    with pytest.raises(DeviceError, match=r"to\('quick'\): that is neither a device.* nor a dtype"):
        x.to("quick")
    with pytest.raises(DeviceError, match="neither a device"):
        M.Linear(2, 2).to("quick")
    counts = M.Sequential(M.Linear(2, 2))
    counts.seen = Tensor([1, 2])
    assert counts.half().seen.dtype == np.int32
