"""Sphinx configuration: ``nox -s docs`` builds the pages into ``docs/_build``; nothing is fetched from a network."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).parents[1]))

import micdrop_agent

project = "micdrop_agent"
author = "The micdrop_agent authors"
project_copyright = "The micdrop_agent authors"
version = release = micdrop_agent.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
root_doc = "index"

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3

# A whole call and the call of a tool in a script are both named Call; a short type in a signature may be either.
suppress_warnings = ["ref.python"]

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
html_theme_options["announcement"] = f"Version {version}"
copybutton_exclude = ".linenos, .gp, .go"  # a copied console line is the command alone
pygments_style = "friendly"
pygments_dark_style = "monokai"

linkcheck_ignore = [r"http://(localhost|127\.0\.0\.1)"]


def setup(app: Any) -> None:
    """Correct what autodoc and napoleon make of our classes."""
    app.connect("autodoc-process-signature", show_defaults)
    app.connect("autodoc-process-docstring", keep_the_first_line, priority=400)  # before napoleon, which has 500


def show_defaults(_app: Any, _what: str, _name: str, obj: Any, _options: Any, signature: str, returns: str) -> Any:
    """The values of an attrs class's defaults, where its generated ``__init__`` has an expression of attrs."""
    if signature is None or not (inspect.isclass(obj) and attrs.has(obj)):
        return None
    shown = signature
    for each in attrs.fields(obj):
        name, default = each.alias, each.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a class at run time
            default = "…" if default.takes_self else default.factory()
        for unknown in (rf"attr_dict\['{each.name}'\]\.default", "NOTHING"):
            shown = re.sub(
                rf"\b({name}(?:: [^=]*)?) = {unknown}", lambda found, value=default: f"{found[1]} = {value!r}", shown
            )
    return shown, returns


def keep_the_first_line(_app: Any, what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Keep napoleon from reading "Seconds: …" in the docstring of an attribute as the type of it."""
    if what in {"attribute", "data", "property"} and lines:
        lines.insert(0, "")
