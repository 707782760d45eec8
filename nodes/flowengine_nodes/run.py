"""`run`: a script or command in an environment."""

from __future__ import annotations

from flowengine.sdk import Plain, Synonym
from flowengine_nodes.commands import ACCEPT, ENV, CommandKind


class Run(CommandKind):
    """Runs the author's script, or a command with its arguments."""

    places = ("step",)
    constants = ("script", "accept", "files")
    synonyms = (
        Synonym(
            "command cmd bash shell sh code", "write 'script: …', or 'argv: [program, …]'", "script"
        ),
        Synonym("args arguments", "write 'argv: [program, …]'", "argv"),
        Synonym("environment vars", "write 'env: {NAME: value}'", "env"),
        Synonym("working_directory working-directory workdir dir", "write 'cwd: FOLDER'", "cwd"),
    )

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `run`."""
        return {
            "type": "object",
            "x-main": "script",
            "properties": {
                "script": {
                    "type": "string",
                    "description": "Text for the environment's interpreter. It contains "
                    "no expressions. Use `env` to pass values.",
                    "examples": ["make test"],
                },
                "argv": {
                    "description": "Program and arguments, instead of `script`, without "
                    "an interpreter.",
                    "type": "array",
                    "minItems": 1,
                    "examples": [["git", "clone", "${{ inputs.url }}"]],
                },
                "env": ENV,
                "stdin": {
                    "description": "Text, or a value that is passed as JSON.",
                    "examples": ["${{ steps.report.output }}"],
                },
                "files": {
                    "type": "object",
                    "description": "Name → path or glob of files that are kept when it ends.",
                    "additionalProperties": {"type": "string", "minLength": 1},
                    "default": {},
                    "examples": [{"report": "report.csv"}],
                },
                "accept": ACCEPT,
                "cwd": {
                    "type": "string",
                    "description": "Directory. On `host`, relative to the working "
                    "directory, and by default a fresh temporary one.",
                    "examples": ["."],
                },
            },
            "oneOf": [{"required": ["script"]}, {"required": ["argv"]}],
            "additionalProperties": False,
        }
