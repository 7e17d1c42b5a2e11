"""A traced training step in actors of Ray: each trains on its data from its seed, and the best is kept.

``pip install ray``. The step goes to the actors by value, since it stands in the program that runs.
"""

import mgb
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
import ray
from mgb.autodiff import GradManager
from mgb.jit import trace


class Trainer:
    """A small network that learns the sine."""

    def __init__(self, seed):
        mgb.random.seed(seed)
        self.net = M.Sequential(M.Linear(1, 16), M.ReLU(), M.Linear(16, 1))
        self.gm = GradManager().attach(self.net.parameters())
        self.opt = optim.Adam(self.net.parameters(), lr=1e-2)

    @trace
    def step(self, x, y):
        """One step; the loss before it."""
        with self.gm:
            loss = F.loss.square_loss(self.net(x), y)
            self.gm.backward(loss)
            self.opt.step().clear_grad()
        return loss

    def train(self, steps):
        """The losses."""
        x = np.linspace(-3, 3, 64, dtype=np.float32)[:, None]
        return [self.step(mgb.tensor(x), mgb.tensor(np.sin(x))).item() for _ in range(steps)]


def main():
    """The first and the last loss of the best."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    trainers = [ray.remote(Trainer).remote(seed) for seed in range(2)]
    curves = ray.get([trainer.train.remote(200) for trainer in trainers])
    ray.shutdown()
    best = min(curves, key=lambda curve: curve[-1])
    return best[0], best[-1]


if __name__ == "__main__":
    print(*main())
