"""
Residuals on a map
==================

Cells of a grid joined where their errors stay related given all others.
"""

import matplotlib.pyplot as plt

from mssl import MSSLRegressor
from mssl.datasets import make_climate_like
from mssl.plots import plot_map

data = make_climate_like(n_samples=400, random_state=0)
model = MSSLRegressor(0.2, relation="residual", coef_penalty=0.01).fit(data.X, data.y)
certain = model.graph_.selected(fdr=0.1, level="edges")
plot_map(certain, coordinates=data.coordinates)
plt.show()
