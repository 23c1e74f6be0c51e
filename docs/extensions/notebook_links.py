"""Documentation build: links in notebooks, written for readers of the files, lead to the pages that are built."""

from __future__ import annotations

import re
from typing import Any

_PAGE = re.compile(r'href="(?!https?:)([^"#]+)\.(?:md|ipynb)(#[^"]*)?"')


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """The notebook's text with links to built pages."""
    return _PAGE.sub(r'href="\1.html\2"', html) if page.file.src_uri.endswith(".ipynb") else html
