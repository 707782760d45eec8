"""Recognizes bot checks. They are reported, not solved."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TITLES = re.compile(
    r"just a moment|attention required|are you (a )?(human|robot)|access denied"
    r"|security check|verify(ing)? (that )?you are (a )?human|captcha",
    re.IGNORECASE,
)
_TEXTS = re.compile(
    r"verify(ing)? (that )?you are (a )?human|unusual traffic from your|complete the captcha"
    r"|checking (if the site connection is secure|your browser before)"
    r"|prove (that )?you are (a )?human|i('m| am) not a robot",
    re.IGNORECASE,
)
_FRAMES = re.compile(
    r"challenges\.cloudflare\.com|google\.com/recaptcha|recaptcha\.net|hcaptcha\.com"
    r"|arkoselabs\.com|funcaptcha|captcha-delivery\.com|geo\.captcha",
    re.IGNORECASE,
)
_SHORT = 3000
"""Characters. In a longer text, these words usually belong to its topic."""


def is_challenge(title: str, text: str, frames: Iterable[str]) -> bool:
    """Return whether a page looks like a bot check.

    Args:
        title: Its title.
        text: Its text.
        frames: Addresses of the frames in it.
    """
    if len(text) > _SHORT:
        return False
    if any(_FRAMES.search(frame) for frame in frames):
        return True
    return bool(_TITLES.search(title) or _TEXTS.search(text))
