"""The same training with the network alone compiled, forward and back: the rest of the step stays dynamic."""

import mgb as mge
import mgb.functional as F
from common import dataloader, total_epochs
from common import model as net
from common import optimizer as opt
from mgb.autodiff import GradManager
from mgb.jit import partial_trace


@partial_trace(backend="default", capture_as_const=True)
def backbone(model, inp):
    return model(inp)


for epoch in range(total_epochs):
    total_loss = 0
    gm = GradManager()
    gm.attach(net.parameters())
    for _step, (batch_data, batch_label) in enumerate(dataloader):
        data = mge.tensor(batch_data)
        label = mge.tensor(batch_label)

        with gm:
            logits = backbone(net, data)
            loss = F.loss.cross_entropy(logits, label)
            gm.backward(loss)
            opt.step().clear_grad()

        total_loss += loss.numpy().item()
    print(f"epoch: {epoch}, loss {total_loss / len(dataloader)}")
