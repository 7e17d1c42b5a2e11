"""Training programs that differ in how they train."""

from __future__ import annotations

import copy
import math
from functools import partial

import mgb.functional as F
import mgb.module as M
import mgb.random
import numpy as np
from mgb import tensor
from mgb.autodiff import GradManager
from mgb.optimizer import SGD, Adam, MultiStepLR
from training_networks import MLP
from training_programs import Program, classification, floats, integers, program, tensors_of


class VAE(M.Module):
    def __init__(self, size, hidden, code):
        super().__init__()
        self.encoder = M.Linear(size, hidden)
        self.mean, self.log_variance = M.Linear(hidden, code), M.Linear(hidden, code)
        self.decoder = M.Sequential(M.Linear(code, hidden), M.Tanh(), M.Linear(hidden, size))

    def forward(self, x):
        hidden = F.relu(self.encoder(x))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        noise = mgb.random.normal(size=mean.shape)
        return self.decoder(mean + F.exp(log_variance * 0.5) * noise), mean, log_variance


@program
def variational_autoencoder():
    model, beta = VAE(10, 8, 3), 0.5
    gm, opt = GradManager().attach(model.parameters()), Adam(model.parameters(), lr=1e-2)

    def elbo(x):
        out, mean, log_variance = model(x)
        divergence = -0.5 * (1.0 + log_variance - mean**2 - F.exp(log_variance)).sum(axis=1).mean()
        return F.loss.square_loss(out, x), divergence

    def train_step(x):
        with gm:
            reconstruction, divergence = elbo(x)
            gm.backward(reconstruction + beta * divergence)
        opt.step().clear_grad()
        return reconstruction, divergence

    return Program(train_step, [(floats(8, 10, seed=i),) for i in range(4)], tensors_of(model))


@program
def generative_adversarial_network():
    maker, judge = MLP([4, 12, 6]), MLP([6, 12, 1])
    gms = {net: GradManager().attach(net.parameters()) for net in (maker, judge)}
    opts = {
        maker: Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.999)),
        judge: Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.999)),
    }

    def judged(x, real):
        target = F.ones((x.shape[0], 1)) if real else F.zeros((x.shape[0], 1))
        return F.loss.binary_cross_entropy(judge(x), target)

    def update(net, loss_of):
        with gms[net] as gm:
            loss = loss_of()
            gm.backward(loss)
        opts[net].step().clear_grad()
        return loss

    def train_step(real):
        noise = mgb.random.normal(size=(real.shape[0], 4))
        fake = maker(noise)
        first = update(judge, lambda: judged(real, True) + judged(fake, False))
        second = update(maker, lambda: judged(maker(noise), True))
        return first, second

    return Program(train_step, [(floats(8, 6, seed=i),) for i in range(4)], tensors_of(maker, judge))


def derivative(function):
    """The derivative of a function that works element by element."""

    def call(x):
        point = x * 1.0
        with GradManager().attach(point) as gm:
            gm.backward(function(point).sum())
        return point.grad

    return call


@program
def physics_informed_network():
    """U'' = -u with u(0) = 0 and u'(0) = 1."""
    net = M.Sequential(M.Linear(1, 12), M.Tanh(), M.Linear(12, 1))
    gm, opt = GradManager().attach(net.parameters()), Adam(net.parameters(), lr=1e-2)
    origin = tensor(np.zeros((1, 1), np.float32))

    def residual(points):
        slope = derivative(net)
        return derivative(slope)(points) + net(points)

    def train_step(points):
        with gm:
            inside = (residual(points) ** 2).mean()
            border = (net(origin) ** 2).sum() + ((derivative(net)(origin) - 1.0) ** 2).sum()
            loss = inside + border
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Program(train_step, [(floats(16, 1, seed=i),) for i in range(4)], tensors_of(net))


@program
def accumulated_gradients():
    """Four parts of a batch, one update."""
    model, parts = MLP([12, 16, 5]), 4
    gm, opt = GradManager().attach(model.parameters()), SGD(model.parameters(), lr=0.1)

    def train_step(data, label):
        total = 0.0
        size = data.shape[0] // parts
        for start in range(0, data.shape[0], size):
            part = slice(start, start + size)
            with gm:
                loss = F.loss.cross_entropy(model(data[part]), label[part]) / parts
                gm.backward(loss)
            total = total + loss
        opt.step().clear_grad()
        return total

    return Program(train_step, classification((12,), 5), tensors_of(model))


@program
def gradients_accumulated_over_two_functions():
    """Two passes over other data add their gradients; both are in the step."""
    model = MLP([6, 8, 3])
    gm, opt = GradManager(), SGD(model.parameters(), lr=0.1, momentum=0.5)
    gm.attach(model.parameters())
    losses = {"hard": F.loss.cross_entropy, "soft": partial(F.loss.cross_entropy, label_smooth=0.2)}

    def backward(kind, data, label):
        with gm:
            loss = losses[kind](model(data), label)
            gm.backward(loss)
        return loss

    def train_step(first, label, second, other):
        both = {"hard": backward("hard", first, label), "soft": backward("soft", second, other)}
        for p in model.parameters():
            p.grad = p.grad / 2
        opt.step()
        opt.clear_grad()
        return both

    pairs = classification((6,), 3, calls=8)
    return Program(train_step, [a + b for a, b in zip(pairs[::2], pairs[1::2])], tensors_of(model))


@program
def scheduled_learning_rate():
    model = MLP([12, 16, 5])
    gm, opt = GradManager().attach(model.parameters()), SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = MultiStepLR(opt, [2, 4], gamma=0.1)

    def train_step(data, label):
        with gm:
            loss = F.loss.cross_entropy(model(data), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    def between(call):
        if call:
            schedule.step()

    return Program(train_step, classification((12,), 5, calls=6), tensors_of(model), between)


@program
def warm_up_and_cosine():
    """The loop sets the learning rate itself."""
    model = MLP([12, 16, 5])
    gm, opt = GradManager().attach(model.parameters()), Adam(model.parameters(), lr=0.0)

    def train_step(data, label):
        with gm:
            loss = F.loss.cross_entropy(model(data), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    def between(call):
        rate = 1e-2 * min(1.0, (call + 1) / 2) * 0.5 * (1.0 + math.cos(math.pi * call / 6))
        for group in opt.param_groups:
            group["lr"] = rate

    return Program(train_step, classification((12,), 5, calls=6), tensors_of(model), between)


@program
def dropout_that_is_switched():
    """One function trains and, in evaluation, only measures."""
    model = M.Sequential(M.Linear(12, 16), M.ReLU(), M.Dropout(0.5), M.Linear(16, 5))
    gm, opt = GradManager().attach(model.parameters()), Adam(model.parameters(), lr=1e-2)

    def step(data, label):
        if not model.training:
            return F.loss.cross_entropy(model(data), label)
        with gm:
            loss = F.loss.cross_entropy(model(data), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    modes = [True, True, False, False, True, False, True, False]
    return Program(
        step,
        classification((12,), 5, calls=8),
        tensors_of(model),
        lambda call: model.train(modes[call]),
        settled=4,
    )


@program
def mixed_precision():
    """Weights of 32 bits, products of 16 bits, and a loss that is scaled."""
    model = MLP([12, 16, 5])
    gm, opt, scale = GradManager().attach(model.parameters()), SGD(model.parameters(), lr=0.1), 128.0

    def half(layer, x):
        return F.linear(x.astype("float16"), layer.weight.astype("float16"), layer.bias.astype("float16"))

    def forward(x):
        *hidden, last = model.layers
        for layer in hidden:
            x = F.relu(half(layer, x))
        return half(last, x).astype("float32")

    def train_step(data, label):
        with gm:
            loss = F.loss.cross_entropy(forward(data), label)
            gm.backward(loss * scale)
        for parameter in model.parameters():
            parameter.grad = parameter.grad / scale
        opt.step().clear_grad()
        return loss

    return Program(train_step, classification((12,), 5), tensors_of(model), precision="float16")


class Average:
    """Keeps a moving average of a network's weights in a second network."""

    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow = copy.deepcopy(model)
        self.shadow.eval()

    def update(self):
        for mean, weight in zip(self.shadow.parameters(), self.model.parameters()):
            mean[...] = mean * self.decay + weight.detach() * (1.0 - self.decay)


@program
def moving_average_of_the_weights():
    model = MLP([12, 16, 5])
    average = Average(model, decay=0.9)
    gm, opt = GradManager().attach(model.parameters()), SGD(model.parameters(), lr=0.1)

    def train_step(data, label):
        with gm:
            loss = F.loss.cross_entropy(model(data), label)
            gm.backward(loss)
        opt.step().clear_grad()
        average.update()
        return loss, F.loss.cross_entropy(average.shadow(data), label)

    return Program(train_step, classification((12,), 5), tensors_of(model, average.shadow))


@program
def contrastive_twins():
    encoder, temperature = MLP([12, 16, 6]), 0.2
    gm, opt = GradManager().attach(encoder.parameters()), Adam(encoder.parameters(), lr=1e-3)

    def embed(x):
        return F.normalize(encoder(x), axis=1)

    def noisy(x, strength=0.1):
        return x + strength * mgb.random.normal(size=x.shape)

    def train_step(x):
        with gm:
            first, second = embed(noisy(x)), embed(noisy(x))
            similar = first @ second.transpose(1, 0) / temperature
            same = F.arange(x.shape[0]).astype("int32")
            loss = (
                F.loss.cross_entropy(similar, same) + F.loss.cross_entropy(similar.transpose(1, 0), same)
            ) / 2
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Program(train_step, [(floats(8, 12, seed=i),) for i in range(4)], tensors_of(encoder))


class Agent:
    """A policy and a baseline over one trunk; the rewards of an episode are discounted in the step."""

    def __init__(self, discount=0.9, bonus=0.01):
        self.discount, self.bonus = discount, bonus
        self.trunk = M.Linear(6, 12)
        self.policy, self.value = M.Linear(12, 3), M.Linear(12, 1)
        self.networks = [self.trunk, self.policy, self.value]
        parameters = [p for n in self.networks for p in n.parameters()]
        self.gm = GradManager().attach(parameters)
        self.opt = Adam(parameters, lr=1e-2)

    def returns(self, rewards):
        total, found = 0.0, []
        for place in reversed(range(rewards.shape[0])):
            total = rewards[place] + self.discount * total
            found.insert(0, total)
        return F.stack(found)

    def learn(self, observations, actions, rewards):
        returns = self.returns(rewards)
        with self.gm:
            hidden = F.tanh(self.trunk(observations))
            logs = F.log_softmax(self.policy(hidden), axis=1)
            chosen = (logs * F.one_hot(actions, 3)).sum(axis=1)
            values = self.value(hidden).reshape(-1)
            advantage = (returns - values).detach()
            entropy = -(F.exp(logs) * logs).sum(axis=1).mean()
            gain = (chosen * advantage).mean() + self.bonus * entropy
            loss = F.loss.square_loss(values, returns) - gain
            self.gm.backward(loss)
        self.opt.step().clear_grad()
        return loss


@program
def policy_gradient():
    agent = Agent()
    batches = [(floats(7, 6, seed=i), integers(3, 7, seed=i), floats(7, seed=i + 9)) for i in range(4)]
    return Program(agent.learn, batches, tensors_of(*agent.networks))


CONFIG = {
    "trunk": {"sizes": [12, 16], "activation": "gelu"},
    "tasks": {
        "kind": {"outputs": 4, "loss": "cross_entropy", "weight": 1.0},
        "size": {"outputs": 1, "loss": "l1_loss", "weight": 0.3},
    },
    "optimizer": {"lr": 0.05, "momentum": 0.9},
}


@program
def several_tasks_from_a_configuration():
    config = copy.deepcopy(CONFIG)
    trunk = M.Linear(*config["trunk"]["sizes"])
    heads = {name: M.Linear(16, task["outputs"]) for name, task in config["tasks"].items()}
    networks = [trunk, *heads.values()]
    parameters = [p for n in networks for p in n.parameters()]
    gm, opt = GradManager().attach(parameters), SGD(parameters, **config["optimizer"])

    def losses_of(data, targets):
        features = getattr(F, config["trunk"]["activation"])(trunk(data))
        found = {}
        for name, task in config["tasks"].items():
            out = heads[name](features)
            if task["outputs"] == 1:
                out = out.reshape(-1)
            found[name] = getattr(F.loss, task["loss"])(out, targets[name])
        return found

    def train_step(data, targets):
        with gm:
            losses = losses_of(data, targets)
            total = sum(config["tasks"][name]["weight"] * loss for name, loss in losses.items())
            gm.backward(total)
        opt.step().clear_grad()
        return {"total": total, **losses}

    batches = [
        (floats(8, 12, seed=i), {"kind": integers(4, 8, seed=i), "size": floats(8, seed=i + 5)})
        for i in range(4)
    ]
    return Program(train_step, batches, tensors_of(*networks))
