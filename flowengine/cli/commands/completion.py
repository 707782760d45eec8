"""`flowengine completion`: code for shells that completes command lines."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.terminal.output import out_text

HELP = "print the script that makes a shell complete commands, options and ids"
EXAMPLE = """\
eval "$(flowengine completion bash)"
flowengine completion zsh > ~/.zfunc/_flowengine
flowengine completion fish > ~/.config/fish/completions/flowengine.fish"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="bash, zsh or fish")


def run(arguments: Namespace) -> int:
    """Print the code.

    Returns:
        The exit code.
    """
    from argcomplete.shell_integration import shellcode

    out_text(shellcode(["flowengine"], shell=arguments.shell).strip())
    return 0
