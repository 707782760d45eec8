"""`flowengine envs look`: what an open browser or terminal shows at the moment."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import first_line, out, out_json
from flowengine.cli.views.environments import NAME
from flowengine.sdk.visible_text import printable

if TYPE_CHECKING:
    from flowengine.engines.infos import ScreenInfo

HELP = "look into an environment: what its browser or terminal shows at the moment"
EXAMPLE = """\
flowengine envs look box
flowengine envs look browser --picture page.png"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("environment", metavar="NAME", help=NAME)
    parser.add_argument(
        "--picture",
        metavar="FILE",
        type=Path,
        help="write the picture of a browser's window to this file, as PNG",
    )


def run(arguments: Namespace) -> int:
    """Ask the process that has it open, and print the answer.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        screen = session.engine.look_into_environment(arguments.environment)
    file: Path | None = arguments.picture
    if file is not None:
        _write(file, screen)
    if arguments.json:
        out_json(screen)
    else:
        for line in _lines(screen, file):
            out(line)
    return 0


def _write(file: Path, screen: ScreenInfo) -> None:
    """Write the picture to a file.

    Raises:
        UsageError: There is no picture, or the file cannot be written.
    """
    from base64 import b64decode

    from flowengine.errors import UsageError

    if "picture" not in screen["screen"]:
        raise UsageError(f"{screen['environment']} has no picture", hint="leave out --picture")
    try:
        file.write_bytes(b64decode(screen["screen"]["picture"]))
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def _lines(found: ScreenInfo, file: Path | None) -> Iterator[str]:
    screen = found["screen"]
    for name in ("address", "title"):
        if name in screen:
            yield f"{name:8} {first_line(screen[name], 500)}"
    if "picture" in screen:
        size = len(screen["picture"]) * 3 // 4 // 1024 + 1
        where = printable(str(file)) if file is not None else "with --picture FILE"
        yield f"picture  {size} KiB, {where}"
    yield from (printable(line) for line in screen.get("text", "").splitlines())
