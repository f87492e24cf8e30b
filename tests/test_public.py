"""The public names: each is used by somebody, and none is there by accident."""

from __future__ import annotations

from benchmarks import house

MOST = 115
PUBLIC = {
    "mssl": (
        "BayesianMSSLClassifier BayesianMSSLRegressor GraphicalLasso GraphicalLassoCV MSSLClassifier "
        "MSSLClassifierCV MSSLRegressor MSSLRegressorCV Moments MultiTaskClassifier MultiTaskGLM "
        "MultiTaskGLMCV StabilitySelection TaskData TaskGraph compare_methods graphical_lasso load pair_tasks "
        "save skops_types stack_tasks transfer_report vote"
    ),
    "mssl.cli": "main",
    "mssl.climate": "combine month_means open_field open_members plot_combination to_dataset write_dataset",
    "mssl.data": "PairTasks read_tasks",
    "mssl.datasets": (
        "available export fetch load load_climate load_digit_pairs load_el_nino load_enb load_irish_wind "
        "load_landmine load_letter load_mnist_pairs load_slump load_spam make_climate_like "
        "make_clustered_tasks make_curved_tasks make_residual_graph"
    ),
    "mssl.estimators": "MultiTaskEstimator",
    "mssl.features": "FeatureBlocks FeatureMap Interactions Linear Spline",
    "mssl.glasso": "GlassoStatus GraphicalLassoResult graphical_lasso_gap",
    "mssl.graph": "GraphComparison partial_correlation",
    "mssl.kernels": "LAPACK_FROM LEVELS library",
    "mssl.model_selection": (
        "CheckpointError EBICPath MovingWindowSplit RegularizationPath TaskBlockKFold TaskGroupKFold "
        "TaskKFold TaskTimeSeriesSplit ebic_path regularization_path"
    ),
    "mssl.paper": "PaperMSSL PaperMSSLClassifier",
    "mssl.plots": (
        "plot_box plot_chord plot_coefficients plot_convergence plot_effects plot_graph plot_map plot_path "
        "plot_precision plot_stability plot_transfer"
    ),
    "mssl.priors": "ARD Block Dense Exchangeable FeatureScale Form Known Noise PerTask Prior TaskKernel",
    "mssl.report": "write",
    "mssl.solvers": "Solver",
    "mssl.structures": (
        "Clustered FixedPrecision GraphLaplacian Independent KnownEdges LatentSparsePrecision MeanRegularized "
        "Pooled SparsePrecision Structure StructureScale StructureStep TaskCovariance"
    ),
}


def test_public_names_are_those_of_the_list() -> None:
    found = {module: sorted(names) for module, names in house.public().items()}
    assert found == {module: names.split() for module, names in PUBLIC.items()}
    assert sum(map(len, found.values())) <= MOST
