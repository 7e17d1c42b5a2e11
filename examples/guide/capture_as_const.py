"""``capture_as_const=True``: the parameters become constants of the graph."""

import mgb.functional as F
from common import image, model
from mgb.jit import trace

model.eval()


@trace(capture_as_const=True)
def predict(data, *, net):
    return F.softmax(net(data), axis=1)


for _ in range(2):
    probabilities = predict(image, net=model)
print(f"{probabilities.shape} {float(probabilities.sum()):.3f}")
