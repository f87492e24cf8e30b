"""
Counts with exposures
=====================

Poisson rates of sites that were observed for different times: ``offset`` is the logarithm of the exposure.
"""

import matplotlib.pyplot as plt
import numpy as np

from mssl import BayesianMSSLRegressor

rng = np.random.default_rng(0)
K, n, d = 10, 25, 3
X, sites = rng.normal(size=(K * n, d)), np.repeat(np.arange(K), n)
W = [0.6, -0.3, 0.0] + 0.15 * rng.normal(size=(K, d))
days = rng.integers(1, 60, size=K * n)
rate = 0.2 * np.exp(np.einsum("nd,nd->n", X, W[sites]))
counts = rng.poisson(days * rate)
model = BayesianMSSLRegressor("mean+ard", features="linear", loss="poisson")
model.fit(X, counts, tasks=sites, offset=np.log(days))

figure, ax = plt.subplots(figsize=(4.2, 4), layout="constrained")
ax.loglog(rate, model.predict(X, tasks=sites, offset=0), ".", ms=3)
ax.loglog([0.02, 2], [0.02, 2], color="0.6", lw=1)
ax.set_xlabel("true rate a day")
ax.set_ylabel("predicted rate a day")
plt.show()
