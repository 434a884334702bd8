"""What Sphinx is told; `make docs` builds the site (tools/site)."""

import equifl

project = "equifl"
author = "The equifl developers"
project_copyright = author
release = version = equifl.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click", "tools.site.extension"]
exclude_patterns = ["figures"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_allow_labels = False
suppress_warnings = ["ref.python"]  # a type of a signature that two modules have, such as Partition

autodoc_member_order = "bysource"
autodoc_type_aliases = {name: name for name in ("Bools", "Floats", "Ints", "Array", "Records")}  # as they are written
autodoc_class_signature = "mixed"

highlight_language = "text"

html_theme = "furo"
html_title = f"equifl {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # which a browser may not read from a folder
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}
