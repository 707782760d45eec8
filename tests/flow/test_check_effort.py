# Shows F24
"""Cost of a check: bounded for any file, and proportional to the file where possible."""

from __future__ import annotations

import cProfile
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_text

HEAD = "flowengine: 1\nid: big\nsteps:\n"
MEMORY = 1 << 30
"""Bytes of address space: the interpreter with its libraries, and a reserve."""
SECONDS = 60
"""CPU seconds, to guard against a hang."""
BOUNDED = """
import resource, sys
from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_file
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
for path in sys.argv[1:]:
    try:
        found = compile_file(path).diagnostics
    except FlowFileError as error:
        found = error.diagnostics
    for one in found:
        print(path, one.code, one.message)
"""


def tangle(size: int, groups: int = 0) -> str:
    """Return counting joins that lead to one another at random."""
    chance = random.Random(0)

    def steps(prefix: str, indent: str) -> str:
        lines = []
        for number in range(size):
            one, two = (f"{prefix}{target}" for target in chance.sample(range(size), 2))
            step = f"id: {prefix}{number}, join: 2, output: 1, next: {{all: [{one}, {two}]}}"
            lines.append(f"{indent}- {{{step}}}\n")
        return "".join(lines)

    if not groups:
        return HEAD + steps("s", "  ")
    return HEAD + "".join(
        f"  - id: g{group}\n    group:\n{steps(f'g{group}s', '      ')}" for group in range(groups)
    )


def chain(joins: int) -> str:
    """Return a sequence of counting joins, of two tokens each."""
    lines = ["  - {id: a, output: 1, next: {all: [b0, c0]}}\n"]
    for number in range(joins):
        after = number + 1
        to = f"{{all: [b{after}, c{after}]}}" if after < joins else "end"
        lines += [
            f"  - {{id: b{number}, output: 1, next: j{number}}}\n",
            f"  - {{id: c{number}, output: 1, next: j{number}}}\n",
            f"  - {{id: j{number}, join: 2, output: 1, next: {to}}}\n",
        ]
    return HEAD + "".join(lines)


def work(text: str) -> int:
    """Return the number of function calls during a check."""
    profile = cProfile.Profile()
    profile.runcall(compile_text, text)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.endurance
def test_a_tangle_is_given_up_in_bounded_memory_and_time(tmp_path: Path) -> None:
    """One file with a single scope, and one with many that share the limit on effort."""
    files = [tmp_path / "one.yaml", tmp_path / "many.yaml"]
    files[0].write_text(tangle(300))
    files[1].write_text(tangle(60, groups=12))
    code = BOUNDED.format(memory=MEMORY, seconds=SECONDS)

    done = subprocess.run(
        [sys.executable, "-c", code, *files], capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    for file in files:
        told = f"{file} E202 this scope has too many parallel paths to be checked"
        assert told in done.stdout


@pytest.mark.endurance
def test_counting_joins_cost_in_proportion_to_their_number() -> None:
    compile_text(chain(10))  # excludes work done only once
    small, large = work(chain(60)), work(chain(240))

    assert large < small * 5.5


def lines(form: str, count: int) -> str:
    """Return a form for each number below a count."""
    return "".join(form.replace("#", str(number)) for number in range(count))


def aliases(levels: int, each: int, value: str) -> str:
    """Return lists of aliases of the list before."""
    before = f"x-0: &a0 [{', '.join([value] * each)}]\n"
    return before + "".join(
        f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * each)}]\n" for n in range(1, levels)
    )


ONE = "flowengine: 1\nid: big\nsteps: [{id: a, output: 1}]\n"
SPLIT = "  - {id: s#, output: 1, join: 2, next: {all: [<to>]}}\n"
HOSTILE = {
    "aliases": aliases(16, 2, "x") + HEAD + "  - {id: a, output: *a15}\n",
    "aliases of expressions": aliases(4, 10, "'${{ nope }}'") + HEAD + "  - {id: a, output: *a3}\n",
    "aliases of flows": "x-f: &f {steps: ["
    + lines("{id: a#, output: 1}, ", 40)
    + "]}\nflows: {"
    + lines("f#: *f, ", 850)
    + "}\n"
    + ONE,
    "unknown aliases": "x: ["
    + lines("&anchor# a, ", 320)
    + lines("*anchro#x, ", 420)
    + "]\n"
    + ONE,
    "unknown names": ONE.replace("a,", "a, next: {all: [" + lines("stp#x, ", 600) + "]},")[:-2]
    + lines(", {id: step#, output: 1}", 180)
    + "]\n",
    "unknown keys": ONE + lines("outptu#: 1\n", 800),
    "long names": "inputs: {"
    + "ab" * 2500
    + ": {}}\n"
    + HEAD
    + "  - {id: a, output: '${{ inputs."
    + "ba" * 2400
    + " }}'}\n",
    "edges": HEAD + lines(SPLIT.replace("<to>", lines("s#, ", 40)), 42),
    "splits": HEAD + lines(SPLIT.replace("<to>", "s1, s7, s20"), 150),
    "one split": HEAD + "  - {id: a, output: 1, next: {all: [" + "b, " * 3300 + "]}}\n",
    "triggers": "signals: {s: {}}\n"
    + HEAD
    + lines("  - {id: a#, trigger: s, output: 1, next: z}\n", 200)
    + "  - {id: z, join: 3, output: 1}\n",
    "steps without a form": HEAD.strip() + " [" + "a, " * 3300 + "]\n",
    "null steps": HEAD.strip() + " [" + "null, " * 1600 + "]\n",
    "brackets": "[" * 10_000,
    "keys": "? " * 5_000,
    "slips": lines("a#: b: c\n", 900),
    "tabs": "a:\n" + "\t- a\n" * 2000,
    "odd plain text": "[?a, " * 2000,
}


@pytest.mark.endurance
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_check_of_ten_kilobytes_takes_about_a_second(text: str) -> None:
    assert len(text) < 11_000
    begun = time.process_time()
    with pytest.raises(FlowFileError):
        compile_text(text)
    assert time.process_time() - begun < 3


def test_a_counting_join_that_could_not_be_played_out_is_told_of() -> None:
    width = 60
    many = ", ".join(f"b{number}" for number in range(width))
    ways = "".join(
        f"  - {{id: b{number}, output: 1, next: {{first: "
        f"[{{when: '${{{{ inputs.n > {number} }}}}', to: {'j' if number < 40 else 'k'}}}, "
        "{else: end}]}}\n"
        for number in range(width)
    )
    text = (
        "flowengine: 1\nid: wide\ninputs: {n: {type: integer}}\nsteps:\n"
        f"  - {{id: a, output: 1, next: {{all: [{many}]}}}}\n{ways}"
        "  - {id: j, join: 30, output: 1, next: end}\n"
        "  - {id: k, join: {need: 2}, output: 1, on_error: [{type: TooFew, output: 0}]}\n"
    )

    try:
        found = compile_text(text).diagnostics
    except FlowFileError as error:
        found = error.diagnostics

    told = [(one.code, one.message) for one in found]
    assert told == [
        (
            "W209",
            "whether 'j' gets the 30 branches that it needs is not known: the scope is too "
            "large to explore fully",
        )
    ]


def test_recursion_is_bounded() -> None:
    text = "flowengine: 1\nid: f\nlimits: {depth: 100000}\nsteps: [{id: a, output: 1}]\n"
    with pytest.raises(FlowFileError, match="at most 100"):
        compile_text(text)
