"""The lines that a shell reads beside its commands, and what those who watch see in their place.

The one that tells how a command ended consists of redirections only: there is no builtin in it
which the command could have replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowengine_envs.inside.terminal.command import Running
from flowengine_envs.inside.terminal.files import TerminalFiles
from flowengine_envs.inside.terminal.shell import TerminalShell
from flowengine_envs.link.terminal_text import clean, masked

_PIPES = 16
"""Programs of a pipeline whose exit codes are told."""
_SHOWN = 150
"""Characters of a command that are shown to those who watch."""
_WAYS = (
    r" \. {}",
    r" \source {}",
    r" \command . {}",
    r" \command source {}",
    r" \builtin . {}",
)
"""Lines with which a shell reads a command from its pipe: a function may stand before a builtin,
and a builtin may be turned off."""


class Lines:
    """Writes them.

    Args:
        files: By which the shell and the supervisor talk.
        shell: Who reads them.
        secrets: What nobody may see.
    """

    def __init__(
        self, files: TerminalFiles, shell: TerminalShell, secrets: Sequence[bytes]
    ) -> None:
        self._files = files
        self._shell = shell
        self._secrets = secrets

    def taking(self, running: Running) -> bytes:
        """Return the line that is typed: with it the shell reads a command from its pipe."""
        return _WAYS[self._shell.way].format(self._files.path(running.id)).encode()

    def next_way(self) -> bool:
        """Take another line for that; returns whether there is one more."""
        self._shell.way = (self._shell.way + 1) % len(_WAYS)
        return self._shell.way > 0

    def telling(self, running: Running) -> bytes:
        """Return the line that tells how the command before it ended, and has the same status.

        Its descriptor is none that is written to: bash, interrupted here, does not take it back.
        """
        gate = self._files.make_gate(running.id)
        codes = ""
        if not self._shell.plain:
            codes = "".join(f"${{PIPESTATUS[{at}]-}}." for at in range(_PIPES))
        mark = f"{self._files.path(running.id)}.$?.{codes}"
        return f' 9>"{mark}" 9>"{gate}" 9>"/dev/null$(exit $?)"\n'.encode()

    def shown(self, running: Running) -> bytes:
        """Return what puts the command in the place of the line that was typed."""
        text = clean(masked(running.task.text, self._secrets)).strip()
        line = "".join(each for each in text.partition("\n")[0] if each.isprintable())
        up = b"\x1b[%dA" % running.lines if running.lines else b""
        return up + b"\r\x1b[J$ " + line[:_SHOWN].encode() + b"\n"
