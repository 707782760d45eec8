"""Show the document review from its start to the report, each command in a separate process.

    make demo

It works in a temporary directory and removes it at the end.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAM = Path(sys.executable).with_name("flowengine")


class Demo:
    """A directory with documents, and a user who types commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ
        }
        self.env |= {"HOME": str(folder), "COLUMNS": "100"}
        shutil.copytree(HERE / "samples", folder / "inbox")
        for file in (*HERE.glob("*.py"), *HERE.glob("*.yaml")):
            shutil.copy(file, folder)

    def say(self, text: str) -> None:
        """Write a line of explanation."""
        print(f"\n# {text}", flush=True)

    def type(self, line: str, expected: int = 0) -> None:
        """Run a command line and show it with all it prints.

        Args:
            line: The command, without the `flowengine` in front.
            expected: Its exit code.

        Raises:
            SystemExit: It ended with another code.
        """
        print(f"$ flowengine {line}", flush=True)
        code = subprocess.run(
            [PROGRAM, *shlex.split(line)],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
        if code:
            print(f"(exit code {code})", flush=True)
        if code != expected:
            raise SystemExit(f"demo: expected exit code {expected}")

    def ask(self, line: str) -> Any:
        """Return what a command prints as JSON, without showing it."""
        done = subprocess.run(
            [PROGRAM, "--json", *shlex.split(line)],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
        )
        return json.loads(done.stdout)


def show(demo: Demo) -> None:
    """Run, list, decide, resume, read the report."""
    demo.say("Ten documents: PDF, DOCX, PPTX, HTML, CSV. Five are sound, and five need a review.")
    demo.type("run review.yaml -i folder=inbox", expected=4)

    demo.say("That process has ended, and the approvals are on disk. A second one lists them:")
    demo.type("approvals list")
    waits = demo.ask("approvals list")
    ids = {wait["title"].split(":")[0]: wait["id"][:4] for wait in waits}
    execution = waits[0]["execution"][:8]

    demo.say("A quote without a date: Ben knows it, fills it in, and approves.")
    demo.type(f"show {ids['travel_quote.html']}")
    comment = "--comment 'They told me on the phone.'"
    edit = "--edit date=2026-11-03"
    demo.type(f"approve {ids['travel_quote.html']} {edit} {comment} --as user:ben", expected=4)

    demo.say("An unreadable scan is rejected, and the rest approved. Both are only recorded.")
    comment = "--comment 'Please send it as text.'"
    demo.type(f"reject {ids['invoice_scan.pdf']} {comment} --no-resume")
    demo.type("approve --all --batch documents --no-resume")

    demo.say("Later, another process resumes the execution and ends it.")
    demo.type(f"resume {execution}")

    demo.say("The report:")
    print((demo.folder / "review.md").read_text(), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="flowengine-demo-") as place:
        show(Demo(Path(place)))
