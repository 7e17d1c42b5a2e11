"""``symbolic=True``: nothing runs in the first call until the whole graph is known."""

import mgb as mge
import mgb.functional as F
from common import dataloader, gm, model, optimizer
from mgb.jit import trace


@trace(symbolic=True)
def train_func(data, label, *, opt, gm, net):
    with gm:
        logits = net(data)
        loss = F.loss.cross_entropy(logits, label)
        gm.backward(loss)
        opt.step().clear_grad()
    return loss


for batch_data, batch_label in dataloader:
    loss = train_func(mge.tensor(batch_data), mge.tensor(batch_label), opt=optimizer, gm=gm, net=model)
print(f"loss {loss.item():.4f}")
