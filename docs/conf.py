"""Sphinx configuration: ``nox -s docs`` builds the pages into ``docs/_build``; nothing is fetched from a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import micdrop_agent

project = "micdrop_agent"
author = "The micdrop_agent authors"
project_copyright = "The micdrop_agent authors"
version = release = micdrop_agent.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
root_doc = "index"

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"exclude-members": "__init__, __weakref__"}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Guarantees", ("Source", "notes_style")]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "micdrop_agent"
html_static_path = ["_static"]
html_css_files = ["extra.css"]
html_show_sphinx = False
html_theme_options: dict[str, Any] = {
    "light_css_variables": {"color-brand-primary": "#0b6e69", "color-brand-content": "#0b6e69"},
    "dark_css_variables": {"color-brand-primary": "#5fd0c5", "color-brand-content": "#5fd0c5"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"
