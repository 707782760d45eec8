from __future__ import annotations

import ast
import gc
import hashlib
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flowengine.kernel.graph.compiled import SecretText
from flowengine.sdk.python.imported_modules import import_function, parse

from .conftest import Bench

Write = Callable[..., str]


def call(folder: str, function: str, **more: Any) -> dict[str, Any]:
    return {"function": function, "folder": folder, **more}


def test_only_what_is_marked_as_quick_runs_on_the_engines_thread(
    bench: Bench, module: Write
) -> None:
    folder = module(
        m="import threading\nfrom flowengine.sdk import quick\n"
        "def slow(): return threading.get_ident()\n"
        "@quick\ndef fast(): return threading.get_ident()\n"
        "async def later(): return threading.get_ident()\n"
    )
    here = threading.get_ident()

    def ran_at(name: str) -> Any:
        return bench.do("python", call(folder, f"m:{name}"), {"args": {}})

    assert ran_at("fast") == here
    assert ran_at("later") == here
    assert ran_at("slow") != here


def test_module_of_a_step_known_not_to_be_quick_is_not_imported_on_the_engines_thread(
    bench: Bench, module: Write
) -> None:
    folder = module(m="import threading\nWHERE = threading.get_ident()\ndef f(): return WHERE\n")

    assert bench.do("python", call(folder, "m:f", quick=False), {"args": {}}) != (
        threading.get_ident()
    )


def test_modules_of_one_name_beside_two_flows_do_not_mix(bench: Bench, module: Write) -> None:
    source = "import helper\ndef f():\n    import late\n    return [helper.NAME, late.NAME]\n"
    one = module("one", tools=source, helper="NAME = 1\n", late="NAME = 10\n")
    two = module("two", tools=source, helper="NAME = 2\n", late="NAME = 20\n")
    path = list(sys.path)

    def run(folder: str) -> Any:
        return bench.do("python", call(folder, "tools:f"), {"args": {}})

    assert [run(one), run(two), run(one)] == [[1, 10], [2, 20], [1, 10]]
    assert sys.path == path
    assert not {"tools", "helper", "late"} & sys.modules.keys()


def test_folder_of_data_does_not_hide_an_installed_package(bench: Bench, module: Write) -> None:
    folder = module("json", data="")
    flows = folder.rpartition("/")[0]

    assert bench.do("python", call(flows, "json:dumps"), {"args": {"obj": [1]}}) == "[1]"


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        ("object()", "a value of type builtins.object cannot be kept"),
        ("[...]", "result[0]: a value of type builtins.ellipsis cannot be kept"),
        ("__import__('unittest.mock').mock.Mock()", "of type unittest.mock.Mock cannot be kept"),
        ("{1: 2}", "the key 1 of a map is int, not text"),
        ("float('nan')", "nan is not a number in JSON"),
        ("2 ** 70", "more than 64 bits"),
        ("'\\ud800'", "not Unicode text"),
        ("{'a': [1, {'b': object()}]}", "result.a[1].b: a value of type builtins.object"),
        ("loop", "nested more than 200 levels deep"),
    ],
)
def test_what_cannot_be_kept_is_an_error_that_says_so(
    bench: Bench, module: Write, result: str, complaint: str
) -> None:
    folder = module(m=f"loop = []\nloop.append(loop)\ndef f(): return {result}\n")

    error = bench.fail("python", call(folder, "m:f"), {"args": {}})

    assert error["type"] == "ValidationError"
    assert complaint in error["message"]


def test_arguments_and_result_are_checked_by_their_schemas(bench: Bench, module: Write) -> None:
    folder = module(m="def f(n): return n\n")
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "additionalProperties": False,
    }
    task = call(folder, "m:f", schema=schema, returns={"type": "integer", "maximum": 5})

    assert bench.do("python", task, {"args": {"n": 1}}) == 1
    wrong = bench.fail("python", task, {"args": {"n": "x"}})
    large = bench.fail("python", task, {"args": {"n": 9}})

    assert wrong["type"] == large["type"] == "ValidationError"
    assert wrong["message"] == "arguments: 'n' must be a whole number, not \"x\""
    assert wrong["data"] == {"field": "n"}
    assert large["message"].startswith("the result")


def test_exception_becomes_an_error_with_its_type_places_and_cause(
    bench: Bench, module: Write
) -> None:
    folder = module(
        bank="""
class Broke(Exception):
    retryable = True
    retry_after = 1.5
def pay():
    try:
        {}["x"]
    except KeyError as error:
        raise Broke("no money") from error
"""
    )

    error = bench.fail("python", call(folder, "bank:pay"), {"args": {}})

    assert error["type"] == "bank.Broke"
    assert error["message"] == "no money"
    assert error["retryable"] is True
    assert error["retry_after"] == 1500
    assert "in pay: raise Broke" in error["data"]["traceback"][-1]
    cause = error["cause"]
    assert cause is not None
    assert cause["type"] == "KeyError"


@pytest.mark.parametrize(
    ("statement", "type"),
    [
        ("import sys; sys.exit(3)", "SystemExit"),
        ("import asyncio; raise asyncio.CancelledError", "asyncio.exceptions.CancelledError"),
        ("raise Panic('no')", "m.Panic"),
        ("raise GeneratorExit", "GeneratorExit"),
    ],
)
def test_function_cannot_end_the_engine(
    bench: Bench, module: Write, statement: str, type: str
) -> None:
    source = (
        "from flowengine.sdk import quick\n"
        "class Panic(BaseException): pass\n"
        f"async def later():\n    {statement}\n"
        f"def f():\n    {statement}\n"
        f"@quick\ndef fast():\n    {statement}\n"
    )
    folder = module(m=source, bad=f"class Panic(BaseException): pass\n{statement}\ndef f(): ...\n")

    for function in ("m:later", "m:f", "m:fast"):
        assert bench.fail("python", call(folder, function), {"args": {}})["type"] == type
    imported = bench.fail("python", call(folder, "bad:f"), {"args": {}})
    assert imported["type"].rpartition(".")[2] == type.rpartition(".")[2]


def test_a_function_on_a_thread_cannot_press_ctrl_c(bench: Bench, module: Write) -> None:
    folder = module(m="def f():\n    raise KeyboardInterrupt\n")

    error = bench.fail("python", call(folder, "m:f"), {"args": {}})

    assert error["type"] == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nope:f", "nope:f: there is no module 'nope'"),
        ("m:g", "m:g: module 'm' has no function 'g'"),
        ("broken:f", "No module named 'not_there'"),
    ],
)
def test_missing_module_or_function_is_an_error_of_the_step(
    bench: Bench, module: Write, function: str, message: str
) -> None:
    folder = module(m="def f(): ...\n", broken="import not_there\n")

    assert bench.fail("python", call(folder, function), {"args": {}})["message"] == message


def test_function_may_take_the_context_and_the_resources(bench: Bench, module: Write) -> None:
    folder = module(
        m="""
from __future__ import annotations
from flowengine.sdk import StepContext, quick
def slow(n, context: StepContext, runtime_resources):
    context.say(f"{n} at {context.address}")
    return [context.attempt, context.idempotency_key, dict(runtime_resources)]
@quick
def fast(at: StepContext):
    return at.idempotency_key
"""
    )
    attempt, own, resources = bench.do("python", call(folder, "m:slow"), {"args": {"n": 1}})

    assert (attempt, resources) == (1, {})
    assert own == hashlib.sha256(b'["01k8identity","place/s"]').hexdigest()
    assert bench.do("python", call(folder, "m:fast"), {"args": {}}) == own
    assert bench.do("python", call(folder, "m:fast"), {"args": {}}, key="k") == "k"
    assert bench.said == ["place/s: 1 at place/s"]


def test_bound_secret_reaches_the_function_and_nothing_else(
    bench: Bench, module: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "s3cr3t-value")
    folder = module(
        m="def f(who, key): return {who: key}\n"
        "def g(who, key): raise ValueError(f'{who} has {key}')\n"
    )
    given = {"args": {"who": "ada"}, "bind": {"key": SecretText([["KEY"]])}}
    secrets = {"KEY": {"env": "KEY"}}

    assert bench.do("python", call(folder, "m:f"), given, secrets=secrets) == {"ada": "***"}
    error = bench.fail("python", call(folder, "m:g"), given, secrets=secrets)
    missing = bench.fail("python", call(folder, "m:f"), given, secrets={"KEY": {"env": "NOPE"}})

    assert error["message"] == "ada has ***"
    assert "s3cr3t" not in str(error)
    assert missing["type"] == "SecretMissing"


def test_a_module_that_another_thread_imports_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.2)\nact = lambda: 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda _: import_function("slow_to_import:act", "/")(), range(8))
        assert [*found] == [1] * 8


def test_source_is_read_while_a_finalizer_that_reads_source_is_due() -> None:
    """Python 3.11 prints an error of a finalizer with the help of its own parser."""

    class Ends:
        def __del__(self) -> None:
            ast.parse("a = 1")

    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        gc.collect()  # the next search is due after 50 new objects
        garbage: Any = Ends()
        garbage.itself = garbage
        del garbage
        assert parse("a = [1, {2: 3}]\n" * 200).body
    finally:
        gc.set_threshold(*before)
