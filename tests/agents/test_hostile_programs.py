# Shows G13
"""Programs of models that attack: they stay within the limits of their sandbox."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest

from tests.agents.flows import HEAD
from tests.agents.test_code_mode import case
from tests.rows import each_row

LIMITS = "{time: 3s, memory: 256MiB, processes: 20, disk: 16MiB}"
BOXED = HEAD.replace(
    "tools:", f"environments: {{box: {{kind: python, limits: {LIMITS}}}}}\ntools:", 1
)
FIND = """
[program] = [c.cell_contents for c in add.__closure__ if hasattr(c.cell_contents, 'calls')]
call, host = program._call, program._host
"""
"""A program that takes hold of what runs it, private as it is: this is the attack."""


@pytest.mark.skipif(which("bwrap") is None, reason="no bubblewrap: apt-get install bubblewrap")
@each_row(
    "name, code, answer",
    [
        ("endless", "while True: pass", "Error: Timeout: it took longer than 3 s (limits.time)"),
        ("waits", "import asyncio\nawait asyncio.Event().wait()", "Error: Timeout"),
        ("forks", "import os\nwhile True: os.fork()", "Error: "),
        ("memory", "x = 'x' * 10**9", "limits.memory is 256 MiB"),
        ("disk", "open('big', 'wb').write(b'x' * 10**8)", "Error: "),
        ("network", "import socket\nsocket.create_connection(('1.1.1.1', 80), 1)", "Error: "),
        ("a forged name", f"{FIND}await call('delete', {{}})", "There is no tool 'delete'"),
        (
            "itself",
            f"{FIND}await call('run_program', {{'code': '1'}})",
            "There is no tool 'run_program'",
        ),
        ("no call", f"{FIND}program.calls.append(5)\nawait add(1, 2)", "Error: "),
        ("no data", f"{FIND}host.send({{'asks': 'x'}})\nimport time\ntime.sleep(9)", "Error: "),
        ("no message", f"{FIND}host.send(5)\nawait add(1, 2)", "Error: "),
        (
            "no link",
            f"{FIND}host.end.close()\nimport time\ntime.sleep(9)",
            "Error: Crashed: the process of the program was ended by SIGKILL",
        ),
        (
            "too many calls",
            "import asyncio\nawait asyncio.gather(*(add(1, n) for n in range(1001)))",
            "Error: it made more than 1000 calls",
        ),
        (
            "a large call",
            "await boom('x' * 2**21)",
            "ToolError: boom was not called: calls at once",
        ),
        (
            "large calls at once",
            "import asyncio\nmade = await asyncio.gather(*(boom('\\\\' * 10**5) for _ in range(9)),"
            " return_exceptions=True)\n['calls at once' in str(one) for one in made].count(True)",
            "7",
        ),
        (
            "a large result",
            "'x' * 2**21",
            "the result of the program has more than 1,000,000 bytes",
        ),
        ("a large error", "raise ValueError('\U0001f600' * 2**20)", "ValueError: \U0001f600"),
        (
            "a large message",
            f"{FIND}host.end.sendall(bytes([0, 0, 0, 9]) + bytes(4) + b'x' * 2**24)",
            "Error: Crashed: the process of the program ",  # killed, unless it ends before that
        ),
        ("a long result", "'x' * 10**5", "characters left out"),
        ("floods", "print('x' * 10**6)", "It printed:"),
        (
            "the channel",
            "import os\nfor fd in range(3, 300):\n    try:\n        os.write(fd, b'x' * 50)\n"
            "    except OSError:\n        pass",
            "Error: ",
        ),
        (
            "a child that stays",
            "import os, time\nawait add(1, 2)\nif not os.fork(): time.sleep(60)\nos._exit(3)",
            "Error: Crashed: the process of the program ended with code 3",
        ),
        (
            "descriptors of the namespace",
            "import os\n[os.readlink(f'/dev/fd/{fd}') for fd in os.listdir('/dev/fd')"
            " if fd not in '012' and os.path.exists(f'/dev/fd/{fd}')"
            " and os.readlink(f'/dev/fd/{fd}').startswith('socket')].__len__()",
            "1",
        ),
        (
            "reads the channel",
            "import os, fcntl\nfor fd in range(3, 300):\n    try:\n"
            "        os.set_blocking(fd, False)\n        os.read(fd, 100)\n"
            "    except OSError:\n        pass\nawait add(1, 2)",
            "",
        ),
    ],
)
def test_a_hostile_program_is_told_what_stopped_it(
    tmp_path: Path, name: str, code: str, answer: str
) -> None:
    made = case(tmp_path / name, code, head=BOXED)

    assert made.run().outputs == {"answer": "done", "agent": "first"}
    [told] = made.answers(1)
    assert answer in told
    assert len(told) < 25_000
    assert {*made.called} <= {"add 1 2", "boom"}


STARTS = """
import os, subprocess
subprocess.Popen(['sleep', '876'], start_new_session=True)
if not os.fork(): os.execvp('sh', ['sh', '-c', 'sleep 876 & sleep 0'])
await add(1, 2)
subprocess.Popen(['sleep', '876'])
"""
LEFT = "import glob\n['876' for one in glob.glob('/proc/*/cmdline') if '876' in open(one).read()]"


@pytest.mark.skipif(which("bwrap") is None, reason="no bubblewrap: apt-get install bubblewrap")
@each_row(
    "name, end, answer",
    [
        ("a value", "1", "1"),
        ("an error", "1 / 0", "ZeroDivisionError"),
        ("a timeout", "while True: pass", "Timeout"),
        ("a crash", "os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        ("memory", "x = 'x' * 10**9", "limits.memory is 256 MiB"),
    ],
)
def test_all_that_a_program_has_started_ends_with_it(
    tmp_path: Path, name: str, end: str, answer: str
) -> None:
    made = case(tmp_path / name, f"{STARTS}{end}", head=BOXED, then=LEFT)

    assert made.run().status == "succeeded"
    assert answer in made.answers(1)[0]
    assert made.answers(2)[-1] == "[]"
