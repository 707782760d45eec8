"""`flowengine schema`: the JSON Schema of flow files."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from typing import Any

from flowengine.cli.terminal.output import print_or_write
from flowengine.errors import UsageError

HELP = "print the JSON Schema of flow files or of their test cases, for editors"
EXAMPLE = """\
flowengine schema -o flow-1.schema.json
flowengine schema --tests -o test-1.schema.json
flowengine schema --for expense.yaml -o .flowengine/expense.schema.json"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tests", action="store_true", help="the schema of test case files")
    which.add_argument(
        "--for",
        dest="file",
        metavar="FILE",
        help="include the file's own steps, tools and signals as completions",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file")


def run(arguments: Namespace) -> int:
    """Print the schema, or write it.

    Returns:
        The exit code.
    """
    text = as_text(_schema(arguments))
    return print_or_write(f"{text}\n", arguments.output, quiet=arguments.quiet)


def _schema(arguments: Namespace) -> dict[str, Any]:
    from flowengine.flow.export.file_schema import case_schema, flow_schema

    if arguments.tests:
        return case_schema()
    return flow_schema() if arguments.file is None else _schema_for(arguments.file)


def as_text(schema: dict[str, Any]) -> str:
    """Return a schema formatted for reading and version control."""
    return json.dumps(schema, indent=2, ensure_ascii=False)


def _schema_for(path: str) -> dict[str, Any]:
    """Return the schema with the names declared in one file, which may have errors.

    Raises:
        UsageError: It cannot be read as a flow file.
    """
    from flowengine.flow.export.file_schema import schema_for
    from flowengine.flow.loading.files import FlowFiles
    from flowengine.flow.source.diagnostics import Diagnostics
    from flowengine.flow.source.yaml_source import read

    folder = os.path.dirname(os.path.abspath(path))
    file = FlowFiles(Diagnostics()).first(read(path), folder, path)
    if file is None:
        raise UsageError(f"{path} is not a flow file", hint=f"flowengine check {path}")
    others = {alias: value.model for alias, value in file.imports.items() if value is not None}
    return schema_for(file.model, others)
