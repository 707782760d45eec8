"""Line counters: `wc` in a sandbox."""

from __future__ import annotations

from flowengine.sdk import Command, Plain, StepContext, ToolError
from flowengine.sdk.environments import both_forms
from flowengine_envs.programs import StepFiles, Supervised, SupervisedProvider


class Counter(Supervised):
    """Counts the lines of files in a workspace."""

    async def _lines(self, path: str) -> int:
        """Return the number of lines of a file."""
        result = await self.program(["wc", "--lines", "--", path])
        if result.exit_code != 0:
            raise ToolError(f"{self.name}: {result.stderr.strip()}")
        return int(result.stdout.split()[0])

    lines, async_lines = both_forms(_lines)


class Counters(SupervisedProvider[Counter]):
    """Opens line counters."""

    kind = "counter"

    async def run(
        self, resource: Counter, context: StepContext, command: Command
    ) -> dict[str, Plain]:
        files = StepFiles(resource, context)
        paths = [await files.argument(word) for word in command.argv or ()]
        counts: dict[str, Plain] = {path: await resource.async_lines(path) for path in paths}
        kept = await files.keep(command, ".", failed=False)
        return {"exit_code": 0, "stdout": "", "stderr": "", "value": counts, "files": kept}
