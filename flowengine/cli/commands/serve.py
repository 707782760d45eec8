"""`flowengine serve`: a page and an HTTP API over the store, until stopped."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err
from flowengine.errors import UsageError

if TYPE_CHECKING:
    from flowengine.server.running import Ready

HELP = "serve a page and an HTTP API over the store until stopped"
EXAMPLE = """\
flowengine deploy expense.yaml refund.yaml && flowengine serve
flowengine serve --host 0.0.0.0 --proxy 10.0.0.2 --public flows.example.com
flowengine serve --port 0"""
PORT = 8383
RATE = 3000


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1). Any but this machine's own needs TLS or "
        "--proxy",
    )
    parser.add_argument(
        "--port", metavar="N", type=int, default=PORT, help=f"default: {PORT}; 0: any free one"
    )
    parser.add_argument("--tls-certificate", metavar="FILE", help="certificate chain (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="private key of the certificate (PEM)")
    parser.add_argument(
        "--proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="IP address of a proxy in front, whose X-Forwarded-For is believed (may be repeated)",
    )
    parser.add_argument(
        "--public",
        metavar="NAME",
        action="append",
        default=[],
        help="further name under which users reach it, with the port unless it is the scheme's own "
        "(may be repeated)",
    )
    parser.add_argument(
        "--rate",
        metavar="N",
        type=int,
        default=RATE,
        help=f"requests of each token in a minute (default: {RATE}). Further ones get 429",
    )
    parser.add_argument(
        "--temporal-page",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="page of Temporal that may have payloads decoded: https://temporal.example.com (may "
        "be repeated)",
    )


def run(arguments: Namespace) -> int:
    """Serve until SIGTERM or SIGINT.

    Returns:
        The exit code.

    Raises:
        UsageError: The packages of the extra `serve` are missing.
    """
    try:
        from flowengine.page.site import Site
        from flowengine.server.ag_ui.http import ag_ui_routes
        from flowengine.server.mcp.http import mcp_routes
        from flowengine.server.openai_chat import openai_routes
        from flowengine.server.running import Serving, check, serve
        from flowengine.server.tool_socket import tool_routes
    except ModuleNotFoundError as error:
        raise UsageError(
            f"'flowengine serve' needs the package {error.name}",
            hint="pip install 'flowengine[serve]'",
        ) from None

    def ready(served: Ready) -> None:
        if not arguments.quiet:
            err(f"serving {session.place} at {served.url}")
            err(f"your token is in {served.token_file}")

    serving = Serving(
        arguments.host,
        arguments.port,
        arguments.tls_certificate,
        arguments.tls_key,
        tuple(arguments.proxy),
        tuple(arguments.public),
        per_minute=arguments.rate,
        pages=tuple(page.lower().rstrip("/") for page in arguments.temporal_page),
    )
    if arguments.rate < 1:
        raise UsageError("--rate is at least 1")
    check(serving)
    with CliSession(arguments) as session:
        serve(
            session.engine,
            serving,
            ready,
            lambda served: [
                *Site(served).routes(),
                *mcp_routes(served),
                *ag_ui_routes(served),
                *openai_routes(served),
                *tool_routes(served),
            ],
        )
    return 0
