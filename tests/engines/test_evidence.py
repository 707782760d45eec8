"""Evidence of a failure: stack frames of the user's code, and the end of the output."""

from __future__ import annotations

import json
import sysconfig
from typing import Any

import pytest

from flowengine.engines.attempts.failures import TAIL, evidence_of, failure_of, tail
from flowengine.sdk import ExitCode, StepError
from tests.rows import each_row


def plain(value: object) -> object:
    return value


def masked(value: object) -> object:
    return value.replace("hunter2hunter2", "***") if isinstance(value, str) else value


def raised(call: object) -> Exception:
    with pytest.raises(Exception) as told:  # noqa: PT011 - any
        call()  # type: ignore[operator]
    return told.value


def test_frames_are_those_of_the_user() -> None:
    error = raised(lambda: json.loads("{", object_hook=None))

    lines = evidence_of(error, plain)["traceback"]

    assert [line.rpartition("/")[2].partition(":")[0] for line in lines] == ["test_evidence.py"] * 2
    with pytest.raises(ValueError, match="Expecting") as told:
        json.loads("{")
    told.value.__traceback__ = told.tb.tb_next  # none of them is the user's
    assert "decoder.py" in evidence_of(told.value, plain)["traceback"][-1]


def test_frames_of_an_installed_project_are_without_those_of_python() -> None:
    installed = f"{sysconfig.get_paths()['purelib']}/shop/orders.py"
    names: dict[str, Any] = {"__name__": "shop.orders", "json": json}
    exec(compile("def read(): json.loads('{')", installed, "exec"), names)

    with pytest.raises(ValueError, match="Expecting") as told:
        names["read"]()
    told.value.__traceback__ = told.tb.tb_next  # not called by the user's code

    assert [line.partition(":")[0] for line in evidence_of(told.value, plain)["traceback"]] == [
        installed
    ]


def test_what_led_to_an_exception_follows_it() -> None:
    def wrap() -> None:
        try:
            json.loads("{")
        except ValueError:
            raise RuntimeError("no order") from None

    def wrap_openly() -> None:
        try:
            json.loads("{")
        except ValueError as error:
            raise RuntimeError("no order") from error

    hidden = evidence_of(raised(wrap), plain)["traceback"]
    openly = evidence_of(raised(wrap_openly), plain)["traceback"]

    assert not [line for line in hidden if line.startswith("after")]
    [at] = [n for n, line in enumerate(openly) if line.startswith("after json.decoder.JSONDecode")]
    assert "raise RuntimeError" in openly[at - 1]


def test_an_error_of_the_language_that_the_user_raises_has_one() -> None:
    def fail() -> None:
        raise StepError("none left", type="OutOfStock", data={"left": 0})

    assert "raise StepError" in evidence_of(raised(fail), plain)["traceback"][-1]


def test_secrets_are_masked_before_anything_is_cut() -> None:
    secret = "hunter2hunter2"
    for at in range(len(secret) + 1):
        text = secret + "x" * (TAIL - at)
        message = "x" * (4000 - at) + secret
        error = failure_of(ValueError(message), masked)

        assert "hunter" not in tail(text, masked)
        assert "2hunter" not in tail(text, masked)
        assert "hunt" not in error["message"]
        assert not tail(text, masked).startswith("…2")


@each_row("line", ["x" * 100_000, "line\n" * 50_000])
def test_evidence_is_bounded(line: str) -> None:
    def deep(left: int) -> None:
        if left == 0:
            raise ExitCode(line, data={"stdout": line, "stderr": line})
        deep(left - 1)

    found = evidence_of(raised(lambda: deep(200)), plain)

    assert len(str(found)) < 2 * TAIL + 10 * 320 + 200
