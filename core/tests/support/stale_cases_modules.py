"""Modules that change."""

from __future__ import annotations

import copy
import operator
from types import SimpleNamespace

import mgb.functional as F
import mgb.module as M
import numpy as np
from mgb import Parameter, tensor
from stale_cases import World, case, changing, numbers
from stale_cases_shared import Net, linear

NEARLY_ALL = 1.0 - 1e-7


class With(M.Module):
    """Its call is a function of itself."""

    def __init__(self, body, **state):
        super().__init__()
        self.__dict__.update(state, body=body)

    def forward(self, x):
        return self.body(self, x)


@case
def a_parameter_that_is_replaced():
    net = linear()
    return changing(lambda x: net(x), lambda: setattr(net, "weight", Parameter(np.eye(3, dtype=np.float32))))


@case
def a_parameter_written_in_place():
    net = linear()
    return changing(lambda x: net(x), lambda: operator.setitem(net.weight, ..., net.weight * 2.0))


@case
def a_bias_that_is_taken_away():
    net = linear()
    net.bias[...] = 1.0
    return changing(lambda x: net(x), lambda: setattr(net, "bias", None))


@case
def a_state_that_is_loaded():
    net, saved = linear(), linear(7).state_dict()
    return changing(lambda x: net(x), lambda: net.load_state_dict(saved))


@case
def a_number_of_a_module():
    net = Net()
    return changing(lambda x: net(x), lambda: setattr(net, "gain", 3.0))


@case
def a_flag_of_a_module():
    net = Net()
    return changing(lambda x: net(x), lambda: setattr(net, "residual", True))


@case
def a_function_of_a_module_object():
    net = Net()
    return changing(lambda x: net(x), lambda: setattr(net, "act", F.exp))


@case
def a_class_attribute_of_a_module():
    net = Net()
    return changing(lambda x: net(x), lambda: setattr(Net, "factor", 3.0))


@case
def a_forward_patched_on_the_class():
    net = Net()
    return changing(lambda x: net(x), lambda: setattr(Net, "forward", lambda self, x: self.second(x)))


@case
def a_forward_patched_on_the_instance():
    net = Net()
    return changing(lambda x: net(x), lambda: setattr(net, "forward", net.second.forward))


@case
def a_forward_of_a_layer_patched():
    net = Net()
    return changing(lambda x: net(x), lambda: setattr(net.first, "forward", lambda x: x * 4.0))


@case
def another_class_of_a_module():
    class Doubled(Net):
        def forward(self, x):
            return super().forward(x) * 2.0

    net = Net()
    return changing(lambda x: net(x), lambda: setattr(net, "__class__", Doubled))


@case
def a_layer_that_is_swapped():
    net = Net()
    return changing(lambda x: net(x), lambda: setattr(net, "first", linear(9)))


@case
def a_layer_in_a_list_that_is_swapped():
    net = With(lambda self, x: self.blocks[1](self.blocks[0](x)), blocks=[linear(1), linear(2)])
    return changing(lambda x: net(x), lambda: operator.setitem(net.blocks, 1, linear(5)))


@case
def a_layer_that_is_appended():
    def chain(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    net = With(chain, blocks=[linear(1)])
    return changing(lambda x: net(x), lambda: net.blocks.append(linear(5)), net.blocks.reverse)


@case
def a_layer_in_a_dict():
    net = Net()
    choice = "a"

    def change():
        nonlocal choice
        choice = "b"

    return changing(lambda x: net.heads[choice](x), change, lambda: net.heads.update(b=linear(8)))


@case
def names_of_layers_that_are_exchanged():
    net = With(lambda self, x: self.parts["a"](x), parts={"a": linear(5), "b": linear(6)})

    def change():
        one, two = net.parts.values()
        net.parts.clear()
        net.parts.update(b=one, a=two)  # the same values in the same order

    return changing(lambda x: net(x), change)


@case
def a_layer_of_a_sequential():
    net = M.Sequential(linear(1), M.ReLU(), linear(2))
    return changing(lambda x: net(x), lambda: operator.setitem(net, 1, M.Sigmoid()))


@case
def a_module_in_a_variable():
    net = linear(1)

    def change():
        nonlocal net
        net = linear(2)

    return changing(lambda x: net(x), change)


@case
def a_module_in_an_object():
    box = SimpleNamespace(net=linear(1))
    return changing(lambda x: box.net(x), lambda: setattr(box, "net", linear(2)))


@case
def a_module_in_a_list():
    nets = [linear(1)]
    return changing(lambda x: nets[0](x), lambda: operator.setitem(nets, 0, linear(2)))


@case
def a_configuration_of_a_module():
    net = With(lambda self, x: x * self.cfg.k, cfg=SimpleNamespace(k=2.0))
    return changing(lambda x: net(x), lambda: setattr(net.cfg, "k", 3.0))


@case
def a_list_in_a_configuration_of_a_module():
    net = With(lambda self, x: x * self.cfg.deep["a"][0], cfg=Net().cfg)
    return changing(lambda x: net(x), lambda: operator.setitem(net.cfg.deep["a"], 0, 3.0))


@case
def an_array_of_a_module():
    net = With(lambda self, x: x * self.table, table=np.ones(3, np.float32))
    return changing(lambda x: net(x), lambda: net.table.fill(4.0))


@case
def a_buffer_that_is_replaced():
    net = With(lambda self, x: x * self.shift, shift=tensor([1.0, 2.0, 3.0]))
    return changing(lambda x: net(x), lambda: setattr(net, "shift", tensor([4.0, 5.0, 6.0])))


@case
def a_module_whose_parts_alone_are_used():
    net = Net()
    return changing(lambda x: F.linear(x, net.first.weight) * net.gain, lambda: setattr(net, "gain", 3.0))


@case
def evaluation_of_a_dropout():
    net = M.Sequential(linear(), M.Dropout(NEARLY_ALL))
    return changing(lambda x: net(x), net.eval, net.train, net.eval)


@case
def evaluation_of_a_flag_that_the_body_asks_for():
    net = With(lambda self, x: x * 2.0 if self.training else x)
    return changing(lambda x: net(x), net.eval, net.train)


@case
def a_flag_of_a_module_that_is_not_called():
    net = linear()
    return changing(lambda x: x * 2.0 if net.training else x, net.eval)


@case
def evaluation_of_one_layer():
    net = M.Sequential(linear(), M.Dropout(NEARLY_ALL))
    return changing(lambda x: net(x), net[1].eval)


@case
def a_rate_of_a_dropout():
    net = M.Dropout(NEARLY_ALL)
    return changing(lambda x: net(x), lambda: setattr(net, "drop_prob", 0.0))


@case
def evaluation_of_a_normalisation():
    net = M.BatchNorm1d(3)
    arguments = [
        tensor(np.random.default_rng(i).standard_normal((4, 3)).astype(np.float32)) for i in range(5)
    ]
    changes = [None, None, net.eval, None, net.train]
    return World(lambda x: net(x), list(zip(changes, arguments)), written=lambda: net.running_mean.numpy())


@case
def an_epsilon_of_a_normalisation():
    net = M.LayerNorm(3)
    return changing(lambda x: net(x), lambda: setattr(net, "eps", 10.0))


@case
def a_hook_that_is_added():
    net = linear()
    return changing(
        lambda x: net(x), lambda: net.register_forward_hook(lambda module, inputs, out: out * 3.0)
    )


@case
def a_hook_that_is_removed():
    net = linear()
    handle = net.register_forward_hook(lambda module, inputs, out: out * 3.0)
    return changing(lambda x: net(x), handle.remove)


@case
def a_hook_before_the_call():
    net = linear()
    return changing(
        lambda x: net(x), lambda: net.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 3.0,))
    )


@case
def what_a_hook_reads():
    net, box = linear(), {"gain": 2.0}
    net.register_forward_hook(lambda module, inputs, out: out * box["gain"])
    return changing(lambda x: net(x), lambda: box.update(gain=3.0))


@case
def a_module_that_is_an_argument():
    net = Net()
    change = lambda: setattr(net, "gain", 5.0)  # noqa: E731
    steps = [(None, net), (None, net), (change, net), (None, Net()), (net.eval, net)]
    return World(lambda net, x: net(x), [(change, net, numbers()) for change, net in steps])


def layers():
    return M.Sequential(linear(1), M.ReLU(), linear(2))


def through(net, x):
    for layer in net:
        x = layer(x)
    return x


def swapped(function, place=2):
    """`function` of a Sequential one of whose layers is put in the place of another, and then left out."""
    net = layers()

    def put():
        net[place] = linear(9)

    return changing(lambda x: function(net, x), put, lambda: operator.delitem(net, 0))


@case
def a_layer_of_a_sequence_that_a_loop_finds():
    return swapped(through)


@case
def a_layer_of_a_sequence_that_is_asked_for_by_place():
    return swapped(lambda net, x: net[1](net[-1](x)), place=-1)


@case
def a_parameter_of_a_layer_of_a_sequence():
    return swapped(lambda net, x: x @ net[-1].weight)


@case
def the_layers_of_a_sequence_in_a_list():
    return swapped(lambda net, x: through([*net], x) + through(list(reversed([*net])), x))


@case
def the_number_of_layers_of_a_sequence():
    return swapped(lambda net, x: x * len(net) + (5.0 if net else 7.0))


@case
def a_layer_in_a_sequence():
    net = layers()
    one = net[0]

    def without():
        del net[0]

    return changing(lambda x: x * (2.0 if one in list(net) else 3.0), without)


@case
def a_sequence_that_becomes_empty():
    net = layers()

    def emptied():
        for _ in range(3):
            del net[0]

    return changing(lambda x: x * (2.0 if net else 3.0), emptied)


@case
def the_text_of_a_network():
    return swapped(lambda net, x: x * (len(repr(net)) + len(f"{net}") + len(str(net[-1]))))


@case
def a_copy_of_a_sequence():
    return swapped(lambda net, x: through(copy.copy(net), x))
