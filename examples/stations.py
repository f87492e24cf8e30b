"""Weather stations: one regression a station, few rows each, and the graph that relates the stations.

python examples/stations.py
"""

import numpy as np
import pandas as pd

from mssl import MSSLRegressor, transfer_report
from mssl.datasets import make_clustered_tasks

data = make_clustered_tasks("centres", n_samples=45, as_frame=True, random_state=1)
frame = data.X.rename(columns={"task": "station"}).assign(temperature=data.y)

# Prediction likes a small penalty, reading the graph a larger one; MSSLRegressorCV chooses both by itself.
X, y = frame.drop(columns="temperature"), frame["temperature"]
model = MSSLRegressor(graph_penalty=0.05, task_column="station").fit(X, y)
print(model.result_.message)

test = data.X_test.rename(columns={"task": "station"})
print(transfer_report(model, X, y, X_test=test, y_test=data.y_test))

graph = MSSLRegressor(graph_penalty=0.5, task_column="station").fit(X, y).graph_
print(graph.support(top=8))
for group in graph.communities():
    print(len(group), "stations:", ", ".join(map(str, group)))

unknown = pd.DataFrame(np.zeros((1, 30)), columns=data.X.columns.drop("task")).assign(station="task 01")
print("prediction at the average of all features:", model.predict(unknown[test.columns]).round(2))
