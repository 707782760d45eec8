"""Modules that may write journals. Types deny it to a `Store`. This test lists the exceptions."""

from __future__ import annotations

import ast
from pathlib import Path

import flowengine

PACKAGE = Path(flowengine.__file__).parent
WRITERS = {"engines/host.py", "engines/leases.py", "engines/running/driver.py"}
"""The host owns the port, which the lease keeper and the driver of executions use."""


def test_only_what_drives_executions_has_the_port_that_writes_journals() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if ".journals" in text or "._journals" in text:
            found |= {
                path.relative_to(PACKAGE).as_posix()
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Attribute) and node.attr in ("journals", "_journals")
            }
    stores = ("journal/", "engines/memory/")
    assert {name for name in found if not name.startswith(stores)} == WRITERS
