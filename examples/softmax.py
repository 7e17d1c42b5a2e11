"""Something to explain: ``mgb explain examples/softmax.py:softmax`` prints how it becomes one kernel."""

import mgb
import mgb.functional as F


def softmax(x):
    """Each row to positive numbers whose sum is 1."""
    shifted = x - x.max(axis=-1, keepdims=True).detach()
    powers = F.exp(shifted)
    return powers / powers.sum(axis=-1, keepdims=True)


def example_inputs():
    """Return the arguments that ``mgb explain`` traces it with."""
    return [mgb.random.normal(size=(4, 1000))]
