"""Partial tracing: a step whose loss depends on values, around a network that does not."""

import mgb as mge
import mgb.functional as F
from common import dataloader, gm, model, optimizer
from mgb.jit import partial_trace


@partial_trace
def backbone(model, inp):
    return model(inp)


for epoch in range(4):
    correct = 0
    for batch_data, batch_label in dataloader:
        data = mge.tensor(batch_data)
        label = mge.tensor(batch_label)

        with gm:
            logits = backbone(model, data)
            wrong = F.argmax(logits, axis=1).numpy() != batch_label
            if wrong.any():  # learn from the mistakes alone: how many there are differs from step to step
                places = mge.tensor(wrong.nonzero()[0])
                loss = F.loss.cross_entropy(logits[places], label[places])
                gm.backward(loss)
                optimizer.step().clear_grad()
        correct += int((~wrong).sum())
    print(f"epoch: {epoch}, {correct} right")

print(f"compiled {len(backbone.programs())} programs for {backbone.stats()['calls']} calls")
