"""Hospitals with few patients each, generated: one model that shares, one for all, and one for each site.

python examples/hospitals.py
"""

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss, roc_auc_score

from mssl import BayesianMSSLClassifier
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
    as_frame=True,
    random_state=0,
)
model = BayesianMSSLClassifier(task_column="task").fit(data.X, data.y)


def logistic() -> LogisticRegressionCV:
    """Ten strengths, chosen by five folds."""
    return LogisticRegressionCV(Cs=10, cv=5, l1_ratios=(0.0,), scoring="neg_log_loss", use_legacy_attributes=False)


train, new = (pd.get_dummies(rows, columns=["task"]) for rows in (data.X, data.X_test))
alone = np.empty(len(new))
for site in np.unique(data.tasks):
    own, test = data.tasks == site, data.tasks_test == site
    features = [rows.drop(columns="task") for rows in (data.X[own], data.X_test[test])]
    alone[test] = logistic().fit(features[0], data.y[own]).predict_proba(features[1])[:, 1]

answers = {
    "all sites together": model.predict_proba(data.X_test)[:, 1],
    "one model for all": logistic().fit(train, data.y).predict_proba(new)[:, 1],
    "each site alone": alone,
}
for name, answer in answers.items():
    sites = [data.tasks_test == site for site in np.unique(data.tasks)]
    areas = [roc_auc_score(data.y_test[own], answer[own]) for own in sites]
    loss = log_loss(data.y_test, answer)
    print(f"{name:20s} log loss {loss:.3f}, AUC over sites: mean {np.mean(areas):.3f}, worst {np.min(areas):.3f}")
print(model.graph_.relations(fdr=0.1))
