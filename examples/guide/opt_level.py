"""``opt_level=3`` fuses; ``export MGB_JIT_BACKEND="CPU_LLVM"`` chooses who generates the code."""

import mgb.autodiff as ad
import mgb.functional as F
import mgb.optimizer as optim
from common import image, label, model
from mgb.jit import trace

if __name__ == "__main__":
    gm = ad.GradManager().attach(model.parameters())
    opt = optim.SGD(model.parameters(), lr=0.0125, momentum=0.9, weight_decay=1e-4)

    @trace(symbolic=True, opt_level=3)
    def train():
        with gm:
            logits = model(image)
            loss = F.loss.cross_entropy(logits, label)
            gm.backward(loss)
            opt.step()
            opt.clear_grad()
            return loss

    first = train()
    for _ in range(20):
        loss = train()
    print(first.numpy(), loss.numpy(), train.backend)
