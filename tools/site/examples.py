"""Shows the examples of docstrings as code: griffe expects a section "Examples:", and ours are called "Example:"."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.M
            )
