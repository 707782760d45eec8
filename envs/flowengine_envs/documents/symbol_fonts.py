"""Texts in the fonts Symbol and Wingdings, whose characters look like others.

Source: the encoding of Adobe's Symbol, and the Unicode characters made for Wingdings. Arrows and
boxes are the usual ones, which more fonts have.
"""

from __future__ import annotations

_SYMBOL = (
    " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_"  # noqa: RUF001
    "‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"  # noqa: RUF001
    + "\0"
    * 33
    + "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑"  # noqa: RUF001
    "⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪\0〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"
)
_WINGDINGS = {
    **dict(zip("\x22\x28\x29\x2a\x36\x3f", "✂☎✆✉⌛✍", strict=True)),
    **dict(zip("ACDEFGHJKLMNQRTX", "✌👍👎☜☞☝☟☺😐☹💣☠✈☼❄✠", strict=True)),
    **dict(zip("lnoqrtuvwx", "●■☐❑❒◆◆❖◆☒", strict=True)),
    **{chr(0x81 + number): chr(ord("①") + number) for number in range(10)},
    **{chr(0x8C + number): chr(ord("❶") + number) for number in range(10)},
    **dict(zip("\x9e\x9f\xa1\xa7\xa8\xab\xd8", "·•○▪☐★➢", strict=True)),
    **dict(zip("\xdf\xe0\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8", "←→↑↓↖↗↙↘←→", strict=True)),
    **dict(zip("\xef\xf0\xf1\xf2\xf3\xfb\xfc\xfd\xfe", "⇦⇨⇧⇩⇔✗✓☒☑", strict=True)),
}
_FONTS = {
    "symbol": {chr(0x20 + at): sign for at, sign in enumerate(_SYMBOL) if sign != "\0"},
    "wingdings": _WINGDINGS,
}
_OFFSET = 0xF000
"""Office programs write a character of such a font in the area for private use."""


def shown(text: str, font: str) -> str:
    """Return a text as it is shown in a font. A sign without an equivalent is left out.

    Args:
        text: The text.
        font: The name of the font. In others, the text is returned unchanged.
    """
    signs = _FONTS.get(font.strip("'\" ").lower())
    if signs is None:
        return text
    codes = (chr(ord(sign) % _OFFSET) if sign >= "\uf000" else sign for sign in text)
    return "".join(sign if sign.isspace() else signs.get(sign, "") for sign in codes)
