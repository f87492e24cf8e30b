"""
Filling gaps from neighbours
============================

Stations measure on the same days. r-MSSL learns which errors go together; ``predict(X, known=Y)`` fills what is missing.
"""

import matplotlib.pyplot as plt
import numpy as np

from mssl import MSSLRegressor
from mssl.datasets import make_climate_like

data = make_climate_like(n_samples=200, random_state=0)
model = MSSLRegressor(0.1, relation="residual", coef_penalty=0.01).fit(data.X, data.y)
known = data.y_test.copy()
cell = 12
known[20:60, cell] = np.nan
filled, std = model.predict(data.X_test, known=known, return_std=True)
alone = model.predict(data.X_test)

days = np.arange(15, 65)
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.plot(days, data.y_test[days, cell], "k.", label="observed (hidden in the gap)")
ax.plot(days, alone[days, cell], color="0.6", label="from the members alone")
ax.plot(days, filled[days, cell], color="C0", label="given the other cells")
ax.fill_between(days, *(filled[days, cell] + s * 1.64 * std[days, cell] for s in (-1, 1)), alpha=0.2)
ax.set_xlabel("month")
ax.set_ylabel("°C")
ax.axvspan(20, 60, color="0.95", zorder=0)
ax.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.15))
plt.show()
