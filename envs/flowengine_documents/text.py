"""Plain text, the decoding of bytes, and that of characters in the fonts Symbol and Wingdings."""

from __future__ import annotations

from flowengine_documents.document import Damaged
from flowengine_documents.encodings import codec_of, declared_text, marked_encoding, text_in
from flowengine_documents.markdown import Writer

_LATIN = "cp1252"
"""Encoding of Western programs before UTF-8."""
_SAMPLE = 4_096
_GUESSED = 64 * 1024
"""Bytes from which an encoding is guessed."""
_HIGH = bytes(range(0x80, 0x100))
_FEWEST = 6
_STRAY = 50
"""At most one byte in so many may be zero. Such a damaged text is read as browsers do."""
_WESTERN = 0.25
"""Maximum fraction of characters outside of ASCII in Western text."""


def decode(data: bytes, declared: str = "") -> tuple[str, str]:
    """Return text and a note about its encoding, which is empty unless in doubt.

    UTF-8 and the declared encoding take precedence, then a guessed legacy encoding if the letters
    are not Western, then the legacy Western encoding.

    Raises:
        Damaged: It is not text.
    """
    sample = data[:_SAMPLE]
    is_wide = marked_encoding(data) or codec_of(declared).startswith("utf-16")
    if b"\0" in sample and not is_wide:
        if encoding := _wide(sample):
            return data.decode(encoding, "replace"), ""
        if sample.count(b"\0") > len(sample) // _STRAY:
            raise Damaged("it is binary data, not text")
        kept, note = decode(data.replace(b"\0", b""), declared)
        return kept, note or f"{data.count(0):,} zero bytes left out"
    if (text := declared_text(data, declared)) is not None:
        return text, ""
    if guessed := _guessed(data):
        return guessed
    if (text := text_in(data, _LATIN)) is not None:
        return text, "" if not declared else f"it is not {declared}, as declared. Read as {_LATIN}"
    return data.decode("utf-8", "replace"), ""


def noted(data: bytes, out: Writer, declared: str = "") -> str:
    """Return text, with a note in the document if its encoding is in doubt. See `decode`."""
    text, note = decode(data, declared)
    if note:
        out.note(note)
    return text


def _guessed(data: bytes) -> tuple[str, str] | None:
    """Return text with so many characters outside of ASCII that it is unlikely to be Western."""
    sample = data[:_GUESSED]
    high = len(sample) - len(sample.translate(None, _HIGH))
    if high < _FEWEST or high < len(sample) * _WESTERN:
        return None
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best()
    text = None if best is None else text_in(data, codec_of(best.encoding) or best.encoding)
    if best is None or text is None:
        return None
    return text, f"its encoding is not declared. {best.encoding} is a guess"


def _wide(sample: bytes) -> str:
    """Return the UTF-16 variant of a text in which every other byte is 0, or the empty text."""
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    if odd > half * 0.6 and even < half * 0.1:
        return "utf-16-le"
    if even > half * 0.6 and odd < half * 0.1:
        return "utf-16-be"
    return ""


def lines(text: str) -> str:
    """Return text with uniform line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def convert(data: bytes, out: Writer, declared: str = "") -> None:
    """Copy text unchanged: Markdown stays Markdown."""
    out.block(lines(noted(data, out, declared)).strip("\n"))


# Texts in the fonts Symbol and Wingdings, whose characters look like others.
#
# Source: the encoding of Adobe's Symbol, and the Unicode characters made for Wingdings. Arrows and
# boxes are the usual ones, which more fonts have.

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
    """Return the visible form of a text in a font. A sign without an equivalent is left out.

    Args:
        text: The text.
        font: The name of the font. In others, the text is returned unchanged.
    """
    signs = _FONTS.get(font.strip("'\" ").lower())
    if signs is None:
        return text
    codes = (chr(ord(sign) % _OFFSET) if sign >= "\uf000" else sign for sign in text)
    return "".join(sign if sign.isspace() else signs.get(sign, "") for sign in codes)
