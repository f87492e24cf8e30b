"""What a user may mistype: mypy --strict refuses each of the lines that say so, and no other."""

# ruff: noqa
from mssl import MSSLClassifier, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM, presets
from mssl.structures import SparsePrecision
from mssl.structures import SparsPrecision  # refused: has no attribute "SparsPrecision"
from mssl import MSSLRegresor  # refused: has no attribute "MSSLRegresor"

MSSLRegressor(graph_penalti=1)  # refused: Unexpected keyword argument "graph_penalti"
MSSLRegressor("strong")  # refused: expected "float | Literal['auto'] | SparsePrecision"
MSSLRegressor(loss=3)  # refused: expected "str | Loss"
MSSLRegressor(relation="nonsense")  # refused: expected "Literal['coef', 'residual']"
MSSLRegressorCV(selektion="both")  # refused: Unexpected keyword argument "selektion"
MSSLClassifier(SparsePrecision("auto", edge_constraints=[(0, 1)]))  # refused: expected "KnownEdges | None"
MultiTaskGLM(structure="graph")  # refused: expected "Structure | None"
MSSLRegressorCV().fit([[1.0]], [1.0]).best_param_  # refused: has no attribute "best_param_"
model = MSSLRegressor().fit([[1.0]], [1.0])
model.predict_intervall([[1.0]])  # refused: has no attribute "predict_intervall"
model.score([[1.0]], [1.0], [1.0])  # refused: Too many positional arguments
presets.rigde()  # refused: has no attribute "rigde"

from mssl._html import Html, tag

tag("p", Html("<b>"))  # a text, which is escaped
tag("p", "<b>")  # refused: expected "Html"
Html("<b>") + "</b>"  # refused: Unsupported left operand type for + ("Html")
