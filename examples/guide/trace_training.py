"""The same training with the step under `trace`: data by position, everything else by keyword."""

import mgb as mge
import mgb.functional as F
from common import dataloader, gm, model, optimizer, total_epochs
from mgb.jit import trace


@trace
def train_func(data, label, *, opt, gm, net):
    with gm:
        logits = model(data)
        loss = F.loss.cross_entropy(logits, label)
        gm.backward(loss)
        opt.step().clear_grad()
    return loss


for epoch in range(total_epochs):
    total_loss = 0
    for _step, (batch_data, batch_label) in enumerate(dataloader):
        data = mge.tensor(batch_data)
        label = mge.tensor(batch_label)

        loss = train_func(data, label, opt=optimizer, gm=gm, net=model)
        total_loss += loss.numpy().item()
    print(f"epoch: {epoch}, loss {total_loss / len(dataloader)}")
