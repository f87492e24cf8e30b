"""Weights integrated out: hyperparameters by type-II likelihood, posteriors, GLM sites, choice of structure."""
