"""scikit-learn's estimators on Tensors: the arithmetic of `fit` and `predict` is mgb's."""

import os

os.environ["SCIPY_ARRAY_API"] = "1"  # scikit-learn wants that of SciPy, too

import mgb.numpy as xp
import numpy as np
import sklearn
from mgb.data import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

sklearn.set_config(array_api_dispatch=True)


def recognised(asarray):
    """Classify the test digits with arrays of the library of `asarray`; return predictions and accuracy."""
    images, labels, test_images, test_labels = (
        asarray(part.reshape(len(part), 64) if part.ndim > 1 else part) for part in load_digits()
    )
    model = make_pipeline(MaxAbsScaler(), PCA(30, svd_solver="full"), LinearDiscriminantAnalysis())
    found = model.fit(images, labels).predict(test_images)
    return found, accuracy_score(test_labels, found)


tensors, accuracy = recognised(xp.asarray)
arrays, _ = recognised(np.asarray)
print(f"{type(tensors).__name__} on {tensors.device}: {accuracy:.0%} recognised")
print(f"{(tensors.numpy() == arrays).mean():.0%} as with NumPy's arrays")
