"""`run`: a script or command in an environment."""

from __future__ import annotations

from collections.abc import Mapping

from flowengine.sdk import Plain, StepContext, StepKind
from flowengine_nodes.commands import ACCEPT, ENV, OUTPUT, run_command


class Run(StepKind):
    """Runs the author's script, or a command with its arguments."""

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of what stands behind `run`."""
        return {
            "type": "object",
            "x-main": "script",
            "properties": {
                "script": {
                    "type": "string",
                    "description": "Text for the environment's interpreter; it holds no "
                    "expressions, `env` hands values over.",
                    "examples": ["make test"],
                },
                "argv": {
                    "description": "Program and arguments, instead of `script`; no interpreter.",
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
                    "description": "Directory; on `host` relative to the working folder, and by "
                    "default a fresh temporary one.",
                    "examples": ["."],
                },
            },
            "oneOf": [{"required": ["script"]}, {"required": ["argv"]}],
            "additionalProperties": False,
        }

    @classmethod
    def output(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the result."""
        return OUTPUT

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Run it and return `{exit_code, stdout, stderr, value, files}`."""
        return await run_command(context, task, input)
