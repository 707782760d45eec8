# Shows E29, S13, S17, S25, S31, S86
"""Python code in every sandbox: results, state between calls, and termination."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from flowengine.sdk import EnvironmentClosed, EnvironmentLost, ValidationError
from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.python import Python, PythonSandbox
from tests.envs.enough import enough
from tests.envs.opening import channel_of, open_resource, opened, processes_of, release
from tests.execution_environment.toy import until
from tests.rows import each_row

# Results


def test_output_errors_and_result_come_back(python: PythonSandbox) -> None:
    result = python.run('print("a"); import sys; print("b", file=sys.stderr); _result = 3')

    assert (result.stdout, result.stderr, result.text, result.value) == ("a\n", "b\n", "3", 3)
    assert (result.error, result.exit_code) == (None, 0)
    assert python.run("x = 1").text == ""


@pytest.mark.wherever
# Shows S23
def test_names_are_of_one_handle(
    python: PythonSandbox, sandbox: type[Sandbox], tmp_path: Path
) -> None:
    python.run("mine = 41")

    with opened(Python(), sandbox, tmp_path) as other:
        assert str(other.run("mine").error) == "NameError: name 'mine' is not defined"
        keys = {channel_of(each)._sealer._key for each in (other, python)}
        assert len(keys) == 2
    assert python.run("mine").value == 41


@pytest.mark.wherever
def test_inputs_arrive_as_data(python: PythonSandbox) -> None:
    given = {"n": 2, "text": "'); boom", "bytes": b"\x00\xff", "$x": [None, {"$bytes": 1}]}

    assert python.run("inputs", given).value == given
    assert python.run("inputs").value == {}


@pytest.mark.wherever
def test_what_is_no_plain_data_comes_as_text(python: PythonSandbox) -> None:
    for code, text in [
        ("object", "<class 'object'>"),
        ("{1: 2}", "{1: 2}"),
        ("float('nan')", "nan"),
    ]:
        assert python.run(code).text == text
    assert python.run("{1: 2}").value is None
    awkward = "class A:\n  def __repr__(self): raise ValueError\nA()"
    assert python.run(awkward).text == "<A whose repr fails with ValueError>"
    large = python.run("'x' * 3_000_000")
    assert large.value is None
    assert "characters left out" in large.text


@pytest.mark.wherever
def test_await_may_stand_outside_of_functions(python: PythonSandbox) -> None:
    python.run("import asyncio\nq = asyncio.Queue()\nawait q.put(7)")

    assert python.run("await q.get()").value == 7


@pytest.mark.wherever
def test_an_error_is_a_result_with_its_own_lines_only(python: PythonSandbox) -> None:
    result = python.run("def f(n):\n    return 1 / n\n\nf(0)")

    assert str(result.error) == "ZeroDivisionError: division by zero"
    assert result.error is not None
    assert result.error.line == 4
    assert "return 1 / n" in result.stderr
    assert "flowengine" not in result.stderr
    assert "inside" not in result.stderr


@pytest.mark.wherever
def test_an_error_keeps_its_reasons(python: PythonSandbox) -> None:
    for code, reason in (
        ("raise ValueError('a\\nb')", "ValueError: a\nb"),
        ("def f(:", "SyntaxError: invalid syntax"),
        (
            "e = ValueError('a'); e.__notes__ = ['of order 7']; raise e",
            "ValueError: a (of order 7)",
        ),
        (
            "class G(Exception): exceptions = (ValueError('a'), KeyError('b'))\nraise G('c')",
            "G: c: ValueError: a; KeyError: 'b'",
        ),
    ):
        assert str(python.run(code).error) == reason


@pytest.mark.wherever
@pytest.mark.parametrize("code", ["def f(:", "x = 1\ny = = 2", "a\0b", "\ud800", "  x = 1"])
# Shows S88
def test_code_that_is_none_is_an_error_with_its_line(python: PythonSandbox, code: str) -> None:
    python.run("kept = 'kept'")

    result = python.run(code)

    assert result.error is not None
    assert result.error.type in {
        "SyntaxError",
        "IndentationError",
        "ValueError",
        "UnicodeEncodeError",
    }
    assert python.run("kept").value == "kept"


@pytest.mark.wherever
# Shows S88
def test_bad_arguments_are_refused_and_harm_nothing(python: PythonSandbox) -> None:
    python.run("kept = 'kept'")

    for bad in (None, 5, b"1"):
        with pytest.raises(ValidationError, match=r"environment 'box'.*code must be text"):
            python.run(bad)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="20000000 characters"):
        python.run("#" * 20_000_000)
    with pytest.raises(ValidationError, match="not plain data"):
        python.run("1", {"x": object()})
    for timeout in (0, -1, float("nan")):
        with pytest.raises(ValidationError, match="positive"):
            python.run("1", timeout=timeout)

    assert python.run("").error is None
    assert python.run("kept").value == "kept"


# Output


@pytest.mark.wherever
def test_output_of_children_and_of_c_code_is_captured_in_order(python: PythonSandbox) -> None:
    code = (
        "import os, ctypes\nprint('a')\nos.system('echo b; echo e >&2')\nos.write(1, b'c')\n"
        "ctypes.CDLL(None).printf(b'd')\n_result = None"
    )

    result = python.run(code)

    assert (result.stdout, result.stderr) == ("a\nb\ncd", "e\n")


@pytest.mark.wherever
def test_odd_output_survives(python: PythonSandbox) -> None:
    assert python.run("print('\\ud800')").stdout == "\\ud800\n"
    assert python.run("print('a\\0b', end='')").stdout == "a\0b"
    assert python.run("import os; os.write(1, b'\\xff\\xfe'); None").stdout == "��"
    child = "import os; os.system('printf \"a\\\\\\\\377b\"'); None"
    assert python.run(child).stdout == "a�b"
    assert python.run("print('x' * 5000)").stdout == "x" * 5000 + "\n"
    assert python.run("print('€' * 9000, end='')").stdout == "€" * 9000


@pytest.mark.wherever
# Shows S36
def test_output_is_cut_and_all_of_it_is_in_a_file(python: PythonSandbox) -> None:
    result = python.run("for n in range(1000): print(('%07d ' % n) * 6250)")  # 50 MB

    assert result.truncated
    assert len(result.stdout) < 101_000
    assert result.stdout.startswith("0000000 0000000")
    assert result.stdout.endswith("0000999 \n")
    assert "49901000 bytes left out (limits.output), all is in " in result.stdout
    assert result.stdout_file is not None
    assert len(python.get(result.stdout_file)) == 50_001_000
    python.remove(result.stdout_file)


@pytest.mark.wherever
def test_output_comes_while_the_code_runs(python: PythonSandbox) -> None:
    heard: list[tuple[str, str]] = []

    def listen(stream: str, text: str) -> None:
        heard.append((stream, text))
        if "1" in text:
            (python.workspace / "go").touch()

    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    result = python.run(f"print(1)\n{wait}print(2)", on_output=listen)

    assert result.error is None
    assert "".join(text for _, text in heard) == result.stdout == "1\n2\n"


@pytest.mark.wherever
def test_what_a_thread_or_child_prints_later_belongs_to_its_own_call(python: PythonSandbox) -> None:
    code = (
        "import threading, subprocess, os, time\ngo = 'go-' + str(time.monotonic_ns())\n"
        "def later():\n    while not os.path.exists(go): time.sleep(0.01)\n    print('thread')\n"
        "t = threading.Thread(target=later); t.start()\n"
        "p = subprocess.Popen(f'until test -e {go}; do sleep 0.01; done; echo child', shell=True)\n"
        "print('now')"
    )
    first = python.run(code)

    second = python.run("open(go, 'w'); t.join(); p.wait(); print('mine')")

    assert first.stdout == "now\n"
    assert second.stdout == "mine\n"
    # `print` writes a line and its end separately, and the child may write in between.
    eventually(lambda: len(python.late[first.call].stdout) == len("thread\nchild\n"))
    late = python.late[first.call].stdout
    assert "thread" in late
    assert "child\n" in late
    assert second.call not in python.late


@pytest.mark.wherever
def test_reading_input_ends_at_once(python: PythonSandbox) -> None:
    result = python.run("input('name? ')")

    assert result.error is not None
    assert result.error.type == "EOFError"


# Ends


@pytest.mark.wherever
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise BaseException('x')", "BaseException: x"),
    ],
)
def test_code_that_ends_the_interpreter_ends_only_the_call(
    python: PythonSandbox, code: str, error: str
) -> None:
    python.run("kept = 1")

    result = python.run(code)

    assert str(result.error) == error
    assert not result.namespace_lost
    assert python.run("kept").value == 1


@pytest.mark.wherever
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; print('a', flush=True); os._exit(3)", "exit code 3"),
        ("import ctypes; print('a', flush=True); ctypes.string_at(0)", "SIGSEGV"),
        ("import os; print('a', flush=True); os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_a_crash_loses_the_names_and_nothing_else(
    python: PythonSandbox, code: str, told: str
) -> None:
    before = python.run("kept = 1").namespace

    result = python.run(code)

    assert result.error is not None
    assert result.error.type == "Crashed"
    assert told in result.error.message
    assert result.stdout == "a\n"
    assert result.namespace_lost
    following = python.run("'kept' in globals()")
    assert following.value is False
    assert following.namespace == before + 1


@pytest.mark.wherever
def test_a_fork_of_the_code_answers_nothing(python: PythonSandbox) -> None:
    result = python.run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('out')")

    assert result.stdout == "out\nout\n"
    assert python.run("1").value == 1


@pytest.mark.wherever
def test_restart_drops_the_names(python: PythonSandbox) -> None:
    python.run("kept = 1")
    python.restart()

    assert python.run("'kept' in globals()").value is False


# Time


def test_a_timeout_is_real_and_keeps_the_names(python: PythonSandbox) -> None:
    seconds = enough(lambda: python.run('print("a")'))
    result = python.run('x = 1\nprint("a")\nwhile True: pass', timeout=seconds)

    assert result.stdout == "a\n"
    assert str(result.error).startswith("Timeout: ")
    assert not result.namespace_lost
    assert python.run("x").value == 1


@pytest.mark.wherever
@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(1000)",
        "import subprocess; subprocess.run(['sleep', '1000'])",
        "import os; os.system('sleep 1000')",
        "import asyncio; await asyncio.sleep(1000)",
        "import threading; threading.Event().wait()",
    ],
)
def test_whatever_it_waits_for_is_interrupted(python: PythonSandbox, code: str) -> None:
    python.run("kept = 1")

    result = python.run(code, timeout=0.3)

    assert result.error is not None
    assert result.error.type == "Timeout"
    assert python.run("kept").value == 1


@pytest.mark.wherever
@pytest.mark.parametrize(
    "code",
    [
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "while True: pass",
        "import ctypes; ctypes.CDLL(None).sleep(1000)\nctypes.CDLL(None).sleep(1000)\n"
        "while True: ctypes.CDLL(None).sleep(1000)",
    ],
    ids=["swallows", "ignores the signal", "blocks all signals", "sleeps in C"],
)
@pytest.mark.usefixtures("little_grace")
def test_code_that_refuses_to_stop_is_stopped(python: PythonSandbox, code: str) -> None:
    python.run("kept = 1")

    seconds = enough(lambda: python.run("import sys, signal, ctypes"), least=0.2)
    result = python.run(f"import sys\n{code}", timeout=seconds)

    assert result.error is not None
    assert result.error.type == "Timeout"
    assert result.duration < 60
    # Code that catches all exceptions may still be hit between two attempts. Then the names
    # survive.
    assert result.namespace_lost or "signal" not in code
    assert python.run("'kept' in globals()").value is not result.namespace_lost


def test_what_a_call_that_was_ended_had_started_is_ended_too(python: PythonSandbox) -> None:
    python.run("import subprocess; old = subprocess.Popen(['sleep', '1000'])")
    time.sleep(0.03)  # the system records start times in hundredths of a second
    code = (
        "import subprocess, threading, time\ncount = 0\n"
        "def work():\n    global count\n    while True: count += 1; time.sleep(0.001)\n"
        "thread = threading.Thread(target=work); thread.start()\n"
        "child = subprocess.Popen(['setsid', 'sleep', '1000'])\nwhile True: pass"
    )

    seconds = enough(lambda: python.run("subprocess.run(['true'])"))
    result = python.run(code, timeout=seconds)

    assert result.left == []
    told = "thread.join(5); (thread.is_alive(), child.wait(5), old.poll())"
    assert python.run(told).value == [False, -9, None]
    python.run("old.kill(); old.wait()")


@pytest.mark.wherever
def test_a_thread_that_cannot_be_ended_is_named(python: PythonSandbox) -> None:
    code = (
        "import threading, ctypes\n"
        "sleep = lambda: ctypes.CDLL(None).usleep(60_000_000)\n"
        "stuck = threading.Thread(target=sleep, name='stuck')\n"
        "stuck.start()\nwhile True: pass"
    )

    seconds = enough(lambda: python.run("import threading, ctypes"))
    result = python.run(code, timeout=seconds)

    assert result.left == ["thread stuck"]
    python.restart()


@pytest.mark.wherever
def test_cancelling_the_caller_ends_the_call(python: PythonSandbox) -> None:
    async def cancelled() -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def heard(*_: str) -> None:
            loop.call_soon_threadsafe(begun.set)

        call = asyncio.ensure_future(
            python.async_run("kept = 2; print(1)\nwhile True: pass", on_output=heard)
        )
        await asyncio.wait_for(begun.wait(), 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())

    assert python.run("kept").value == 2


# Sharing


@pytest.mark.wherever
# Shows S57
def test_calls_at_the_same_time_are_served_in_turn_and_never_mixed(python: PythonSandbox) -> None:
    async def many() -> list[str]:
        calls = [python.async_run(f"print({n}); print({n})") for n in range(20)]
        return [result.stdout for result in await asyncio.gather(*calls)]

    assert asyncio.run(many()) == [f"{n}\n{n}\n" for n in range(20)]


@pytest.mark.wherever
def test_a_listener_that_fails_harms_no_call(python: PythonSandbox) -> None:
    def fail(stream: str, text: str) -> None:
        raise RuntimeError("listener")

    result = python.run("print(1); print(2); 3", on_output=fail)

    assert (result.stdout, result.value) == ("1\n2\n", 3)


# Packages and files


def test_a_package_of_the_workspace_can_be_installed_and_lasts(python: PythonSandbox) -> None:
    wheel(python.workspace / "tiny-1.0-py3-none-any.whl")
    install = "['python3', '-m', 'pip', 'install', '-q', '--no-index', 'tiny-1.0-py3-none-any.whl']"

    installed = python.run(f"import subprocess; subprocess.run({install}, check=True)")

    assert installed.error is None, installed.stderr
    assert python.run("import tiny; tiny.NUMBER").value == 7


@pytest.mark.wherever
def test_files_that_a_call_has_made_are_told(python: PythonSandbox) -> None:
    time.sleep(0.02)  # file systems record times in hundredths of a second
    result = python.run(
        "import os; os.makedirs('out', exist_ok=True); open('out/a.txt', 'w'); None"
    )

    assert result.files == ["out/a.txt"]


@pytest.mark.wherever
def test_modules_of_the_workspace_can_be_imported(python: PythonSandbox) -> None:
    python.put("helper_of_mine.py", b"VALUE = 5")

    assert python.run("import helper_of_mine; helper_of_mine.VALUE").value == 5


# Attacks


# Tricks, most of which use what is private.
ESCAPES = [
    "().__class__.__base__.__subclasses__()",
    "import gc; gc.get_objects()",
    "import sys; list(sys.modules.values())",
    "import inspect; [f.frame.f_globals for f in inspect.stack()]",
    "import os; dict(os.environ)",
    "import os; [open(f'/proc/{p}/environ', 'rb').read() for p in os.listdir('/proc')"
    " if p.isdecimal() and os.access(f'/proc/{p}/environ', os.R_OK)]",
    "import os; [open(f'/proc/{p}/cmdline', 'rb').read() for p in os.listdir('/proc')"
    " if p.isdecimal()]",
    "import os; os.getpid()",
    "import ctypes; ctypes.pythonapi",
    "import traceback; traceback.format_stack()",
    "import threading; threading.enumerate()",
    "import sys; sys._current_frames()",
    "import sys; sys.meta_path",
    "import __main__; vars(__main__)",
    "import builtins; vars(builtins)",
    "import site; site.getsitepackages()",
    "import importlib; importlib.import_module('flowengine')",
    "import flowengine_envs.link.frames",
    "[c for c in object.__subclasses__() if 'wrap_close' in str(c)][0].__init__.__globals__",
    "(lambda: 0).__globals__",
    "(lambda: 0).__code__.co_consts",
    "import sys; sys._getframe().f_back.f_globals",
    "import sys; [sys.stdin, sys.__stdin__, sys.__stdout__.buffer]",
    "print.__self__.__dict__",
    "type('x', (), {}).__mro__[-1].__reduce_ex__(object(), 2)[0].__globals__",
    'import pickle; pickle.loads(b"cos\\nenviron\\n.")',
    "import os; [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')"
    " if os.path.islink(f'/proc/self/fd/{n}')]",
    "import subprocess; subprocess.run(['env'], capture_output=True).stdout",
    "import multiprocessing; multiprocessing.parent_process()",
    "import ctypes; ctypes.string_at(id(0), 64)",
    "import code, threading; [t._target for t in threading.enumerate()]",
]


@each_row("code", ESCAPES)
def test_no_trick_reaches_the_process_of_the_host(python: PythonSandbox, code: str) -> None:
    """The host process has a canary in its memory, modules and variables."""
    os.environ["CANARY"] = "canary-of-" + "the-host"
    try:
        result = python.run(f"_result = repr(({code}))" if ";" not in code else code)
    finally:
        del os.environ["CANARY"]

    assert "canary-of-the-host" not in f"{result}".replace("/proc/", "")
    assert result.value != os.getpid()


def test_the_variables_of_the_hosts_processes_cannot_be_read(python: PythonSandbox) -> None:
    code = (
        "import os\nfound = []\n"
        "for pid in filter(str.isdecimal, os.listdir('/proc')):\n"
        "    try: data = open(f'/proc/{pid}/environ', 'rb').read()\n"
        "    except OSError: continue\n"
        "    if b'canary-of-' + b'a-process' in data: found.append(pid)\n"
        "found"
    )
    variables = {**os.environ, "CANARY": "canary-of-a-process"}
    with subprocess.Popen(["sleep", "60"], env=variables) as process:
        try:
            assert python.run(code).value == []
        finally:
            process.kill()


def test_descriptors_that_code_closes_or_writes_into_forge_nothing(python: PythonSandbox) -> None:
    forged = '{"id": 1, "done": true, "value": "forged"}'
    code = (
        "import os, struct\n"
        f"data = {forged.encode()!r}\n"
        "for fd in range(3, 300):\n"
        "    try: os.write(fd, struct.pack('>I', len(data)) + data)\n"
        "    except OSError: pass\n"
        "'mine'"
    )
    assert python.run(code).value in {"mine", None}

    result = python.run("import os; os.closerange(0, 10); 'closed'")
    assert result.value == "closed" or result.namespace_lost
    following = python.run("print('still here'); 1")
    assert (following.stdout, following.value) == ("still here\n", 1)


def test_the_key_of_the_supervisor_cannot_be_read(python: PythonSandbox) -> None:
    # The maps of a process that has just ended can be opened, but are empty. With access to its
    # memory, reads succeed, but not at offset 0.
    code = (
        "import os\nfound = []\n"
        "for pid in os.listdir('/proc'):\n"
        "    if not pid.isdecimal() or int(pid) == os.getpid(): continue\n"
        "    for name in ('mem', 'environ', 'maps', 'fd/0', 'fd/1', 'fd/100', 'fd/101'):\n"
        "        try:\n"
        "            file = open(f'/proc/{pid}/{name}', 'rb', buffering=0)\n"
        "            if name == 'mem' or file.read(1): found.append((pid, name))\n"
        "        except OSError: pass\n"
        "found"
    )

    assert python.run(code).value == []


@pytest.mark.wherever
def test_use_after_the_end_is_refused_by_name(sandbox: type[Sandbox], tmp_path: Path) -> None:
    provider = Python()
    resource = open_resource(provider, sandbox, tmp_path)
    resource.run("1")
    pids = processes_of(resource)
    release(provider, resource)

    with pytest.raises((EnvironmentClosed, EnvironmentLost), match="box"):
        resource.run("1")
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_sandbox_that_is_killed_during_a_call_is_lost(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    with opened(Python(), sandbox, tmp_path) as resource:
        [pid] = processes_of(resource)

        def heard(*_: str) -> None:
            os.kill(pid, 9)

        with pytest.raises(EnvironmentLost, match="box"):
            resource.run("print(1)\nwhile True: pass", on_output=heard)
        assert not resource.healthy


def wheel(path: Path) -> None:
    """Write a package of one module."""
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny.py", "NUMBER = 7\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(
            f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )


def eventually(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except KeyError:
            pass
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.01)


@pytest.mark.wherever
def test_an_interpreter_that_ends_between_calls_says_so(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    code = """
import os, threading, time
x = 41
def end():
    while not os.path.exists("go"):
        time.sleep(0.01)
    open("gone", "w").close()
    os._exit(7)
threading.Thread(target=end).start()
"""
    with opened(Python(), sandbox, tmp_path) as python:
        python.run(code)
        python.put("go", b"")
        until((tmp_path / "gone").exists)
        time.sleep(0.2)  # no event outside the sandbox shows that the process has ended
        result = python.run("'x' in globals()")

        if result.error is None:
            assert result.value is False
            assert "since the last call the process crashed: it ended with exit code 7" in (
                result.stderr
            )
        else:  # the process was still ending
            assert result.error.type == "Crashed"
        assert python.run("1").stderr == ""
        python.restart()
        assert python.run("1").stderr == ""
