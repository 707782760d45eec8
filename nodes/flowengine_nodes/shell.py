"""`shell`: a command as a tool, with arguments that a caller gives."""

from __future__ import annotations

from flowengine.sdk import Plain
from flowengine_nodes.commands import ACCEPT, ENV, CommandKind


class Shell(CommandKind):
    """Runs a program with arguments; never a text that a shell reads."""

    places = ("tool",)

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of what stands behind `shell`."""
        return {
            "type": "object",
            "x-main": "argv",
            "properties": {
                "argv": {
                    "description": "Program and arguments.",
                    "type": "array",
                    "minItems": 1,
                    "examples": [["wc", "-l", "${{ args.file }}"]],
                },
                "env": ENV,
                "in": {
                    "description": "The environment that it runs in. Default: `defaults.in` or "
                    "`host`.",
                    "anyOf": [
                        {"type": "string"},
                        {"type": "object", "minProperties": 1, "maxProperties": 1},
                    ],
                    "examples": ["box"],
                },
                "accept": ACCEPT,
            },
            "required": ["argv"],
            "additionalProperties": False,
        }
