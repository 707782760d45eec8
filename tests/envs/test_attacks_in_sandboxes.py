"""Code that means harm, in every sandbox: at most its own environment is lost."""

from __future__ import annotations

from flowengine_envs.python import PythonSandbox

CALLS = """
import ctypes, errno, json, platform
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"

def told(numbers, *arguments):
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(numbers[arm]), *map(ctypes.c_long, arguments))
    return "done" if done >= 0 else errno.errorcode[ctypes.get_errno()]

kind, name = ctypes.create_string_buffer(b"user"), ctypes.create_string_buffer(b"left")
at = [ctypes.addressof(each) for each in (kind, name)]
_result = {
    "add_key": told((248, 217), *at, at[1], 4, -4),
    "keyctl": told((250, 219), 0, -4, 0),
    "request_key": told((249, 218), *at, 0, -4),
    "unshare a user": told((272, 97), 0x10000000),
    "clone a user": told((56, 220), 0x10000011, 0, 0, 0, 0),
    "mount": told((165, 40), at[1], at[1], at[0], 0, 0),
    "fsopen": told((430, 430), at[0], 0),
    "bpf": told((321, 280), 0, 0, 0),
    "userfaultfd": told((323, 282), 0),
    "perf_event_open": told((298, 241), 0, 0, -1, -1, 0),
    "init_module": told((175, 105), 0, 0, 0),
    "kexec_load": told((246, 104), 0, 0, 0, 0),
}
"""


def test_calls_that_lead_past_a_sandbox_are_denied(python: PythonSandbox) -> None:
    result = python.run(CALLS)

    assert result.error is None, result.error
    assert set(result.value.values()) <= {"EPERM", "ENOSYS"}, result.value
