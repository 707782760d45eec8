"""`flowengine explain`: what an error code of the checker means, and how to fix it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from importlib.resources import files

from flowengine.cli.terminal.output import out, out_json, out_text

HELP = "explain an error code of check: the cause, an example and the fix"
EXAMPLE = """\
flowengine explain E202
flowengine explain"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "codes",
        metavar="CODE",
        nargs="*",
        help="codes such as E202 or W305; without one, all codes are listed",
    )


def run(arguments: Namespace) -> int:
    """Print the explanations, or the list of all codes.

    Returns:
        The exit code.
    """
    pages = explanations()
    codes = [code.upper() for code in arguments.codes]
    for code in codes:
        if code not in pages:
            raise _unknown(code, pages)
    if arguments.json:
        out_json({code: pages[code] for code in codes or pages})
    elif codes:
        out_text("\n".join(pages[code] for code in codes).rstrip("\n"))
    else:
        for page in pages.values():
            out(page.partition("\n")[0].removeprefix("# "))
    return 0


def explanations() -> dict[str, str]:
    """Return the page of each code, in Markdown, sorted by code."""
    folder = files("flowengine.flow") / "codes"
    pages = {
        page.name.removesuffix(".md"): page.read_text(encoding="utf-8") for page in folder.iterdir()
    }
    return dict(sorted(pages.items()))


def _unknown(code: str, pages: dict[str, str]) -> Exception:
    from flowengine.errors import NotFound
    from flowengine.sdk.near_words import did_you_mean

    hint = did_you_mean(code, pages) or "list all codes: flowengine explain"
    return NotFound(f"there is no error code {code!r}", hint=hint)
