"""The flows that are measured, written as a user would write them."""

from __future__ import annotations

from pathlib import Path

import flowengine

MODULE = '''\
from flowengine import quick


@quick
def trivial() -> int:
    """Do nothing, in this process."""
    return 1


async def trivial_async() -> int:
    """Do nothing, on the event loop."""
    return 1


@quick
def kilobyte() -> str:
    """Return a kilobyte of text."""
    return "x" * 1000
'''

TOOLS = """\
tools:
  trivial: {python: "bench_tools:trivial", args: {type: object}, effect: pure}
  trivial_async: {python: "bench_tools:trivial_async", args: {type: object}, effect: pure}
  kilobyte: {python: "bench_tools:kilobyte", args: {type: object}, effect: pure}
"""


def _load(folder: Path, name: str, body: str) -> flowengine.LoadedFlow:
    (folder / "bench_tools.py").write_text(MODULE)
    path = folder / f"{name}.yaml"
    path.write_text(f"flowengine: 1\nid: {name}\n{TOOLS}limits: {{steps: 1000000}}\n{body}")
    return flowengine.load(path)


def chain(folder: Path, length: int, tool: str = "trivial") -> flowengine.LoadedFlow:
    """Steps one after the other, each a call of a function that does nothing."""
    steps = "".join(f"  - {{id: s{n}, call: {tool}}}\n" for n in range(length))
    return _load(folder, f"chain_{length}_{tool}", f"steps:\n{steps}")


def chain_in(folder: Path, length: int, kind: str) -> flowengine.LoadedFlow:
    """Steps one after the other that share an environment and do nothing in it."""
    step = '{{id: s{n}, python: "bench_tools:trivial_async", with: {{}}, environments: [one]}}'
    steps = "".join(f"  - {step.format(n=n)}\n" for n in range(length))
    body = f"environments: {{one: {{kind: {kind}}}}}\nsteps:\n{steps}"
    return _load(folder, f"chain_in_{length}", body)


def empty_chain(folder: Path, length: int) -> flowengine.LoadedFlow:
    """Steps one after the other that do nothing at all."""
    steps = "".join(f"  - {{id: s{n}}}\n" for n in range(length))
    return _load(folder, f"empty_{length}", f"steps:\n{steps}")


def loop(folder: Path) -> flowengine.LoadedFlow:
    """One step that runs `inputs.rounds` times."""
    body = """\
inputs: {rounds: {type: integer}}
steps:
  - id: again
    call: trivial
    loop: {until: "${{ round.number >= inputs.rounds }}", max: 1000000}
"""
    return _load(folder, "again", body)


def items(folder: Path) -> flowengine.LoadedFlow:
    """A map over `inputs.items` items."""
    body = """\
inputs: {items: {type: integer}}
steps:
  - id: each
    call: trivial
    map: {over: "${{ inputs.items }}", concurrency: 100}
"""
    return _load(folder, "items", body)


def growing(folder: Path) -> flowengine.LoadedFlow:
    """A list in state that grows by a kilobyte a round."""
    body = """\
inputs: {rounds: {type: integer}}
state: {notes: {type: array, items: {type: string}, default: [], reducer: append}}
steps:
  - id: note
    call: kilobyte
    loop: {until: "${{ round.number >= inputs.rounds }}", max: 1000000}
    set: {notes: "${{ output }}"}
outputs: {count: "${{ size(state.notes) }}"}
"""
    return _load(folder, "growing", body)


def asking(folder: Path) -> flowengine.LoadedFlow:
    """One approval, then an output."""
    body = """\
steps:
  - id: ask
    approval: {title: Go on?, assignees: ["user:ada"]}
outputs: {choice: "${{ steps.ask.output.choice }}"}
"""
    return _load(folder, "asking", body)


def five(folder: Path) -> flowengine.LoadedFlow:
    """Five steps."""
    return chain(folder, 5)
