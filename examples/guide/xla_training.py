"""The same training with the whole step as one executable: the network and the optimizer are arguments."""

import mgb as mge
import mgb.functional as F
from common import dataloader, model, optimizer, total_epochs
from mgb.autodiff import GradManager
from mgb.jit import xla_trace


@xla_trace(capture_as_const=True)  # a Tensor from outside that is in no argument would be a constant
def train_func(data, label, *, opt, net):
    gm = GradManager()
    gm.attach(net.parameters())
    with gm:
        logits = net(data)
        loss = F.loss.cross_entropy(logits, label)
        gm.backward(loss)
        opt.step().clear_grad()
    return loss


for epoch in range(total_epochs):
    total_loss = 0
    for _step, (batch_data, batch_label) in enumerate(dataloader):
        data = mge.tensor(batch_data)
        label = mge.tensor(batch_label)
        loss = train_func(data, label, opt=optimizer, net=model)
        total_loss += loss.numpy().item()
    print(f"epoch: {epoch}, loss {total_loss / len(dataloader)}")
