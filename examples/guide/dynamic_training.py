"""Training by a dynamic graph: where the guide begins."""

import mgb as mge
import mgb.functional as F
from common import dataloader, gm, model, optimizer, total_epochs

for epoch in range(total_epochs):
    total_loss = 0
    for _step, (batch_data, batch_label) in enumerate(dataloader):
        data = mge.tensor(batch_data)
        label = mge.tensor(batch_label)

        with gm:
            logits = model(data)
            loss = F.loss.cross_entropy(logits, label)
            gm.backward(loss)
            optimizer.step().clear_grad()

        total_loss += loss.numpy().item()
    print(f"epoch: {epoch}, loss {total_loss / len(dataloader)}")
