"""pandas, xarray and Matplotlib take Tensors as they take arrays."""

import matplotlib
import mgb
import pandas as pd
import xarray as xr

matplotlib.use("Agg")  # no window
from matplotlib import pyplot as plt

losses = mgb.tensor([[0.9, 1.1], [0.5, 0.8], [0.4, 0.7]])

table = pd.DataFrame(losses, columns=["training", "validation"])
print(f"pandas: {table['validation'].min():.1f} in row {table['validation'].idxmin()}")

labelled = xr.DataArray(losses, dims=("epoch", "set"), coords={"set": ["training", "validation"]})
print(f"xarray: {float(labelled.sel(set='training').mean('epoch')):.1f}")

(line, *_) = plt.plot(mgb.functional.arange(3), losses)
print(f"Matplotlib: {line.get_ydata().tolist()}")
again = mgb.tensor(table["training"])  # and back
assert again.tolist() == losses[:, 0].tolist()
