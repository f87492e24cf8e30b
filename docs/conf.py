"""How the documentation is built: ``python -m sphinx -W docs docs/_build``, without a network."""

import os
import warnings

import mssl

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore", message="Matplotlib is currently using agg")

project = "mssl"
author = "The mssl developers"
copyright = "the mssl developers, BSD-3-Clause"  # noqa: A001
release = version = mssl.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_click",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "gallery_src", "**/*.py.md5"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "config.cache"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery_src",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
}

html_theme = "pydata_sphinx_theme"
html_title = "mssl"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_show_sourcelink = False
html_sidebars = {"[!ag]*": [], "architecture": [], "graph": [], "guides/*": []}  # only API and gallery have children
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def _plain_stars(app: object, ctx: object, lines: list[str]) -> None:
    """Help texts hold patterns of files such as ``*.nc``, which are no emphasis."""
    lines[:] = [line.replace("*", r"\*") for line in lines]


def setup(app: object) -> None:
    for part in ("description", "options"):
        app.connect(f"sphinx-click-process-{part}", _plain_stars)  # type: ignore[attr-defined]
