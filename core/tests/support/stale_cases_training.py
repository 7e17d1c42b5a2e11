"""Steps of training whose Optimizers, GradManagers and networks change."""

from __future__ import annotations

from types import SimpleNamespace

import mgb.functional as F
import numpy as np
from mgb import Parameter, tensor
from mgb.autodiff import GradManager
from mgb.optimizer import LAMB, SGD, Adam, MultiStepLR
from stale_cases import case, changing
from stale_cases_shared import Net, linear, training


def momentum(net):
    return SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def group(**numbers):
    return lambda net, opt, gm: [lambda: opt.param_groups[0].update(numbers)]


@case
def a_learning_rate():
    return training(lambda net: SGD(net.parameters(), lr=0.1), more=group(lr=0.01))


@case
def a_learning_rate_of_zero():
    return training(momentum, more=group(lr=0.0))


@case
def a_weight_decay():
    return training(momentum, more=group(weight_decay=0.5))


@case
def a_weight_decay_that_is_taken_away():
    return training(momentum, more=group(weight_decay=0.0))


@case
def a_momentum():
    return training(momentum, more=group(momentum=0.1))


@case
def a_learning_rate_of_adam():
    return training(lambda net: Adam(net.parameters(), lr=0.1), more=group(lr=0.01))


@case
def the_betas_of_adam():
    return training(lambda net: Adam(net.parameters(), lr=0.1), more=group(betas=(0.5, 0.5)))


@case
def the_epsilon_of_adam():
    return training(lambda net: Adam(net.parameters(), lr=0.1), more=group(eps=1.0))


@case
def a_group_of_parameters_that_is_added():
    def of_the_weight(net):
        return SGD([net.weight], lr=0.1)

    return training(
        of_the_weight, more=lambda net, opt, gm: [lambda: opt.add_param_group({"params": [net.bias]})]
    )


@case
def a_schedule():
    def scheduled(net, opt, gm):
        schedule = MultiStepLR(opt, [1, 2], gamma=0.1)
        return [schedule.step, schedule.step]

    return training(momentum, more=scheduled)


@case
def a_state_of_an_optimizer_that_is_loaded():
    def loaded(net, opt, gm):
        saved = momentum(net).state_dict()
        return [lambda: opt.load_state_dict(saved)]

    return training(momentum, more=loaded)


@case
def a_parameter_that_is_attached_later():
    net, other = linear(1), Parameter(np.ones(3, np.float32))
    gm = GradManager().attach(net.parameters())

    def gradients(x):
        with gm:
            gm.backward((net(x) * other).sum())
        found = [p.grad for p in (net.weight, other) if p.grad is not None]
        for p in (net.weight, net.bias, other):
            p.grad = None
        return found

    return changing(gradients, lambda: gm.attach([other]))


@case
def a_gradient_that_is_there():
    net = linear(1)
    gm = GradManager().attach(net.parameters())

    def gradients(x):
        with gm:
            gm.backward(net(x).sum())
        found, net.weight.grad, net.bias.grad = net.weight.grad, None, None
        return found

    def change():
        net.weight.grad = tensor(np.ones((3, 3), np.float32))

    return changing(gradients, change)


@case
def an_optimizer_in_a_variable():
    net = linear(1)
    gm, opt = GradManager().attach(net.parameters()), momentum(net)

    def step(x):
        with gm:
            gm.backward((net(x) ** 2).sum())
        opt.step().clear_grad()

    def change():
        nonlocal opt
        opt = SGD(net.parameters(), lr=0.01)

    return changing(step, change, written=lambda: [p.numpy() for p in net.parameters()])


@case
def a_network_in_a_variable_of_a_step():
    net = linear(1)
    gm = GradManager().attach(net.parameters())

    def gradients(x):
        with gm:
            gm.backward((net(x) ** 2).sum())
        found, net.weight.grad, net.bias.grad = net.weight.grad, None, None
        return found

    def change():
        nonlocal net
        net = linear(2)
        gm.attach(net.parameters())

    return changing(gradients, change)


@case
def a_loss_that_is_chosen_by_name():
    config = {"loss": "l1_loss"}
    return changing(
        lambda x: getattr(F.loss, config["loss"])(x, x * 0.5), lambda: config.update(loss="square_loss")
    )


@case
def a_strength_of_a_penalty():
    net, config = linear(1), SimpleNamespace(penalty=0.1)

    def loss(x):
        return (net(x) ** 2).mean() + config.penalty * (net.weight**2).sum()

    return changing(loss, lambda: setattr(config, "penalty", 1.0))


@case
def layers_that_are_frozen():
    net = Net()
    frozen = set()

    def gradients(x):
        used = [p for name, p in net.first.named_parameters() if name not in frozen]
        with GradManager().attach(used) as gm:
            gm.backward(net(x).sum())
        found = [p.grad for p in used]
        for p in used:
            p.grad = None
        return found

    return changing(gradients, lambda: frozen.add("bias"))


@case
def the_groups_of_an_optimizer():
    first, second = Parameter([1.0, 1.0, 1.0]), Parameter([1.0, 1.0, 1.0])
    groups = [{"params": [first], "lr": 0.1}, {"params": [second], "lr": 0.2}]
    optimizer, manager = SGD(groups, lr=0.1), GradManager().attach([first, second])

    def step(x):
        with manager:
            manager.backward((x * first * second).sum())
        optimizer.step().clear_grad()
        return first + second * 2.0

    own = optimizer.param_groups
    return changing(step, lambda: own.__setitem__(1, dict(own[1], lr=0.9)), own.reverse)


def lamb(**numbers):
    return lambda net: LAMB(net.parameters(), lr=0.1, **numbers)


@case
def a_weight_decay_of_lamb():
    return training(lamb(), more=group(weight_decay=0.3))


@case
def a_weight_decay_of_lamb_that_is_taken_away():
    return training(lamb(weight_decay=0.3), more=group(weight_decay=0.0))


@case
def a_switch_of_lamb():
    return training(lamb(), more=group(always_adapt=True))


@case
def the_tensors_that_are_attached():
    net, other = linear(1), Parameter(np.ones(3, np.float32))
    gm = GradManager().attach(net.parameters())

    def lengths(x):
        return x * len(gm.attached_tensors()), [tensor * 2.0 for tensor in gm.attached_tensors()]

    return changing(lengths, lambda: gm.attach([other]))


@case
def the_gradients_of_a_group_that_is_added():
    net = linear(1)
    opt = SGD([net.weight], lr=0.1)

    def add():
        opt.add_param_group({"params": [net.bias]})
        give()

    def give():
        net.weight.grad, net.bias.grad = tensor(np.ones((3, 3))), tensor(np.ones(3))

    def grads():
        return [p.grad is None for p in (net.weight, net.bias)]

    give()
    return changing(lambda x: opt.clear_grad(), give, add, give, written=grads)


@case
def the_numbers_of_an_optimizer_in_its_state():
    opt = SGD(linear(1).parameters(), lr=0.5)

    def scaled(x):
        return x * opt.state_dict(keep_var=True)["param_groups"][0]["lr"]

    return changing(scaled, lambda: opt.param_groups[0].update(lr=0.1))
