"""The parts that the samples of the guide leave to the reader: a network, its data, a dataloader."""

import mgb as mge
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
from mgb.autodiff import GradManager
from mgb.data import batches, load_digits

mge.random.seed(1)


class Net(M.Module):
    """Two linear layers for the 8x8 digits."""

    def __init__(self):
        super().__init__()
        self.hidden = M.Linear(64, 48)
        self.head = M.Linear(48, 10)

    def forward(self, x):
        return self.head(F.relu(self.hidden(F.flatten(x, 1))))


images, labels, _, _ = load_digits()
dataloader = list(batches(images[:640], labels[:640], 64, seed=0))
total_epochs = 2

model = Net()
gm = GradManager().attach(model.parameters())
optimizer = optim.SGD(model.parameters(), lr=0.0125, momentum=0.9, weight_decay=1e-4)
image, label = (mge.tensor(a) for a in dataloader[0])
