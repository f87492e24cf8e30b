"""Hospitals with few patients each: one logistic regression a site, helped by the sites that resemble it.

python examples/hospitals.py
"""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from mssl import MSSLClassifier
from mssl.datasets import make_clustered_tasks

data = make_clustered_tasks(
    "equicorrelated",
    n_features=20,
    n_samples=40,
    n_test=1500,
    amplitude=0.67,
    shared_design=False,
    family="binary",
    intercept_scale=0.5,
    random_state=0,
)
together = MSSLClassifier(graph_penalty=0.1).fit(data.X, data.y, tasks=data.tasks)
shared = together.predict_proba(data.X_test, tasks=data.tasks_test)[:, 1]

alone = np.empty(len(data.y_test))
for site in np.unique(data.tasks):
    own, test = data.tasks == site, data.tasks_test == site
    alone[test] = LogisticRegression(C=0.3).fit(data.X[own], data.y[own]).predict_proba(data.X_test[test])[:, 1]

for name, score in (("each site alone", alone), ("all sites together", shared)):
    sites = [
        roc_auc_score(data.y_test[data.tasks_test == s], score[data.tasks_test == s]) for s in np.unique(data.tasks)
    ]
    print(f"{name:20s} mean AUC over sites {np.mean(sites):.3f}, worst site {np.min(sites):.3f}")
print(together.result_.message)
print(together.graph_)
