"""Training programs that differ in their network."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import mgb.functional as F
import mgb.module as M
import numpy as np
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.optimizer import SGD, Adam, AdamW, clip_grad_norm
from training_programs import Program, classification, floats, integers, program, tensors_of


class MLP(M.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = [M.Linear(a, b) for a, b in itertools.pairwise(sizes)]

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


@program
def mlp_with_adam():
    model = MLP([12, 16, 16, 5])
    gm = GradManager().attach(model.parameters())
    opt = Adam(model.parameters(), lr=1e-2)

    def train_step(data, label):
        with gm:
            loss = F.loss.cross_entropy(model(data), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Program(train_step, classification((12,), 5), tensors_of(model))


class Trainer:
    """A user's trainer: configuration, model and optimizer are attributes, the step is a method."""

    def __init__(self, model, config):
        self.model, self.config = model, config
        self.manager = GradManager().attach(model.parameters())
        decayed = [p for p in model.parameters() if p.ndim > 1]
        plain = [p for p in model.parameters() if p.ndim <= 1]
        groups = [
            {"params": decayed, "weight_decay": config["decay"]},
            {"params": plain, "weight_decay": 0.0},
        ]
        self.optimizer = SGD(groups, lr=config["lr"], momentum=config["momentum"])

    def loss(self, data, label):
        loss = F.loss.cross_entropy(self.model(data), label)
        if self.config.get("l1"):
            loss = loss + self.config["l1"] * sum(F.abs(p).sum() for p in self.model.parameters())
        return loss

    def step(self, data, label):
        with self.manager:
            loss = self.loss(data, label)
            self.manager.backward(loss)
        self.optimizer.step()
        self.optimizer.clear_grad()
        return loss


@program
def mlp_with_momentum_and_weight_decay():
    model = MLP([12, 16, 5])
    trainer = Trainer(model, {"lr": 0.05, "momentum": 0.9, "decay": 1e-3, "l1": 1e-4})
    return Program(trainer.step, classification((12,), 5), tensors_of(model))


class ConvBlock(M.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv = M.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm = M.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


@program
def cnn_with_batch_norm():
    model = M.Sequential(ConvBlock(3, 6), M.MaxPool2d(2), ConvBlock(6, 8, stride=2))
    head = M.Linear(8, 4)
    parameters = [*model.parameters(), *head.parameters()]
    gm = GradManager()
    gm.attach(parameters)
    opt = SGD(parameters, lr=0.05, momentum=0.9)

    def forward(images):
        features = model(images)
        return head(features.mean(axis=(2, 3)))

    def train_step(images, label):
        with gm:
            logits = forward(images)
            loss = F.loss.cross_entropy(logits, label)
            gm.backward(loss)
            opt.step().clear_grad()
        accuracy = (F.argmax(logits, axis=1) == label).astype("float32").mean()
        return loss, accuracy

    return Program(train_step, classification((3, 8, 8), 4), tensors_of(model, head))


class Residual(M.Module):
    def __init__(self, channels, stride=1):
        super().__init__()
        self.first = ConvBlock(channels, channels * stride, stride)
        self.second = M.Sequential(
            M.Conv2d(channels * stride, channels * stride, 3, padding=1, bias=False),
            M.BatchNorm2d(channels * stride),
        )
        self.shortcut = M.Conv2d(channels, channels * stride, 1, stride=stride) if stride > 1 else None

    def forward(self, x):
        y = self.second(self.first(x))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


@program
def residual_network():
    model = M.Sequential(ConvBlock(3, 4), Residual(4), Residual(4, stride=2), M.AdaptiveAvgPool2d(1))
    head = M.Linear(8, 4)
    gm = GradManager().attach([*model.parameters(), *head.parameters()])
    opt = SGD(
        [{"params": list(model.parameters()), "lr": 0.01}, {"params": list(head.parameters())}], lr=0.05
    )

    def train_step(images, label):
        with gm:
            logits = head(F.flatten(model(images), 1))
            loss = F.loss.cross_entropy(logits, label)
            gm.backward(loss)
        opt.step().clear_grad()
        return {"loss": loss, "norm": (logits**2).mean()}

    return Program(train_step, classification((3, 8, 8), 4), tensors_of(model, head))


class Reader(M.Module):
    """Words to classes by an LSTM, whose last output is looked at."""

    def __init__(self, words, width, classes):
        super().__init__()
        self.embedding = M.Embedding(words, width)
        self.lstm = M.LSTM(width, width, batch_first=True)
        self.head = M.Linear(width, classes)

    def forward(self, tokens):
        outputs, (hidden, _) = self.lstm(self.embedding(tokens))
        return self.head(outputs[:, -1] + hidden[-1])


@program
def lstm_classifier():
    model = Reader(20, 8, 3)
    gm = GradManager().attach(model.parameters())
    opt = Adam(model.parameters(), lr=1e-2)

    def train_step(tokens, label):
        with gm:
            loss = F.loss.cross_entropy(model(tokens), label)
            gm.backward(loss)
            clip_grad_norm(model.parameters(), 1.0)
        opt.step().clear_grad()
        return loss

    batches = [(integers(20, 6, 5, seed=i), integers(3, 6, seed=i)) for i in range(4)]
    return Program(train_step, batches, tensors_of(model))


@program
def gru_written_out():
    """A language model over a cell that the user unrolls."""
    cell, embedding, head = M.GRUCell(8, 8), M.Embedding(12, 8), M.Linear(8, 12)
    networks = (cell, embedding, head)
    parameters = [p for n in networks for p in n.parameters()]
    gm = GradManager().attach(parameters)
    opt = Adam(parameters, lr=1e-2)

    def unroll(tokens):
        hidden = F.zeros((tokens.shape[0], 8))
        for place in range(tokens.shape[1] - 1):
            hidden = cell(embedding(tokens[:, place]), hidden)
            yield head(hidden), tokens[:, place + 1]

    def train_step(tokens):
        with gm:
            losses = [F.loss.cross_entropy(logits, label) for logits, label in unroll(tokens)]
            loss = sum(losses) / len(losses)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Program(train_step, [(integers(12, 4, 6, seed=i),) for i in range(4)], tensors_of(*networks))


@dataclass
class GPTConfig:
    words: int = 16
    length: int = 6
    width: int = 8
    heads: int = 2
    layers: int = 2


class CausalAttention(M.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.qkv = M.Linear(config.width, 3 * config.width)
        self.out = M.Linear(config.width, config.width)

    def forward(self, x):
        n, length, width = x.shape
        heads = self.config.heads
        qkv = self.qkv(x).reshape(n, length, 3, heads, width // heads)
        q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        mask = np.triu(np.full((length, length), -1e9, np.float32), 1)
        weights = F.softmax(q @ k.transpose(0, 1, 3, 2) / (width // heads) ** 0.5 + mask, axis=-1)
        return self.out((weights @ v).transpose(0, 2, 1, 3).reshape(n, length, width))


class GPTBlock(M.Module):
    def __init__(self, config):
        super().__init__()
        self.norms = [M.LayerNorm(config.width), M.LayerNorm(config.width)]
        self.attention = CausalAttention(config)
        self.mlp = M.Sequential(
            M.Linear(config.width, 4 * config.width), M.GELU(), M.Linear(4 * config.width, config.width)
        )

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class GPT(M.Module):
    def __init__(self, config):
        super().__init__()
        self.words = M.Embedding(config.words, config.width)
        self.places = M.Embedding(config.length, config.width)
        self.blocks = [GPTBlock(config) for _ in range(config.layers)]
        self.norm, self.head = M.LayerNorm(config.width), M.Linear(config.width, config.words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(F.arange(tokens.shape[1]).astype("int32"))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@program
def gpt_with_clipped_gradients():
    config = GPTConfig()
    model = GPT(config)
    gm = GradManager().attach(model.parameters())
    opt = AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)

    def train_step(tokens):
        with gm:
            logits = model(tokens[:, :-1])
            loss = F.loss.cross_entropy(logits.reshape(-1, config.words), tokens[:, 1:].reshape(-1))
            gm.backward(loss)
        norm = clip_grad_norm(model.parameters(), 0.5)
        opt.step().clear_grad()
        return loss, norm

    batches = [(integers(config.words, 4, config.length + 1, seed=i),) for i in range(4)]
    return Program(train_step, batches, tensors_of(model))


class EncoderLayer(M.Module):
    def __init__(self, width, heads, drop):
        super().__init__()
        self.attention = M.MultiHeadAttention(width, heads)
        self.feed = M.Sequential(
            M.Linear(width, 2 * width), M.ReLU(), M.Dropout(drop), M.Linear(2 * width, width)
        )
        self.first, self.second, self.drop = M.LayerNorm(width), M.LayerNorm(width), M.Dropout(drop)

    def forward(self, x):
        x = self.first(x + self.drop(self.attention(x, x, x)))
        return self.second(x + self.drop(self.feed(x)))


@program
def transformer_encoder():
    """With dropout and smoothed labels."""
    layers = M.Sequential(*(EncoderLayer(8, 2, 0.2) for _ in range(2)))
    head = M.Linear(8, 4)
    places = np.sin(np.arange(5)[:, None] / 10.0 ** (np.arange(8) / 8)).astype(np.float32)
    gm = GradManager().attach([*layers.parameters(), *head.parameters()])
    opt = AdamW([*layers.parameters(), *head.parameters()], lr=1e-3)

    def train_step(x, label):
        with gm:
            pooled = layers(x + places).mean(axis=1)
            loss = F.loss.cross_entropy(head(pooled), label, label_smooth=0.1)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Program(train_step, classification((5, 8), 4), tensors_of(layers, head))


class TiedAutoencoder(M.Module):
    """The decoder's weights are those of the encoder."""

    def __init__(self, size, code):
        super().__init__()
        self.encoder = M.Linear(size, code)
        self.bias = M.Linear(1, size).bias

    def encode(self, x):
        return F.tanh(self.encoder(x))

    def decode(self, code):
        return F.matmul(code, self.encoder.weight) + self.bias

    def forward(self, x):
        return self.decode(self.encode(x))


@program
def autoencoder_with_tied_weights():
    model = TiedAutoencoder(10, 4)
    gm, opt = GradManager().attach(model.parameters()), Adam(model.parameters(), lr=1e-2)

    def train_step(x):
        with gm:
            loss = F.loss.square_loss(model(x), x)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Program(train_step, [(floats(8, 10, seed=i),) for i in range(4)], tensors_of(model))


def neighbours(count: int) -> Tensor:
    """A ring with chords, each row divided by its degree."""
    adjacency = np.eye(count, dtype=np.float32)
    for node in range(count):
        adjacency[node, [(node + 1) % count, (node + 3) % count]] = 1.0
    return tensor(adjacency / adjacency.sum(1, keepdims=True))


class GraphLayer(M.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.others = M.Linear(inputs, outputs), M.Linear(inputs, outputs, bias=False)

    def forward(self, x, adjacency):
        return self.own(x) + self.others(adjacency @ x)


@program
def graph_network_over_bags_of_words():
    """Nodes have bags of words; the mean of their embeddings passes through two rounds of messages."""
    adjacency = neighbours(10)
    embedding, layers = M.Embedding(30, 8), [GraphLayer(8, 8), GraphLayer(8, 3)]
    networks = [embedding, *layers]
    parameters = [p for n in networks for p in n.parameters()]
    gm, opt = GradManager().attach(parameters), Adam(parameters, lr=1e-2)

    def forward(bags):
        x = embedding(bags).mean(axis=1)
        for i, layer in enumerate(layers):
            x = layer(x, adjacency)
            if i < len(layers) - 1:
                x = F.relu(x)
        return x

    def train_step(bags, label):
        with gm:
            loss = F.loss.cross_entropy(forward(bags), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    batches = [(integers(30, 10, 4, seed=i), integers(3, 10, seed=i)) for i in range(4)]
    return Program(train_step, batches, tensors_of(*networks))
