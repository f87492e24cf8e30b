"""Ensembles of climate models, combined location by location with observations; xarray in, xarray out."""

from mssl.climate.combination import combine, month_means, plot_combination, to_dataset, write_dataset
from mssl.climate.grids import open_field, open_members

__all__ = ["combine", "month_means", "open_field", "open_members", "plot_combination", "to_dataset", "write_dataset"]
