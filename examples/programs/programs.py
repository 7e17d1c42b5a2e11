"""Twenty programs of research, each written once for any library with NumPy's names and JAX's transforms.

`lib` has ``np`` (`mgb.numpy`, or `jax.numpy`), ``grad``, ``value_and_grad``, ``hessian`` and ``vmap``.
`PROGRAMS` has for each name the function and what makes its arguments, of a size and a generator of NumPy's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

Random = numpy.random.Generator


class Program(NamedTuple):
    """A function of `lib` and arrays in lists; `arguments` makes these, `size` is that of a measurement."""

    run: Callable[..., Any]
    arguments: Callable[[Random, int], list[Any]]
    size: int


def layers(random: Random, *widths: int) -> list[list[Any]]:
    """Weights and shifts of a perceptron."""
    return [
        [normal(random, a, b) / math.sqrt(a), numpy.zeros(b, numpy.float32)]
        for a, b in itertools.pairwise(widths)
    ]


def normal(random: Random, *shape: int) -> Any:
    return random.standard_normal(shape).astype(numpy.float32)


def perceptron(np: Any, net: Any, x: Any) -> Any:
    for w, b in net[:-1]:
        x = np.tanh(x @ w + b)
    w, b = net[-1]
    return x @ w + b


def updated(params: Any, grads: Any, rate: float) -> Any:
    """One step of gradient descent in a nest of lists."""
    if isinstance(params, list):
        return [updated(p, g, rate) for p, g in zip(params, grads)]
    return params - rate * grads


def log_softmax(np: Any, x: Any) -> Any:
    top = x - np.max(x, axis=-1, keepdims=True)
    return top - np.log(np.sum(np.exp(top), axis=-1, keepdims=True))


def picked(np: Any, x: Any, labels: Any) -> Any:
    """The element of each row that its label names."""
    classes = np.arange(x.shape[-1])
    return np.sum(np.where(labels[..., None] == classes, x, 0.0), axis=-1)


# statistics and learning


def ridge(lib: Any, x: Any, y: Any) -> Any:
    np = lib.np
    return np.linalg.solve(x.T @ x + 0.1 * np.eye(x.shape[1]), x.T @ y)


def logistic_newton(lib: Any, w: Any, x: Any, y: Any) -> Any:
    np = lib.np

    def loss(w: Any) -> Any:
        z = x @ w
        return np.mean(np.log(1.0 + np.exp(z)) - y * z) + 0.01 * np.sum(w * w)

    for _ in range(3):
        w = w - np.linalg.solve(lib.hessian(loss)(w), lib.grad(loss)(w)[:, None])[:, 0]
    return w


def k_means(lib: Any, x: Any, centres: Any) -> Any:
    np = lib.np
    for _ in range(5):
        distance = np.sum(x * x, axis=1)[:, None] - 2.0 * (x @ centres.T) + np.sum(centres * centres, axis=1)
        nearest = np.argmin(distance, axis=1)
        member = np.where(nearest[:, None] == np.arange(centres.shape[0]), 1.0, 0.0)
        centres = (member.T @ x) / np.maximum(np.sum(member, axis=0), 1.0)[:, None]
    return centres


def gaussian_mixture(lib: Any, x: Any, means: Any, spread: Any, weight: Any) -> Any:
    np = lib.np
    for _ in range(4):
        distance = np.sum((x[:, None, :] - means) ** 2, axis=2)
        score = np.log(weight) - 0.5 * distance / spread - 0.5 * x.shape[1] * np.log(spread)
        share = np.exp(log_softmax(np, score))
        total = np.sum(share, axis=0)
        means = (share.T @ x) / total[:, None]
        distance = np.sum((x[:, None, :] - means) ** 2, axis=2)
        spread = np.sum(share * distance, axis=0) / (x.shape[1] * total) + 1e-3
        weight = total / x.shape[0]
    return [means, spread, weight]


def gaussian_process(lib: Any, x: Any, y: Any, at: Any) -> Any:
    np = lib.np

    def kernel(a: Any, b: Any) -> Any:
        return np.exp(-0.5 * np.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=2))

    root = np.linalg.cholesky(kernel(x, x) + 0.1 * np.eye(x.shape[0]))
    cross = kernel(at, x)
    weights = np.linalg.solve(root.T, np.linalg.solve(root, y[:, None]))
    inner = np.linalg.solve(root, cross.T)
    return [(cross @ weights)[:, 0], 1.0 - np.sum(inner * inner, axis=0)]


def principal_components(lib: Any, x: Any, basis: Any) -> Any:
    np = lib.np
    x = x - np.mean(x, axis=0)
    for _ in range(10):
        basis, _ = np.linalg.qr(x.T @ (x @ basis))
    return np.abs(basis)


def matrix_factors(lib: Any, ratings: Any, known: Any, u: Any, v: Any) -> Any:
    np = lib.np

    def loss(factors: Any) -> Any:
        return np.sum(known * (ratings - factors[0] @ factors[1].T) ** 2) / np.sum(known)

    factors = [u, v]
    for _ in range(5):
        factors = updated(factors, lib.grad(loss)(factors), 5.0)
    return factors


def sinkhorn(lib: Any, x: Any, y: Any) -> Any:
    np = lib.np
    cost = np.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=2)
    f, g = np.zeros_like(cost[:, 0]), np.zeros_like(cost[0])
    for _ in range(10):
        f = -0.5 * _log_mean_exp(np, (g[None, :] - cost) / 0.5, 1)
        g = -0.5 * _log_mean_exp(np, (f[:, None] - cost) / 0.5, 0)
    return np.sum(np.exp((f[:, None] + g[None, :] - cost) / 0.5) * cost) / cost.size


def _log_mean_exp(np: Any, x: Any, axis: int) -> Any:
    top = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(top, axis=axis) + np.log(np.mean(np.exp(x - top), axis=axis))


# networks


def vae_step(lib: Any, encoder: Any, decoder: Any, x: Any, noise: Any) -> Any:
    np = lib.np

    def loss(nets: Any) -> Any:
        code = perceptron(np, nets[0], x)
        half = code.shape[1] // 2
        mean, logvar = code[:, :half], code[:, half:]
        rebuilt = perceptron(np, nets[1], mean + noise * np.exp(0.5 * logvar))
        divergence = 0.5 * np.sum(np.exp(logvar) + mean * mean - 1.0 - logvar, axis=1)
        return np.mean(np.sum((rebuilt - x) ** 2, axis=1) + divergence)

    value, grads = lib.value_and_grad(loss)([encoder, decoder])
    return [value, updated([encoder, decoder], grads, 1e-3)]


def gan_step(lib: Any, generator: Any, critic: Any, real: Any, noise: Any) -> Any:
    np = lib.np

    def softplus(x: Any) -> Any:
        return np.maximum(x, 0.0) + np.log(1.0 + np.exp(-np.abs(x)))

    def critic_loss(critic: Any) -> Any:
        fake = perceptron(np, generator, noise)
        return np.mean(softplus(-perceptron(np, critic, real)) + softplus(perceptron(np, critic, fake)))

    critic = updated(critic, lib.grad(critic_loss)(critic), 1e-2)

    def generator_loss(generator: Any) -> Any:
        return np.mean(softplus(-perceptron(np, critic, perceptron(np, generator, noise))))

    return [updated(generator, lib.grad(generator_loss)(generator), 1e-2), critic]


def diffusion_step(lib: Any, net: Any, x: Any, noise: Any, time: Any) -> Any:
    np = lib.np
    kept = np.cos(0.5 * math.pi * time)[:, None] ** 2
    noisy = np.sqrt(kept) * x + np.sqrt(1.0 - kept) * noise
    waves = time[:, None] * np.arange(1.0, 9.0)
    given = np.concat([noisy, np.sin(waves), np.cos(waves)], axis=1)
    value, grads = lib.value_and_grad(lambda net: np.mean((perceptron(np, net, given) - noise) ** 2))(net)
    return [value, updated(net, grads, 1e-2)]


def policy_gradient(lib: Any, net: Any, states: Any, actions: Any, rewards: Any) -> Any:
    np = lib.np
    steps = rewards.shape[1]
    ahead = np.arange(steps)[:, None] - np.arange(steps)
    discount = np.where(ahead >= 0, 0.99 ** np.abs(ahead * 1.0), 0.0)
    returns = rewards @ discount
    advantage = (returns - np.mean(returns)) / (np.std(returns) + 1e-6)

    def loss(net: Any) -> Any:
        chosen = log_softmax(np, perceptron(np, net, states))
        entropy = -np.sum(np.exp(chosen) * chosen, axis=-1)
        return -np.mean(picked(np, chosen, actions) * advantage + 0.01 * entropy)

    value, grads = lib.value_and_grad(loss)(net)
    return [value, updated(net, grads, 1e-2)]


def language_step(lib: Any, table: Any, q: Any, k: Any, v: Any, net: Any, words: Any) -> Any:
    np = lib.np
    size, length = table.shape[0], words.shape[1]
    sees = np.arange(length)[:, None] >= np.arange(length)
    one_hot = np.where(words[..., None] == np.arange(size), 1.0, 0.0)

    def loss(params: Any) -> Any:
        table, q, k, v, net = params
        x = one_hot @ table
        scores = (x @ q) @ np.matrix_transpose(x @ k) / math.sqrt(x.shape[-1])
        weights = np.exp(log_softmax(np, np.where(sees, scores, -1e9)))
        logits = perceptron(np, net, x + weights @ (x @ v)) @ table.T
        return -np.mean(picked(np, log_softmax(np, logits[:, :-1]), words[:, 1:]))

    params = [table, q, k, v, net]
    value, grads = lib.value_and_grad(loss)(params)
    return [value, updated(params, grads, 1e-1)]


def physics_informed(lib: Any, net: Any, x: Any) -> Any:
    """``u'' = -sin(x)`` with ``u(0) = u(pi) = 0``: derivatives of derivatives of a network."""
    np = lib.np

    def loss(net: Any) -> Any:
        def u(x: Any) -> Any:
            return perceptron(np, net, x[:, None])[:, 0]

        def slope(x: Any) -> Any:
            return lib.grad(lambda x: np.sum(u(x)))(x)

        bend = lib.grad(lambda x: np.sum(slope(x)))(x)
        return np.mean((bend + np.sin(x)) ** 2) + np.sum(u(math.pi * np.arange(2.0)) ** 2)

    value, grads = lib.value_and_grad(loss)(net)
    return [value, updated(net, grads, 1e-3)]


# filters, simulation, finance


def kalman(lib: Any, seen: Any, f: Any, h: Any) -> Any:
    np = lib.np
    mean, cov = np.zeros_like(f[0]), np.eye(f.shape[0])
    unit, means = np.eye(h.shape[0]), []
    for t in range(16):
        mean, cov = f @ mean, f @ cov @ f.T + 0.01 * np.eye(f.shape[0])
        gain = np.linalg.solve(h @ cov @ h.T + 0.1 * unit, h @ cov).T
        mean = mean + gain @ (seen[t] - h @ mean)
        cov = cov - gain @ (h @ cov)
        means.append(mean)
    return np.stack(means)


def n_body(lib: Any, place: Any, speed: Any, mass: Any) -> Any:
    np = lib.np

    def pull(place: Any) -> Any:
        apart = place[None, :, :] - place[:, None, :]
        square = np.sum(apart * apart, axis=2) + 0.01
        return np.sum(apart * (mass / (square * np.sqrt(square)))[:, :, None], axis=1)

    for _ in range(5):
        speed = speed + 0.005 * pull(place)
        place = place + 0.01 * speed
        speed = speed + 0.005 * pull(place)
    return [place, speed]


def heat(lib: Any, u: Any) -> Any:
    np = lib.np
    for _ in range(20):
        around = (
            np.roll(u, 1, axis=0) + np.roll(u, -1, axis=0) + np.roll(u, 1, axis=1) + np.roll(u, -1, axis=1)
        )
        u = u + 0.2 * (around - 4.0 * u)
    return u


def predators(lib: Any, x: Any, y: Any) -> Any:
    """Lotka and Volterra's equations by Runge and Kutta's method, for many beginnings at once."""

    def slope(x: Any, y: Any) -> tuple[Any, Any]:
        return 1.1 * x - 0.4 * x * y, 0.1 * x * y - 0.4 * y

    for _ in range(20):
        a, b = slope(x, y)
        c, d = slope(x + 0.025 * a, y + 0.025 * b)
        e, f = slope(x + 0.025 * c, y + 0.025 * d)
        g, h = slope(x + 0.05 * e, y + 0.05 * f)
        x, y = x + 0.05 / 6 * (a + 2 * c + 2 * e + g), y + 0.05 / 6 * (b + 2 * d + 2 * f + h)
    return [x, y]


def hamiltonian(lib: Any, place: Any, speed: Any, x: Any, y: Any) -> Any:
    """A leapfrog trajectory of Hamiltonian Monte Carlo, of the weights of a logistic regression."""
    np = lib.np

    def energy(w: Any) -> Any:
        z = x @ w
        return np.sum(np.log(1.0 + np.exp(-np.abs(z))) + np.maximum(z, 0.0) - y * z) + 0.5 * np.sum(w * w)

    force = lib.grad(energy)
    for _ in range(8):
        speed = speed - 0.005 * force(place)
        place = place + 0.01 * speed
        speed = speed - 0.005 * force(place)
    return [place, speed, energy(place)]


def options(lib: Any, spot: Any, strike: Any, years: Any) -> Any:
    """Prices by Black and Scholes, and how they depend on the spot, by ``vmap(grad)``."""
    np = lib.np

    def price(spot: Any, strike: Any, years: Any) -> Any:
        spread = 0.2 * np.sqrt(years)
        d = (np.log(spot / strike) + 0.03 * years) / spread + 0.5 * spread
        return spot * below(d) - strike * np.exp(-0.03 * years) * below(d - spread)

    def below(x: Any) -> Any:  # the logistic approximation of the normal distribution
        return 1.0 / (1.0 + np.exp(-1.5976 * x - 0.070565992 * x * x * x))

    delta = lib.vmap(lib.grad(price))(spot, strike, years)
    return [price(spot, strike, years), delta]


PROGRAMS = {
    "ridge regression": Program(ridge, lambda r, n: [normal(r, 8 * n, n), normal(r, 8 * n, 4)], 256),
    "logistic regression by Newton": Program(
        logistic_newton,
        lambda r, n: [numpy.zeros(16, "f4"), normal(r, n, 16), (normal(r, n) > 0).astype("f4")],
        4096,
    ),
    "k-means": Program(k_means, lambda r, n: [normal(r, n, 16), normal(r, 10, 16)], 20000),
    "Gaussian mixture by EM": Program(
        gaussian_mixture,
        lambda r, n: [normal(r, n, 8), normal(r, 5, 8), numpy.ones(5, "f4"), numpy.full(5, 0.2, "f4")],
        20000,
    ),
    "Gaussian process": Program(
        gaussian_process, lambda r, n: [normal(r, n, 3), normal(r, n), normal(r, n // 2, 3)], 400
    ),
    "principal components": Program(
        principal_components,
        lambda r, n: [normal(r, n, 24) * numpy.arange(1, 25, dtype="f4") ** 2, normal(r, 24, 4)],
        8000,
    ),
    "matrix factorisation": Program(
        matrix_factors,
        lambda r, n: [
            normal(r, n, n), (normal(r, n, n) > 1).astype("f4"), 0.3 * normal(r, n, 8), 0.3 * normal(r, n, 8),
        ],
        600,
    ),
    "optimal transport by Sinkhorn": Program(sinkhorn, lambda r, n: [normal(r, n, 3), normal(r, n, 3)], 500),
    "VAE step": Program(
        vae_step,
        lambda r, n: [layers(r, 4 * n, 2 * n, 32), layers(r, 16, 2 * n, 4 * n), normal(r, 128, 4 * n),
                      normal(r, 128, 16)],
        196,
    ),
    "GAN step": Program(
        gan_step,
        lambda r, n: [layers(r, 32, n, 64), layers(r, 64, n, 1), normal(r, 256, 64), normal(r, 256, 32)],
        256,
    ),
    "diffusion step": Program(
        diffusion_step,
        lambda r, n: [layers(r, 64 + 16, n, n, 64), normal(r, 256, 64), normal(r, 256, 64),
                      r.uniform(0.05, 0.95, 256).astype("f4")],
        256,
    ),
    "policy gradient": Program(
        policy_gradient,
        lambda r, n: [layers(r, 8, 64, 4), normal(r, n, 32, 8), r.integers(0, 4, (n, 32), dtype="i4"),
                      normal(r, n, 32)],
        64,
    ),
    "language model step": Program(
        language_step,
        lambda r, n: [0.1 * normal(r, 100, n), *(normal(r, n, n) / n**0.5 for _ in range(3)),
                      layers(r, n, 2 * n, n), r.integers(0, 100, (16, 32), dtype="i4")],
        64,
    ),
    "physics-informed network": Program(
        physics_informed, lambda r, n: [layers(r, 1, 64, 64, 1), r.uniform(0, 3.1, n).astype("f4")], 1000
    ),
    "Kalman filter": Program(
        kalman, lambda r, n: [normal(r, 16, n), 0.9 * numpy.eye(2 * n, dtype="f4"), normal(r, n, 2 * n)], 16
    ),
    "n-body": Program(
        n_body, lambda r, n: [normal(r, n, 3), normal(r, n, 3), r.uniform(0.5, 1.0, n).astype("f4")], 400
    ),
    "heat equation": Program(heat, lambda r, n: [normal(r, n, n)], 512),
    "predators and prey": Program(
        predators, lambda r, n: [r.uniform(1, 9, n).astype("f4"), r.uniform(1, 9, n).astype("f4")], 200000
    ),
    "Hamiltonian Monte Carlo": Program(
        hamiltonian,
        lambda r, n: [normal(r, 32), normal(r, 32), normal(r, n, 32) * 0.1, (normal(r, n) > 0).astype("f4")],
        5000,
    ),
    "Black-Scholes and its slope": Program(
        options,
        lambda r, n: [r.uniform(low, high, n).astype("f4") for low, high in ((80, 120), (80, 120), (0.5, 2))],
        200000,
    ),
}  # fmt: skip
