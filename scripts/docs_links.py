"""Link the names of the Python API in the guides to its reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape

CODE = re.compile(r"<(a|pre|h[1-6])\b.*?</\1>|<code>([^<]+)</code>", re.DOTALL)
"""Inline code, or an element in which it is not linked: a link, a code block, a heading."""
NAME = re.compile(r"(?:await )?@?([A-Za-z_][\w.]*)(?:\(.*\)|\[.*\])?", re.DOTALL)
"""A name, as it is, with arguments or as a decorator."""


def linked(content: str, names: Mapping[str, str]) -> str:
    """Return the HTML of a page in which inline code leads to the reference.

    Args:
        content: The HTML.
        names: A name of the API, as guides spell it → the identifier of its heading, which
            mkdocs-autorefs resolves. That of a method is also used for its form with `_async`.
    """

    def with_link(match: re.Match[str]) -> str:
        name = NAME.fullmatch(unescape(match[2] or ""))
        at = name and (names.get(name[1]) or names.get(name[1].removesuffix("_async")))
        return f'<autoref identifier="{at}">{match[0]}</autoref>' if at else match[0]

    return CODE.sub(with_link, content)
