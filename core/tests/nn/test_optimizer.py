"""Optimizers against the published rules, written out here in NumPy and float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.errors import ArgumentError, StateDictError
from mgb.jit import trace
from mgb.optimizer import (
    LAMB,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    MultiStepLR,
    NAdam,
    RMSprop,
    clip_grad_norm,
    clip_grad_value,
)
from mgb.tensor import Parameter, Tensor

RNG = np.random.default_rng(0)


# the rules: generators that are sent gradients and give parameters


def sgd(p, lr, momentum=0.0, nesterov=False, weight_decay=0.0):
    velocity = np.zeros_like(p)
    while True:
        g = (yield p) + weight_decay * p
        velocity = momentum * velocity + g
        p = p - lr * (g + momentum * velocity if nesterov else velocity)


def adam_direction(g, m, v, t, betas, eps, correct=True):
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    share = [1 - b**t if correct else 1 for b in betas]
    return (m / share[0]) / (np.sqrt(v / share[1]) + eps), m, v


def adam(p, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    m = v = np.zeros_like(p)
    t = 0
    while True:
        g = (yield p) + (0 if decoupled else weight_decay * p)
        t += 1
        delta, m, v = adam_direction(g, m, v, t, betas, eps)
        p = p - lr * (delta + (weight_decay * p if decoupled else 0))


def adamw(p, lr, weight_decay=1e-2, **options):
    return adam(p, lr, weight_decay=weight_decay, decoupled=True, **options)


def lamb(p, lr, betas=(0.9, 0.999), eps=1e-8, bias_correction=True, weight_decay=0.0, always_adapt=False):
    m = v = np.zeros_like(p)
    t = 0
    while True:
        g = yield p
        t += 1
        delta, m, v = adam_direction(g, m, v, t, betas, eps, bias_correction)
        delta = delta + weight_decay * p
        lengths = np.linalg.norm(p), np.linalg.norm(delta)
        adapts = (always_adapt or weight_decay) and min(lengths) > 0
        p = p - lr * (lengths[0] / lengths[1] if adapts else 1) * delta


def adagrad(p, lr=1e-2, lr_decay=0.0, eps=1e-10, weight_decay=0.0):
    total = np.zeros_like(p)
    t = 0
    while True:
        g = (yield p) + weight_decay * p
        t += 1
        total = total + g**2
        p = p - lr / (1 + (t - 1) * lr_decay) * g / np.sqrt(total + eps)


def adadelta(p, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0):
    squares = deltas = np.zeros_like(p)
    while True:
        g = (yield p) + weight_decay * p
        squares = rho * squares + (1 - rho) * g**2
        delta = np.sqrt(deltas + eps) / np.sqrt(squares + eps) * g
        deltas = rho * deltas + (1 - rho) * delta**2
        p = p - lr * delta


def rmsprop(p, lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    square = mean = velocity = np.zeros_like(p)
    while True:
        g = (yield p) + weight_decay * p
        square = alpha * square + (1 - alpha) * g**2
        mean = alpha * mean + (1 - alpha) * g
        velocity = momentum * velocity + g / (np.sqrt(square - centered * mean**2) + eps)
        p = p - lr * velocity


def adamax(p, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    m = u = np.zeros_like(p)
    t = 0
    while True:
        g = (yield p) + weight_decay * p
        t += 1
        m = betas[0] * m + (1 - betas[0]) * g
        u = np.maximum(betas[1] * u, abs(g) + eps)
        p = p - lr / (1 - betas[0] ** t) * m / u


def nadam(p, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, momentum_decay=4e-3):
    m = v = np.zeros_like(p)
    t, product = 0, 1.0
    while True:
        g = (yield p) + weight_decay * p
        t += 1
        now, later = (betas[0] * (1 - 0.5 * 0.96 ** (s * momentum_decay)) for s in (t, t + 1))
        product *= now
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        ahead = (1 - now) / (1 - product) * g + later / (1 - product * later) * m
        p = p - lr * ahead / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


CASES = [
    (RMSprop, rmsprop, {}),
    (RMSprop, rmsprop, {"lr": 0.1, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.9}),
    (RMSprop, rmsprop, {"centered": True, "alpha": 0.5, "eps": 0.1}),
    (Adamax, adamax, {}),
    (Adamax, adamax, {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (NAdam, nadam, {}),
    (NAdam, nadam, {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.1, "momentum_decay": 0.1}),
    (SGD, sgd, {"lr": 0.1}),
    (SGD, sgd, {"lr": 0.1, "weight_decay": 0.01}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (Adam, adam, {"lr": 0.01}),
    (Adam, adam, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (Adam, adam, {"lr": 0.01, "betas": (0.0, 0.9)}),
    (AdamW, adamw, {"lr": 0.01}),
    (AdamW, adamw, {"lr": 0.01, "weight_decay": 0.3}),
    (LAMB, lamb, {"lr": 0.01}),
    (LAMB, lamb, {"lr": 0.01, "weight_decay": 0.1}),
    (LAMB, lamb, {"lr": 0.01, "always_adapt": True, "bias_correction": False}),
    (Adagrad, adagrad, {}),
    (Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.1, "eps": 1e-3, "weight_decay": 0.1}),
    (Adadelta, adadelta, {}),
    (Adadelta, adadelta, {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1}),
]
IDS = [f"{c.__name__}-{'-'.join(o)}" for c, _, o in CASES]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 2e-6)])
@pytest.mark.parametrize(("optimizer", "rule", "options"), CASES, ids=IDS)
def test_updates_match_the_published_rule(optimizer, rule, options, dtype, tolerance):
    """float64 is limited by the hyper-parameters, which are float32 inside a step."""
    starts = [RNG.normal(size=(3, 2)), RNG.normal(size=4)]
    params = [Parameter(s, dtype=dtype) for s in starts]
    opt = optimizer(params, **options)
    rules = [rule(s.copy(), **options) for s in starts]
    wants = [next(r) for r in rules]
    for _ in range(8):
        for k, (param, r) in enumerate(zip(params, rules, strict=True)):
            g = RNG.normal(size=param.shape).astype(dtype)
            param.grad = Tensor(g, dtype=dtype)
            wants[k] = r.send(g.astype(np.float64))
        assert opt.step() is opt
    for param, want, start in zip(params, wants, starts, strict=True):
        assert param.dtype == dtype
        np.testing.assert_allclose(param.numpy() - start, want - start, rtol=tolerance, atol=tolerance / 20)


def test_adam_corrects_its_bias_in_full_precision():
    """1 - 0.999 in float32 is wrong by 5e-5; the first step is lr times the sign of the gradient exactly."""
    p = Parameter(np.zeros(3))
    p.grad = Tensor([1e-3, -2.0, 5.0])
    Adam(p, lr=1.0, eps=0.0).step()
    np.testing.assert_allclose(p.numpy(), [-1, 1, -1], rtol=5e-7)


def test_lamb_updates_a_zero_parameter():
    p = Parameter(np.zeros(3))
    p.grad = Tensor([1.0, -2.0, 5.0])
    LAMB(p, lr=0.1, always_adapt=True).step()
    np.testing.assert_allclose(p.numpy(), [-0.1, 0.1, -0.1], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_parameters_are_updated_in_float32(dtype):
    p = Parameter(np.ones(2), dtype=dtype)
    opt = Adam(p, lr=0.1)
    for _ in range(3):
        p.grad = Tensor([1.0, 1.0], dtype=dtype)
        opt.step()
    assert p.dtype == Parameter([1.0], dtype=dtype).dtype
    assert all(v.dtype == np.float32 for v in opt.state_dict()["state"][0].values())
    np.testing.assert_allclose(p.numpy().astype(float), [0.7, 0.7], rtol=0.01)


@pytest.mark.parametrize(("optimizer", "options"), [(c, o) for c, _, o in CASES], ids=IDS)
def test_optimizers_reduce_a_quadratic_loss(optimizer, options):
    p = Parameter([1.0, -2.0, 3.0])
    opt, gm = optimizer(p, **options), GradManager().attach(p)
    losses = []
    for _ in range(30):
        with gm:
            loss = (p * p * Tensor([1.0, 0.5, 0.1])).sum()
            gm.backward(loss)
            opt.step().clear_grad()
        losses.append(loss.item())
    assert p.grad is None
    assert losses[-1] < losses[0]
    assert p._tape is None


def test_parameters_without_gradient_are_not_updated():
    p, q = Parameter([1.0]), Parameter([2.0])
    opt = Adam([p, q], lr=0.1, weight_decay=0.5)
    p.grad = Tensor([1.0])
    opt.step()
    assert q.item() == 2.0
    assert p.item() != 1.0
    assert opt.state_dict()["state"][1]["step"] == 0


def test_step_keeps_parameter_identity():
    p = Parameter([1.0])
    p.grad = Tensor([1.0])
    opt = SGD(p, lr=0.5)
    opt.step()
    assert opt.param_groups[0]["params"][0] is p
    assert p.item() == 0.5


def test_parameter_groups_can_change_between_steps():
    p, q = Parameter([1.0]), Parameter([1.0])
    opt = SGD([{"params": p, "lr": 0.5}, {"params": [q], "weight_decay": 1.0}], lr=0.25)
    p.grad, q.grad = Tensor([1.0]), Tensor([1.0])
    opt.step()
    assert (p.item(), q.item()) == (0.5, 0.5)
    opt.param_groups[0]["lr"] = 0.0
    opt.step()
    assert (p.item(), q.item()) == (0.5, 0.125)
    extra = Parameter([1.0])
    opt.add_param_group({"params": extra})
    extra.grad = Tensor([1.0])
    opt.step()
    assert extra.item() == 0.75


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: SGD([], lr=1), ValueError, "optimizer got an empty parameter list"),
        (lambda p: SGD([p, p], lr=1), ValueError, "some parameters appear in more than one parameter group"),
        (lambda p: SGD([{"params": p}, {"params": [p]}], lr=1), ValueError, "more than one parameter group"),
        (lambda p: SGD([p, Tensor([1.0])], lr=1), TypeError, "one of the params is Tensor"),
        (lambda p: SGD(3, lr=1), TypeError, "an iterable of them, got int"),
        (lambda p: SGD({p}, lr=1), TypeError, "use a list instead"),
        (lambda p: SGD([{"params": {p}}], lr=1), TypeError, "use a list instead"),
        (lambda p: SGD([p, {"params": []}], lr=1), TypeError, "got both"),
        (lambda p: SGD(p, lr=-1), ValueError, "invalid lr: -1 is negative"),
        (lambda p: SGD(p, lr=1, momentum=-1), ValueError, "invalid momentum"),
        (lambda p: SGD(p, lr=1, nesterov=True), ValueError, "nesterov"),
        (lambda p: SGD(p, lr=1, weight_decay=-1), ValueError, "invalid weight_decay"),
        (lambda p: Adam(p, lr=1, betas=(0.5, 1.0)), ValueError, "invalid betas"),
        (lambda p: AdamW(p, lr=1, eps=-1), ValueError, "invalid eps"),
        (lambda p: LAMB(p, lr=1, betas=(-0.1, 0.9)), ValueError, "invalid betas"),
        (lambda p: Adagrad(p, lr_decay=-1), ValueError, "invalid lr_decay"),
        (lambda p: Adadelta(p, rho=2), ValueError, "invalid rho"),
    ],
)
def test_invalid_arguments_raise(make, error, text):
    with pytest.raises(error, match=text):
        make(Parameter([1.0]))


# state


@pytest.mark.parametrize("keep_var", [False, True])
@pytest.mark.parametrize(("optimizer", "options"), [(c, o) for c, _, o in CASES], ids=IDS)
def test_loaded_optimizer_continues_identically(optimizer, options, keep_var):
    def run(opt, params, count):
        random = np.random.default_rng(count)
        for _ in range(count):
            for p in params:
                p.grad = Tensor(random.normal(size=p.shape))
            opt.step()

    params = [Parameter([1.0, 2.0]), Parameter([[3.0]])]
    opt = optimizer(params, **options)
    run(opt, params, 3)
    others = [Parameter(p.numpy()) for p in params]
    other = optimizer(others, **{**options, "lr": 7.0})
    states = [id(t) for s in other._state.values() for t in s.values()]
    other.load_state_dict(opt.state_dict(keep_var=keep_var))
    assert states == [id(t) for s in other._state.values() for t in s.values()]
    run(opt, params, 2)
    run(other, others, 2)
    for a, b in zip(params, others, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_state_dict_contains_plain_data():
    p = Parameter([1.0, 2.0])
    state = SGD(p, lr=0.1, momentum=0.9).state_dict()
    group = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "nesterov": False, "params": [0]}
    assert state["param_groups"] == [group]
    assert type(state["state"][0]["momentum_buffer"]) is np.ndarray


def test_load_state_dict_rejects_mismatched_state():
    p, q = Parameter([1.0]), Parameter([1.0, 2.0])
    opt = Adam([p], lr=0.1)
    good = opt.state_dict()
    for text, bad in (
        ("2 parameter groups, the optimizer 1", Adam([{"params": p}, {"params": q}], lr=0.1)),
        ("2 parameters and the optimizer's 1", Adam([p, q], lr=0.1)),
        ("differs in .*lr_decay.*: another optimizer", Adagrad(p)),
        (r"should be \(1,\), get \(2,\)", Adam([q], lr=0.1)),
    ):
        with pytest.raises(ArgumentError, match=text):
            opt.load_state_dict(bad.state_dict())
    with pytest.raises(StateDictError, match="parameter 0 holds"):
        opt.load_state_dict({**good, "state": {}})


# schedules and clipping


def test_multi_step_lr():
    opt = SGD([{"params": Parameter([1.0])}, {"params": Parameter([1.0]), "lr": 2.0}], lr=1.0)
    scheduler = MultiStepLR(opt, [2, 4, 4], gamma=0.5)
    seen = []
    for _ in range(6):
        seen.append([group["lr"] for group in opt.param_groups])
        scheduler.step()
    assert seen == [[f, 2 * f] for f in (1.0, 1.0, 0.5, 0.5, 0.125, 0.125)]
    scheduler.step(0)
    assert opt.param_groups[0]["lr"] == 1.0
    state = scheduler.state_dict()
    scheduler.step(5)
    scheduler.load_state_dict(state)
    assert scheduler.current_epoch == 0
    assert MultiStepLR(opt, [2], current_epoch=3).base_lrs == [1.0, 2.0]
    assert opt.param_groups[0]["lr"] == 0.1


def test_invalid_schedules_raise():
    opt = SGD(Parameter([1.0]), lr=1.0)
    with pytest.raises(ValueError, match="list of increasing integers"):
        MultiStepLR(opt, [3, 1])
    with pytest.raises(KeyError, match="initial_lr"):
        MultiStepLR(opt, [3], current_epoch=2)
    with pytest.raises(StateDictError, match="another kind of scheduler"):
        MultiStepLR(opt, [3]).load_state_dict({"gamma": 1})


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(order, max_norm):
    grads = [RNG.normal(size=(2, 3)), RNG.normal(size=4)]
    params = [Parameter(np.zeros(g.shape)) for g in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = Tensor(grad)
    kept = [p.grad for p in params]
    norm = clip_grad_norm([*params, Parameter([1.0])], max_norm, ord=order)
    want = np.linalg.norm(np.concatenate([g.ravel() for g in grads]), ord=order)
    np.testing.assert_allclose(norm.item(), want, rtol=1e-5)
    for param, grad, tensor in zip(params, grads, kept, strict=True):
        assert param.grad is tensor
        np.testing.assert_allclose(tensor.numpy(), grad * min(max_norm / (want + 1e-6), 1), rtol=1e-5)


def test_clip_grad_value():
    p = Parameter(np.zeros(4))
    p.grad = grad = Tensor([-3.0, -0.5, 0.5, 3.0])
    clip_grad_value(p, -1, 2)
    assert p.grad is grad
    np.testing.assert_array_equal(grad.numpy(), [-1, -0.5, 0.5, 2])


def test_clipping_without_gradients_does_nothing():
    assert clip_grad_norm([Parameter([1.0])], 1.0).item() == 0
    clip_grad_value(Parameter([1.0]), 0, 1)


# inside a trace


@pytest.mark.parametrize(("optimizer", "options"), [(c, o) for c, _, o in CASES], ids=IDS)
def test_traced_step_uses_changed_hyperparameters(optimizer, options, monkeypatch):
    """Steps are counted and the learning rate is read at every call, compiled or not."""
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")

    def run(wrap):
        p = Parameter([1.0, -2.0, 3.0])
        opt, gm = optimizer(p, **options), GradManager().attach(p)

        @wrap
        def step(scale):
            with gm:
                gm.backward((p * p * scale).sum())
            opt.step().clear_grad()

        values = []
        for k in range(6):
            opt.param_groups[0]["lr"] = 0.1 / (k + 1)
            step(Tensor([1.0, 0.5, 0.1 * k]))
            values.append(p.numpy().copy())
        return np.array(values)

    np.testing.assert_allclose(run(trace), run(lambda function: function), rtol=2e-6, atol=1e-7)


def test_weight_decay_can_be_enabled_in_a_traced_step(monkeypatch):
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")
    p = Parameter([1.0])
    opt = SGD(p, lr=0.5)

    @trace
    def step():
        p.grad = p * 0
        opt.step().clear_grad()

    values = []
    for weight_decay in (0.0, 0.0, 1.0, 0.0):
        opt.param_groups[0]["weight_decay"] = weight_decay
        step()
        values.append(p.item())
    assert values == [1.0, 1.0, 0.5, 0.5]
