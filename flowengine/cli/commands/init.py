"""Commands for a new project: a first flow, the schema, editor settings."""

from __future__ import annotations

import json
from argparse import Namespace
from importlib.resources import files
from pathlib import Path
from typing import Any

from flowengine.cli.parsing.declared import arg, command
from flowengine.cli.terminal.output import err, out, out_json
from flowengine.errors import UsageError
from flowengine.flow.export.file_schema import case_schema, flow_schema
from flowengine.store_folder import IGNORED

EXAMPLES = {
    "hello": "a greeting: inputs, one step, outputs",
    "agent": "an agent that reads files and needs an approval to write one, with scripted replies",
    "approval": "a refund that needs an approval, with a form and an editable field",
    "words": "a script for each file of a directory, and a sum",
}
BESIDE = {"agent": ["agent.replies.yaml"]}
"""Files that an example needs besides its flow."""
SCHEMA = ".flowengine/flow-1.schema.json"
TESTS = ".flowengine/test-1.schema.json"
EDITOR = {"yaml.schemas": {f"./{SCHEMA}": ["*.flow.yaml"], f"./{TESTS}": ["*.test.yaml"]}}


@command(
    "create a first flow, and the schema and settings for editors",
    """\
flowengine init
flowengine init refunds --example approval
flowengine init writer --example agent""",
    arg(
        "folder DIR",
        "the directory to create them in (default: the current directory)",
        nargs="?",
        default=".",
    ),
    arg(
        "--example NAME",
        "; ".join(f"{name}: {what}" for name, what in EXAMPLES.items()),
        choices=EXAMPLES,
        default="hello",
    ),
)
def init_command(arguments: Namespace) -> None:
    """Create the files, and leave existing ones unchanged.

    Raises:
        UsageError: A file cannot be written.
    """
    folder = Path(arguments.folder)
    name = f"{arguments.example}.yaml"
    templates = files("flowengine.cli") / "templates"
    names = [name, *BESIDE.get(arguments.example, ())]
    wanted = {
        **{each: (templates / each).read_text(encoding="utf-8") for each in names},
        SCHEMA: f"{as_text(flow_schema())}\n",
        TESTS: f"{as_text(case_schema())}\n",
        ".flowengine/.gitignore": IGNORED,
        ".vscode/settings.json": f"{json.dumps(EDITOR, indent=2)}\n",
    }
    made: list[str] = []
    kept: list[str] = []
    for path, text in wanted.items():
        try:
            (made if _write(folder / path, text) else kept).append(str(folder / path))
        except OSError as error:
            raise UsageError(f"cannot write {folder / path}: {error.strerror}") from None
    if arguments.json:
        return out_json({"made": made, "kept": kept})
    for path in made:
        out(f"created  {path}")
    for path in kept:
        out(f"kept     {path}")
    if not arguments.quiet:
        there = "" if arguments.folder == "." else f"cd {arguments.folder} && "
        lines = wanted[name].splitlines()
        command = next(line for line in lines if line.startswith("# flowengine "))
        err(f"next:    {there}{command.removeprefix('# ')}")


def _write(path: Path, text: str) -> bool:
    """Write a file unless it exists, and return whether it was written."""
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    private = path.parent.name == ".flowengine"  # it will contain a store
    path.parent.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def as_text(schema: dict[str, Any]) -> str:
    """Return a schema formatted for reading and version control."""
    return json.dumps(schema, indent=2, ensure_ascii=False)
