"""Two hundred functions of an array of shape (3, 3), each for NumPy's module and for JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import mgb.jit as loops
import numpy as np

Function = Callable[[Any, Any], Any]

X = np.random.default_rng(3).uniform(0.2, 1.4, (3, 3))
W = np.random.default_rng(4).normal(size=(3, 2))
KERNEL = np.random.default_rng(5).normal(size=(2, 1, 2, 2))
GROUPED = np.random.default_rng(6).normal(size=(4, 1, 2, 2))
HOLES = np.array([[1.0, np.nan, 1.0], [1.0, 1.0, np.nan], [1.0, 1.0, 1.0]])
UNARY = (
    "sin cos tan tanh sinh cosh exp expm1 exp2 log log1p log2 log10 sqrt cbrt square abs negative arctan "
    "arcsinh reciprocal deg2rad rad2deg sinc floor ceil trunc rint sign"
)
BINARY = (
    "add subtract multiply divide power arctan2 maximum minimum hypot logaddexp logaddexp2 fmax fmin "
    "float_power copysign fmod remainder heaviside"
)
REDUCTIONS = "sum mean prod max min var std median ptp cumsum cumprod nansum nanmean nanprod nanmax nanvar"


def _of(name: str) -> Function:
    return lambda m, x: getattr(m, name)(x)


def both(ours: Callable[[Any], Any], theirs: Callable[[Any, Any, Any], Any]) -> Function:
    """One function written twice: `theirs` is given `jax` and `jax.numpy`."""

    def function(m: Any, x: Any) -> Any:
        if m is np:
            return ours(x)
        import jax

        return theirs(jax, m, x)

    return function


def _images(m: Any, x: Any, count: int = 1, channels: int = 1) -> Any:
    """Images of 5 by 5 that are made of x."""
    rows = m.tile(x, (2 * count, 2 * channels))[: 5 * count, : 5 * channels]
    return m.transpose(m.reshape(rows, (count, 5, channels, 5)), (0, 2, 1, 3)) * m.reshape(
        m.arange(25.0) * 0.1 - 1, (5, 5)
    )


def _conv(jax: Any, x: Any, w: Any, stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1) -> Any:
    return jax.lax.conv_general_dilated(
        x, w, (stride,) * 2, [(pad, pad)] * 2, rhs_dilation=(dilation,) * 2, feature_group_count=groups
    )


def _window(jax: Any, x: Any, first: float, join: Any, size: int, stride: int, pad: int = 0) -> Any:
    frame = [(0, 0), (0, 0), (pad, pad), (pad, pad)]
    return jax.lax.reduce_window(x, first, join, (1, 1, size, size), (1, 1, stride, stride), frame)


def _written(x: Any) -> Any:
    y = x * 2
    y[1:, 0] = x[0, :2] ** 2
    y[[0, 2], 2] = x[1, 1]
    return y


def _spd(m: Any, x: Any) -> Any:
    """A positive definite matrix."""
    return x @ m.transpose(x) + m.eye(3) * 2


def _symmetric(m: Any, x: Any) -> Any:
    return x + m.transpose(x) + m.diag(m.arange(3.0) * 3)


def _lstm_like(scan: Any, m: Any, x: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        gate = 1 / (1 + m.exp(-(row + state)))
        state = gate * m.tanh(row @ x) + (1 - gate) * state
        return state, state * row

    last, rows = scan(step, x[0] * 0, x)
    return m.concatenate([rows, last[None]])


def _heat(loop: Any, m: Any, x: Any) -> Any:
    return loop(0, 4, lambda _, u: u + 0.2 * (m.roll(u, 1, 0) - 2 * u + m.roll(u, -1, 0)), x)


def _activation(ours: str, theirs: str | None = None, **options: Any) -> Function:
    return both(
        lambda x: getattr(F, ours)(x * 3 - 2),
        lambda j, m, x: getattr(j.nn, theirs or ours)(x * 3 - 2, **options),
    )


ROWS = np.array([2, 0, 2])

#: A function of NumPy's or JAX's module `m` and an array of shape (3, 3).
FUNCTIONS: dict[str, Function] = {
    **{n: _of(n) for n in UNARY.split()},
    "arcsin": lambda m, x: m.arcsin(x * 0.6),
    "arccos": lambda m, x: m.arccos(x * 0.6),
    "arctanh": lambda m, x: m.arctanh(x * 0.6),
    "arccosh": lambda m, x: m.arccosh(x + 1),
    **{n: lambda m, x, n=n: getattr(m, n)(x, x[1] * 0.7 + 0.3) for n in BINARY.split()},
    **{n: lambda m, x, n=n: getattr(m, n)(x * x, axis=1) for n in REDUCTIONS.split()},
    **{f"{n} of all": lambda m, x, n=n: getattr(m, n)(m.sin(x)) for n in "sum mean prod max min".split()},
    **{
        f"{n} with holes": lambda m, x, n=n: getattr(m, n)(x * HOLES, axis=1)
        for n in "nansum nanmean nanmin nanstd".split()
    },
    # order, averages, neighbours
    "sort": lambda m, x: m.sort(x * x, axis=0),
    "quantile": lambda m, x: m.quantile(x * x, 0.3, axis=1),
    "percentile": lambda m, x: m.percentile(x * x, 60, axis=0),
    "average": lambda m, x: m.average(x, axis=1, weights=x * x),
    "cov": lambda m, x: m.cov(x),
    "corrcoef": lambda m, x: m.corrcoef(x),
    "diff": lambda m, x: m.diff(x * x, axis=1),
    "ediff1d": lambda m, x: m.ediff1d(x * x),
    "gradient": lambda m, x: m.gradient(x * x, axis=0),
    "trapezoid": lambda m, x: m.trapezoid(x * x, dx=0.5),
    "interp": lambda m, x: (
        m.interp(x, m.array([0.1, 0.5, 1.5]), m.array([1.0, 3.0, 2.0]))
        if m is not np
        else m.interp(x, [0.1, 0.5, 1.5], [1.0, 3.0, 2.0])
    ),
    "convolve": lambda m, x: m.convolve(x[0], x[1, :2]),
    "correlate": lambda m, x: m.correlate(x[0], x[1, :2], mode="full"),
    "polyval": lambda m, x: m.polyval(x[0], x),
    "running maximum": both(lambda x: np.maximum.accumulate(x, axis=1), lambda j, m, x: j.lax.cummax(x, 1)),
    "running logsumexp": both(lambda x: F.logcumsumexp(x, 1), lambda j, m, x: j.lax.cumlogsumexp(x, 1)),
    "unwrap": lambda m, x: m.unwrap(x * 9),
    # choice
    "where": lambda m, x: m.where(x > 0.8, x * x, m.sin(x)),
    "select": lambda m, x: m.select([x > 1, x > 0.5], [x * x, m.sin(x)], 0.5),
    "clip": lambda m, x: m.clip(x * x, 0.3, 0.9),
    "nan_to_num": lambda m, x: m.nan_to_num(x * HOLES, nan=0.5),
    # products
    "matmul": lambda m, x: m.matmul(x, W),
    "gram": lambda m, x: x @ x.T,
    "vector": lambda m, x: x @ x[0],
    "dot": lambda m, x: m.dot(x[0], x[1]),
    "inner": lambda m, x: m.inner(x, x[:2]),
    "vdot": lambda m, x: m.vdot(x, x * x),
    "outer": lambda m, x: m.outer(x[0], x[1]),
    "outer by axes": lambda m, x: x[:, None, :] * x[None, :, :],
    "kron": lambda m, x: m.kron(x[:2], x[1:]),
    "cross": lambda m, x: m.cross(x, x[::-1]),
    "tensordot": lambda m, x: m.tensordot(x, x, ((0,), (1,))),
    "einsum trace": lambda m, x: m.einsum("ij,ji->", x, x),
    "einsum chain": lambda m, x: m.einsum("ij,jk,k->i", x, x, x[0]),
    "einsum stack": lambda m, x: m.einsum("bi,bj->bij", x, x * x),
    "stacks": lambda m, x: m.matmul(x[None] * x[:, :, None], x),
    # another shape
    "transpose": lambda m, x: m.transpose(x * x) * x,
    "reshape": lambda m, x: m.reshape(x * x, (9,))[1:7],
    "swapaxes": lambda m, x: m.swapaxes(x * x, 0, 1),
    "moveaxis": lambda m, x: m.moveaxis((x * x)[None], 0, -1),
    "expand_dims": lambda m, x: m.expand_dims(x * x, (0, 2)),
    "squeeze": lambda m, x: m.squeeze((x * x)[:1], 0),
    "broadcast_to": lambda m, x: m.broadcast_to(x * x, (2, 3, 3)),
    "ravel": lambda m, x: m.ravel(x * x),
    "concatenate": lambda m, x: m.concatenate([x, m.sin(x)], axis=1),
    "stack": lambda m, x: m.stack([x, m.exp(x)], axis=1),
    "vstack": lambda m, x: m.vstack([x * x, x[0]]),
    "hstack": lambda m, x: m.hstack([x * x, x]),
    "column_stack": lambda m, x: m.column_stack([x * x, x[0]]),
    "block": lambda m, x: m.block([[x * x, x], [x, x * 2]]),
    "append": lambda m, x: m.append(x * x, x, axis=0),
    "split": lambda m, x: m.split(x * x, 3)[1],
    "tile": lambda m, x: m.tile(x * x, (2, 1)),
    "repeat": lambda m, x: m.repeat(x * x, 2, axis=1),
    "roll": lambda m, x: m.roll(x * x, 1, axis=0),
    "rot90": lambda m, x: m.rot90(x * x),
    "flip": lambda m, x: x[::-1] * x,
    "fliplr": lambda m, x: m.fliplr(x) * x,
    "pad": lambda m, x: m.pad(x * x, ((1, 0), (0, 2))),
    "pad reflected": lambda m, x: m.pad(x * x, 1, mode="reflect"),
    "pad edge": lambda m, x: m.pad(x * x, ((0, 1), (1, 1)), mode="edge"),
    "tril": lambda m, x: m.tril(x * x),
    "triu": lambda m, x: m.triu(x * x, 1),
    "diag": lambda m, x: m.diag(x[0] * x[1]),
    "diagonal": lambda m, x: m.diagonal(x * x, 1),
    "trace": lambda m, x: m.trace(x * x),
    "vander": lambda m, x: m.vander(x[0], 4),
    "insert": lambda m, x: m.insert(x * x, 1, x[0], axis=0),
    "delete": lambda m, x: m.delete(x * x, 1, axis=1),
    "resize": lambda m, x: m.resize(x * x, (2, 5)),
    "meshgrid": lambda m, x: m.meshgrid(x[0] * x[0], x[1])[0],
    # indexing
    "pick": lambda m, x: (x * x)[:, 1],
    "rows": lambda m, x: (x * x)[ROWS],
    "columns": lambda m, x: (x * x)[:, ROWS],
    "pairs": lambda m, x: (x * x)[ROWS, np.array([1, 1, 0])],
    "grid": lambda m, x: (x * x)[np.array([[0], [2]]), np.array([1, 2])],
    "mask": lambda m, x: (x * x)[np.array([True, False, True])],
    "steps": lambda m, x: (x * x)[::2, ::-1],
    "take": lambda m, x: m.take(x * x, ROWS, axis=1),
    "take_along_axis": lambda m, x: m.take_along_axis(x * x, m.argsort(x, axis=1), axis=1),
    "rows by argmax": lambda m, x: (x * x)[m.argmax(x, axis=0)],
    "columns by argmax": lambda m, x: (x * x)[:, m.argmax(x, axis=1)],
    "pairs by argmax": lambda m, x: (x * x)[m.argmax(x, axis=0), ROWS],
    "written": both(
        _written, lambda j, m, x: (x * 2).at[1:, 0].set(x[0, :2] ** 2).at[ROWS[:2], 2].set(x[1, 1])
    ),
    "written in order": both(
        lambda x: _put(x * 2, np.argsort(x[0])[:2], x[0] ** 2),
        lambda j, m, x: (x * 2).at[m.argsort(x[0])[:2]].set(x[0] ** 2),
    ),
    "scattered": both(
        lambda x: F.scatter_add(x * 2, 0, _places(np.argmax(x, axis=0)), x[:1] ** 2),
        lambda j, m, x: (x * 2).at[m.argmax(x, axis=0), m.arange(3)].add(x[0] ** 2),
    ),
    "one hot": both(
        lambda x: F.one_hot(np.argmax(x, axis=1), 3) * x,
        lambda j, m, x: j.nn.one_hot(m.argmax(x, axis=1), 3) * x,
    ),
    # matrices
    "det": lambda m, x: m.linalg.det(x),
    "inv": lambda m, x: m.linalg.inv(_spd(m, x)),
    "slogdet": lambda m, x: m.linalg.slogdet(_spd(m, x))[1],
    "solve": lambda m, x: m.linalg.solve(_spd(m, x), x),
    "solve a vector": lambda m, x: m.linalg.solve(_spd(m, x), x[0]),
    "cholesky": lambda m, x: m.linalg.cholesky(_spd(m, x)),
    "qr": lambda m, x: abs(m.linalg.qr(_spd(m, x))[1]),
    "singular values": lambda m, x: m.linalg.svd(x, compute_uv=False),
    "svd": lambda m, x: abs(m.linalg.svd(_symmetric(m, x), full_matrices=False)[0]),
    "eigenvalues": lambda m, x: m.linalg.eigvalsh(_symmetric(m, x)),
    "eigenvectors": lambda m, x: abs(m.linalg.eigh(_symmetric(m, x))[1]),
    "pinv": lambda m, x: m.linalg.pinv(_spd(m, x)[:, :2]),
    "matrix_power": lambda m, x: m.linalg.matrix_power(x, 3),
    "multi_dot": lambda m, x: m.linalg.multi_dot([x, W, W.T, x]),
    "norm": lambda m, x: m.linalg.norm(x, axis=1),
    "norm of order 3": lambda m, x: m.linalg.norm(x, ord=3, axis=0),
    "nuclear norm": lambda m, x: m.linalg.norm(x, ord="nuc"),
    "spectral norm": lambda m, x: m.linalg.norm(x, ord=2),
    "solve_triangular": both(
        lambda x: _la().solve_triangular(np.tril(x) + np.eye(3), x, upper=False),
        lambda j, m, x: j.scipy.linalg.solve_triangular(m.tril(x) + m.eye(3), x, lower=True),
    ),
    # Fourier transforms
    "spectrum": lambda m, x: abs(m.fft.rfft(x)),
    "power spectrum": lambda m, x: abs(m.fft.fft2(x)) ** 2,
    "filtered": lambda m, x: m.fft.irfft(m.fft.rfft(x, axis=0) * np.array([[1.0], [0.5]]), n=3, axis=0),
    "phases": lambda m, x: m.angle(m.fft.fft(x)[:, 1:]),
    # networks
    **{n: _activation(n) for n in "relu elu celu selu silu softplus sigmoid leaky_relu relu6 mish".split()},
    "gelu": _activation("gelu", approximate=False),
    "gelu_tanh": _activation("gelu_tanh", "gelu", approximate=True),
    "logsigmoid": _activation("logsigmoid", "log_sigmoid"),
    "hardtanh": _activation("hardtanh", "hard_tanh"),
    "hsigmoid": _activation("hsigmoid", "hard_sigmoid"),
    "softsign": _activation("softsign", "soft_sign"),
    "softmax": both(lambda x: F.softmax(x, 1), lambda j, m, x: j.nn.softmax(x, 1)),
    "log_softmax": both(lambda x: F.logsoftmax(x, 1), lambda j, m, x: j.nn.log_softmax(x, 1)),
    "softmax by hand": lambda m, x: (
        m.exp(x - x.max(1)[:, None]) / m.exp(x - x.max(1)[:, None]).sum(1)[:, None]
    ),
    "logsumexp": both(lambda x: F.logsumexp(x, 1), lambda j, m, x: j.nn.logsumexp(x, 1)),
    "erf": both(lambda x: F.erf(x), lambda j, m, x: j.scipy.special.erf(x)),
    "erfc": both(lambda x: F.erfc(x), lambda j, m, x: j.scipy.special.erfc(x)),
    "erfinv": both(lambda x: F.erfinv(x * 0.6), lambda j, m, x: j.scipy.special.erfinv(x * 0.6)),
    "layer norm": both(
        lambda x: F.layer_norm(x, (3,), affine=False, eps=1e-5),
        lambda j, m, x: j.nn.standardize(x, -1, epsilon=1e-5),
    ),
    "cross entropy": both(
        lambda x: F.cross_entropy(x, _labels()),
        lambda j, m, x: -j.nn.log_softmax(x, 1)[m.arange(3), m.array([2, 0, 1])].mean(),
    ),
    "attention": both(
        lambda x: F.scaled_dot_product_attention(x[None], (x * x)[None], (x + 1)[None]),
        lambda j, m, x: j.nn.softmax(x @ (x * x).T / 3**0.5, -1)[None] @ (x + 1),
    ),
    "mlp": lambda m, x: m.tanh(x @ W) @ W.T,
    "convolution": both(
        lambda x: F.conv2d(_images(np, x, 2), _double(KERNEL)),
        lambda j, m, x: _conv(j, _images(m, x, 2), KERNEL),
    ),
    "strided convolution": both(
        lambda x: F.conv2d(_images(np, x, 2), _double(KERNEL), stride=2, padding=1),
        lambda j, m, x: _conv(j, _images(m, x, 2), KERNEL, stride=2, pad=1),
    ),
    "dilated convolution": both(
        lambda x: F.conv2d(_images(np, x), _double(KERNEL), dilation=2),
        lambda j, m, x: _conv(j, _images(m, x), KERNEL, dilation=2),
    ),
    "grouped convolution": both(
        lambda x: F.conv2d(_images(np, x, 1, 2), _double(GROUPED), groups=2),
        lambda j, m, x: _conv(j, _images(m, x, 1, 2), GROUPED, groups=2),
    ),
    "convolution by its weights": both(
        lambda x: F.conv2d(_double(_images(np, X)), np.reshape(x[:2, :2], (1, 1, 2, 2))),
        lambda j, m, x: _conv(j, _images(np, X), m.reshape(x[:2, :2], (1, 1, 2, 2))),
    ),
    "convolution by both": both(
        lambda x: F.conv2d(_images(np, x), np.reshape(x[:2, :2], (1, 1, 2, 2))),
        lambda j, m, x: _conv(j, _images(m, x), m.reshape(x[:2, :2], (1, 1, 2, 2))),
    ),
    "transposed convolution": both(
        lambda x: F.conv_transpose2d(x[None, None], _double(KERNEL[:1])),
        lambda j, m, x: j.lax.conv_transpose(
            x[None, None],
            m.array(KERNEL[:1, :, ::-1, ::-1]),
            (1, 1),
            "VALID",
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        ),
    ),
    "max pooling": both(
        lambda x: F.max_pool2d(_images(np, x), 2),
        lambda j, m, x: _window(j, _images(m, x), -np.inf, j.lax.max, 2, 2),
    ),
    "overlapping max pooling": both(
        lambda x: F.max_pool2d(_images(np, x), 3, 1, 1),
        lambda j, m, x: _window(j, _images(m, x), -np.inf, j.lax.max, 3, 1, 1),
    ),
    "average pooling": both(
        lambda x: F.avg_pool2d(_images(np, x), 2),
        lambda j, m, x: _window(j, _images(m, x), 0.0, j.lax.add, 2, 2) / 4,
    ),
    "global pooling": both(
        lambda x: F.adaptive_avg_pool2d(_images(np, x), 1),
        lambda j, m, x: _images(m, x).mean((2, 3), keepdims=True),
    ),
    # loops
    "scan": both(lambda x: _lstm_like(loops.scan, np, x), lambda j, m, x: _lstm_like(j.lax.scan, m, x)),
    "fori_loop": both(lambda x: _heat(loops.fori_loop, np, x), lambda j, m, x: _heat(j.lax.fori_loop, m, x)),
    "cond": both(
        lambda x: loops.cond(x[0, 0] > 0.5, lambda y: y * y, lambda y: np.sin(y), x),
        lambda j, m, x: j.lax.cond(x[0, 0] > 0.5, lambda y: y * y, lambda y: m.sin(y), x),
    ),
    "while_loop": both(
        lambda x: loops.while_loop(lambda y: np.max(y) < 9, lambda y: y * y + y, x),
        lambda j, m, x: j.lax.while_loop(lambda y: m.max(y) < 9, lambda y: y * y + y, x),
    ),
}

#: What has no gradient in reverse mode.
FORWARD = {"while_loop"}


def _la() -> Any:
    import mgb.linalg

    return mgb.linalg


def _double(array: Any) -> Any:
    import mgb

    return mgb.tensor(np.asarray(array), dtype="float64")


def _labels() -> Any:
    import mgb

    return mgb.tensor([2, 0, 1])


def _places(row: Any) -> Any:
    return np.reshape(row, (1, 3))


def _put(x: Any, places: Any, value: Any) -> Any:
    x[places] = value
    return x
