"""How Sphinx builds the documentation, without a network: `sphinx-build docs docs/_build/html`."""

from importlib import metadata

project = "ftrans"
author = "The ftrans authors"
project_copyright = author
version = release = metadata.version("ftrans")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]

# Pages: MyST, and those with code cells are notebooks that run at every build.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 300
nb_render_markdown_format = "myst"  # for tables and mathematics in what cells return

# Docstrings: Google sections; single backticks are code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Reference"]
python_maximum_signature_line_length = 88


def skip_field_numbers(app, what, name, obj, skip, options):
    """Leaves out what `NamedTuple` writes of a field, "Alias for field number 0"."""
    return True if (obj.__doc__ or "").startswith("Alias for field number") else None


def setup(app):
    app.connect("autodoc-skip-member", skip_field_numbers)


html_theme = "furo"
html_title = f"ftrans {release}"
