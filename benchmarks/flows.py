"""The flows that are measured, written as a user would write them.

A step gets and returns a record of about 1 KB with fields, texts, numbers and lists in it, as a
message of a conversation or a row with its details has. Flows named `trivial` pass a number.
"""

from __future__ import annotations

from pathlib import Path

import flowengine

MODULE = '''\
import base64
import random

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
    """Return a kilobyte of text that hardly compresses."""
    return base64.b64encode(random.randbytes(750)).decode()


@quick
def record() -> dict:
    """Return a record of 1 KB."""
    return {
        "id": random.getrandbits(40),
        "role": "assistant",
        "text": base64.b64encode(random.randbytes(450)).decode(),
        "tags": ["draft", "reviewed", "long"],
        "usage": {"model": "m-1", "input": 812, "output": 96, "cost": 0.0425, "cached": None},
        "parts": [
            {"kind": "paragraph", "at": at, "final": at == 3, "body": f"{random.random():.16f}"}
            for at in range(5)
        ],
    }


@quick
def answer(messages: list) -> dict:
    """Return one more message."""
    return record()


@quick
def change(value: dict) -> dict:
    """Return a record of 1 KB made from another."""
    return {**value, "id": value["id"] + 1, "text": value["text"][::-1]}


def change_on_thread(value: dict) -> dict:
    """Return a record of 1 KB made from another, on a thread."""
    return change(value)
'''

TOOLS = """\
tools:
  trivial: {python: "bench_tools:trivial", args: {type: object}, effect: pure}
  trivial_async: {python: "bench_tools:trivial_async", args: {type: object}, effect: pure}
  kilobyte: {python: "bench_tools:kilobyte", args: {type: object}, effect: pure}
  record: {python: "bench_tools:record", args: {type: object}, effect: pure}
  answer: {python: "bench_tools:answer", args: {type: object}, effect: pure}
  change: {python: "bench_tools:change", args: {type: object}, effect: pure}
  act: {python: "bench_tools:change", args: {type: object}, effect: idempotent}
  act_on_thread:
    {python: "bench_tools:change_on_thread", args: {type: object}, effect: idempotent}
  make: {python: "bench_tools:record", args: {type: object}, effect: idempotent}
"""


def _load(folder: Path, name: str, body: str) -> flowengine.LoadedFlow:
    (folder / "bench_tools.py").write_text(MODULE)
    path = folder / f"{name}.yaml"
    path.write_text(f"flowengine: 1\nid: {name}\n{TOOLS}limits: {{steps: 1000000}}\n{body}")
    return flowengine.load(path)


def chain(folder: Path, length: int, tool: str = "change") -> flowengine.LoadedFlow:
    """Steps one after the other, each of which changes the record that the one before returned.

    Args:
        folder: Where the file goes.
        length: How many steps.
        tool: `change` is pure; what `act` gives is on disk before the next step runs.
    """
    change = (
        "  - {{id: s{n}, call: {tool}, with: {{value: '${{{{ steps.s{before}.output }}}}'}}}}\n"
    )
    steps = "".join(change.format(n=n, before=n - 1, tool=tool) for n in range(1, length))
    return _load(folder, f"chain_{tool}_{length}", f"steps:\n  - {{id: s0, call: record}}\n{steps}")


def trivial_chain(folder: Path, length: int, tool: str = "trivial") -> flowengine.LoadedFlow:
    """Steps one after the other, each a call of a function that does nothing."""
    steps = "".join(f"  - {{id: s{n}, call: {tool}}}\n" for n in range(length))
    return _load(folder, f"{tool}_{length}", f"steps:\n{steps}")


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


def loop(folder: Path, tool: str = "change") -> flowengine.LoadedFlow:
    """One step that changes a record in state `inputs.rounds` times."""
    body = f"""\
inputs: {{rounds: {{type: integer}}}}
state: {{last: {{type: object, default: {{}}}}}}
steps:
  - {{id: first, call: record, set: {{last: "${{{{ output }}}}"}}}}
  - id: again
    call: {tool}
    with: {{value: "${{{{ state.last }}}}"}}
    set: {{last: "${{{{ output }}}}"}}
    loop: {{until: "${{{{ round.number >= inputs.rounds }}}}", max: 1000000}}
"""
    return _load(folder, f"again_{tool}", body)


def items(folder: Path, tool: str = "record") -> flowengine.LoadedFlow:
    """A map over `inputs.items` items, each of which returns a record."""
    body = f"""\
inputs: {{items: {{type: integer}}}}
steps:
  - id: each
    call: {tool}
    map: {{over: "${{{{ inputs.items }}}}", concurrency: 100}}
"""
    return _load(folder, f"items_{tool}", body)


def growing(folder: Path, tool: str = "kilobyte") -> flowengine.LoadedFlow:
    """A list in state that grows by a kilobyte a round."""
    body = f"""\
inputs: {{rounds: {{type: integer}}}}
state: {{notes: {{type: array, default: [], reducer: append}}}}
steps:
  - id: note
    call: {tool}
    loop: {{until: "${{{{ round.number >= inputs.rounds }}}}", max: 1000000}}
    set: {{notes: "${{{{ output }}}}"}}
outputs: {{count: "${{{{ size(state.notes) }}}}"}}
"""
    return _load(folder, f"growing_{tool}", body)


def open_map(folder: Path, length: int) -> flowengine.LoadedFlow:
    """A map of two steps for each item, of which one item waits: all results are still needed."""
    body = f"""\
steps:
  - id: each
    map: {length}
    group:
      - {{id: make, call: make}}
      - {{id: keep, output: "${{{{ item }}}}"}}
      - {{id: sign, when: "${{{{ item == 5 }}}}", approval: {{title: "Good so far?"}}}}
"""
    return _load(folder, f"open_map_{length}", body)


def asking(folder: Path) -> flowengine.LoadedFlow:
    """One approval, then an output."""
    body = """\
steps:
  - id: ask
    approval: {title: Go on?, assignees: ["user:ada"]}
outputs: {choice: "${{ steps.ask.output.choice }}"}
"""
    return _load(folder, "asking", body)


def turns(folder: Path) -> flowengine.LoadedFlow:
    """A conversation: in each round a function is given all messages and returns one more."""
    body = """\
inputs: {messages: {type: array}, rounds: {type: integer}}
state: {messages: {type: array, default: [], reducer: append}}
steps:
  - {id: begin, set: {messages: "${{ inputs.messages }}"}}
  - id: turn
    call: answer
    with: {messages: "${{ state.messages }}"}
    set: {messages: "${{ output }}"}
    loop: {until: "${{ round.number >= inputs.rounds }}", max: 1000000}
"""
    return _load(folder, "turns", body)


def five(folder: Path, tool: str = "change") -> flowengine.LoadedFlow:
    """Five steps."""
    return chain(folder, 5, tool)
