# Shows E39, S86
"""JavaScript in every sandbox: values, modules, errors, and what ends a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.node import NodeProvider, NodeSandbox
from tests.envs.enough import enough
from tests.envs.opening import open_resource


def test_what_is_returned_is_the_value(node: NodeSandbox) -> None:
    result = node.run("console.log('out'); console.error('err'); return inputs.a + 1", {"a": 1})

    assert (result.value, result.text, result.error, result.exit_code) == (2, "2", None, 0)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert node.run("1").value is None


@pytest.mark.wherever
def test_common_js_and_modules(node: NodeSandbox) -> None:
    node.put("helper.mjs", b"export const value = 5;\n")
    node.put("helper.cjs", b"module.exports = 6;\n")

    common = node.run(
        "const os = require('node:os'); return [typeof os.EOL, require('./helper.cjs')]"
    )
    module = node.run(
        'import fs from "node:fs";\nimport { value } from "./helper.mjs";\n'
        "export default [typeof fs.readFileSync, value, await Promise.resolve(inputs.n)];",
        {"n": 3},
        module=True,
    )
    dynamic = node.run("const { value } = await import('./helper.mjs'); return value")

    assert common.value == ["string", 6]
    assert module.value == ["function", 5, 3]
    assert dynamic.value == 5, dynamic
    assert [entry.path for entry in node.list()] == ["helper.cjs", "helper.mjs"]


@pytest.mark.wherever
@pytest.mark.parametrize("module", [False, True])
@pytest.mark.parametrize(
    ("code", "told", "line"),
    [
        ("\nthrow new TypeError('bad')", "TypeError: bad", 2),
        ("const x = 1;\n\nlet y = ;", "SyntaxError: Unexpected token ';'", 3),
        ("function f() {\n  null.x\n}\nf()", "Cannot read properties of null", 2),
        ("setTimeout(() => {\nthrow new Error('later') }, 1)", "Error: later", 2),
        ("Promise.reject(new RangeError('nobody'))", "RangeError: nobody", 1),
        ("throw 'text'", "Thrown: 'text'", None),
        (
            "throw new Error('a', { cause: new TypeError('b', { cause: 'text' }) })",
            "Error: a (caused by TypeError: b)",
            1,
        ),
        (
            "await Promise.any([1, 2].map((n) => Promise.reject(new Error(n))))",
            "AggregateError: All promises were rejected: Error: 1; Error: 2",
            None,
        ),
        (
            "const e = new Error('a'); e.cause = e; e.errors = [e, 5]; throw e",
            "Error: a: Error: a [Error: a",
            1,
        ),
    ],
)
def test_an_error_has_its_name_message_and_line(
    node: NodeSandbox, code: str, told: str, line: int | None, module: bool
) -> None:
    result = node.run(code, module=module)

    assert told in str(result.error)
    assert result.error is not None
    assert result.error.line == line
    assert result.exit_code == 1
    assert "node:internal" not in result.stderr
    assert "flowengine" not in result.stderr


@pytest.mark.wherever
def test_an_end_of_the_process_is_an_error_result(node: NodeSandbox) -> None:
    exited = node.run("console.log('a'); process.exit(3)")
    seconds = enough(lambda: node.run("console.log('b')"))
    endless = node.run("console.log('b'); while (true) {}", timeout=seconds)
    killed = node.run("process.kill(process.pid, 'SIGKILL')")

    assert (str(exited.error), exited.exit_code) == ("Exited: the code ended the process with 3", 3)
    assert exited.stdout == "a\n"
    assert str(endless.error).startswith("Timeout")
    assert endless.stdout == "b\n"
    assert killed.error is not None
    assert killed.error.type == "Crashed"
    assert node.run("return 1").value == 1


@pytest.mark.wherever
def test_a_node_that_is_missing_or_too_old_is_told(sandbox: type[Sandbox], tmp_path: Path) -> None:
    asked = [
        ({"min_version": "99.1"}, r"is version \d+\.\d+\.\d+, required is 99\.1 or newer"),
        ({"env": {"PATH": "/nowhere"}}, "there is no node in the sandbox, required is 18 or newer"),
    ]
    for config, told in asked:
        with pytest.raises(EnvironmentUnavailable, match=told):
            open_resource(NodeProvider(), sandbox, tmp_path, config=config)
