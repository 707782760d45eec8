"""References become values only in the process that needs them, and values never leave it."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
import shlex
import time
from html import escape
from pathlib import Path
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine import masking
from flowengine.kernel.graph.compiled import SecretText
from flowengine.sdk import SecretMissing, ValidationError
from flowengine.sdk.steps.step_log import StepLog
from flowengine.secrets import Secrets, resolve
from tests.replacing import Limits, patches_everywhere
from tests.rows import each_row
from tests.sliced_examples import sliced

VALUE = """p€ss/w0rd+ <"x'&"""
LONG = "".join(f"part{number}-" for number in range(30))
BLOCK = 4 * masking._MARGIN
"""Bytes of a file that are searched together: fewer than usual, so that files can be small."""


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    monkeypatch.setenv("API_KEY", VALUE)
    monkeypatch.setenv("LONG_KEY", LONG)
    return Secrets({"KEY": {"env": "API_KEY"}, "LONG": {"env": "LONG_KEY"}})


FORMS = {
    "as it is": VALUE,
    "JSON": json.dumps(VALUE),
    "JSON with accents": json.dumps(VALUE, ensure_ascii=False),
    "JSON in JSON": json.dumps(json.dumps(VALUE)),
    "Python": repr(VALUE),
    "Python in ASCII": ascii([VALUE]),
    "Python's bytes": repr(VALUE.encode()),
    "HTML": escape(VALUE),
    "HTML without quotes": escape(VALUE, quote=False),
    "HTML in ASCII": escape(VALUE).encode("ascii", "xmlcharrefreplace").decode(),
    "XML": quoteattr(VALUE),
    "HTML in decimals": "".join(f"&#{ord(each):03};" for each in VALUE),
    "HTML in hex": "".join(f"&#X{ord(each):x};" for each in VALUE),
    "HTML with some names": VALUE.replace("&", "&AMP")
    .replace("'", "&apos;")
    .replace("€", "&euro;"),
    "HTML in HTML": escape(escape(VALUE)),
    "HTML in JSON in a URL": quote(json.dumps(escape(VALUE))),
    "JavaScript": "".join(f"\\u{{{ord(each):x}}}" for each in VALUE),
    "JSON of its letters in a URL": quote("".join(f"\\u{ord(each):04x}" for each in VALUE)),
    "JSON with slashes": json.dumps(VALUE).replace("/", r"\/"),
    "CSV": VALUE.replace('"', '""'),
    "a shell": VALUE.replace("'", r"'\''"),
    "Python for a shell": shlex.quote(VALUE),
    "octal": "".join(f"\\{each:03o}" for each in VALUE.encode()),
    "URL in small letters": re.sub("%..", lambda digits: digits[0].lower(), quote(VALUE)),
    "URL path": quote(VALUE),
    "URL": quote(VALUE, safe=""),
    "form": quote_plus(VALUE),
    "base64": base64.b64encode(VALUE.encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(VALUE.encode()).decode(),
    "base64 of one before": base64.b64encode(f"u{VALUE}".encode()).decode(),
    "base64 of two before": base64.b64encode(f"u:{VALUE}, more".encode()).decode(),
}


@each_row("form", FORMS.values())
def test_secret_is_masked_in_every_form(secrets: Secrets, form: str) -> None:
    masked = secrets.mask({"a": [f"before {form} after"], form: 1})

    assert "***" in masked["a"][0]
    for text in (masked["a"][0], str(masked)):
        assert VALUE not in text
        assert form not in text


@sliced(examples=30)
@given(secret=st.text(min_size=4), before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_encoding_a_secret_with_anything_around_it_does_not_show_it(
    secret: str, before: bytes, after: bytes
) -> None:
    try:
        data = secret.encode()
    except UnicodeEncodeError:
        return
    if not secret.strip() or "\0" in secret:
        return
    with patches_everywhere() as patch:
        patch.setenv("API_KEY", secret)
        # No other test of this process must have words masked that are drawn here, such as `false`.
        patch.setattr(masking, "PROCESS", masking.Masker())
        patch.setattr(masking, "mask_logs", lambda mask: None)
        secrets = Secrets({"KEY": {"env": "API_KEY"}})
        encoded = base64.b64encode(before + data + after).decode()
        masked = secrets.mask(encoded)

    assert "***" in masked


def test_short_secret_is_masked_as_a_word_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN", "12")
    secrets = Secrets({"PIN": {"env": "PIN"}})

    assert secrets.mask("pin 12, not 1234 or 2012") == "pin ***, not 1234 or 2012"


def test_lines_of_a_long_secret_are_masked_each(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text("-----BEGIN-----\nMIIEvQIBADAN\nab\n-----END-----\n")
    secrets = Secrets({"CERT": {"file": str(path)}})

    assert secrets.mask("x MIIEvQIBADAN ab") == "x *** ab"


@pytest.mark.parametrize("kept", [5, 9, len(VALUE) - 1])
def test_halves_of_a_secret_are_masked_where_output_was_cut(secrets: Secrets, kept: int) -> None:
    line = "\n... 900 bytes left out, all is in out.txt ...\n"

    masked = secrets.mask(f"key={VALUE[:kept]}{line}{VALUE[-kept:]}, and more")

    assert masked == f"key=***{line}***, and more"
    assert secrets.mask(f"no key{line}, and more") == f"no key{line}, and more"


@pytest.mark.parametrize("what", [r"\\", '""', "%25", r"\x41", "\n... 9 bytes left out\n", "p"])
def test_what_a_program_prints_cannot_make_masking_take_long(secrets: Secrets, what: str) -> None:
    """Each part of the output is read a fixed number of times."""
    began = time.process_time()

    masked = secrets.mask(f"{what * 15_000} {VALUE}, {what * 15_000}")

    assert masked == f"{what * 15_000} ***, {what * 15_000}"
    assert time.process_time() - began < 5


@pytest.mark.parametrize("at", [0, 10, BLOCK - 40, BLOCK, 2 * BLOCK + BLOCK // 4])
@pytest.mark.parametrize("form", [VALUE, base64.b64encode(LONG.encode()).decode()])
def test_file_with_a_secret_is_refused_or_masked_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, limits: Limits, at: int, form: str
) -> None:
    limits(masking, _BLOCK=BLOCK)
    monkeypatch.setenv("API_KEY", VALUE)
    monkeypatch.setenv("LONG_KEY", LONG)
    keys: dict[str, dict[str, str]] = {"KEY": {"env": "API_KEY"}, "LONG": {"env": "LONG_KEY"}}
    before, after = b"\xff\x00" * (at // 2), b"\xfe" * (BLOCK // 4 * 3)
    data = before + form.encode() + after
    target = io.BytesIO()

    with pytest.raises(
        ValidationError, match=r"'a\.bin' contains the secret (KEY|LONG), .*files: mask"
    ):
        Secrets(keys).mask_file(io.BytesIO(data), target, "a.bin")
    assert target.getvalue() == b""
    masked_by = Secrets({name: {**key, "files": "mask"} for name, key in keys.items()})
    assert masked_by.mask_file(io.BytesIO(data), target, "a.bin")
    masked = target.getvalue()
    assert masked.startswith(before + b"***")
    assert masked.endswith(after)
    assert re.fullmatch(rb"[A-Za-z0-9]?=*", masked[len(before) + 3 : -len(after)])
    assert not masked_by.mask_file(io.BytesIO(before + after), target, "a.bin")


def test_what_a_library_logs_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOKEN", "t0ken-of-a-library")
    Secrets({"T": {"env": "TOKEN"}}).reveal(SecretText([["T"]]))
    log = logging.getLogger("some.library")

    log.warning("GET %s", "https://example.com/?key=t0ken-of-a-library")
    try:
        raise RuntimeError("t0ken-of-a-library")
    except RuntimeError:
        log.exception("failed")
    log.warning("100% of nothing")

    assert "t0ken" not in caplog.text
    assert "GET https://example.com/?key=***" in caplog.text
    assert "RuntimeError: ***" in caplog.text
    assert "100% of nothing" in caplog.text


def test_text_with_secrets_is_put_together_where_it_is_needed(secrets: Secrets) -> None:
    plain = {"rows": [1, 2]}
    value = {"header": SecretText(["Bearer ", ["KEY"]]), "plain": plain, "list": [plain]}

    revealed = secrets.reveal(value)

    assert revealed == {"header": f"Bearer {VALUE}", "plain": plain, "list": [plain]}
    assert revealed["plain"] is plain
    assert secrets.reveal(plain) is plain
    assert VALUE not in repr(value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            {"env": "NOT_SET"},
            "secret 'S' is not available: the environment variable NOT_SET is not set",
        ),
        ({"env": "EMPTY"}, "secret 'S' is not available: the environment variable EMPTY is empty"),
        ({"file": "/nope"}, "secret 'S' is not available: /nope: No such file or directory"),
        ({"file": "empty"}, "secret 'S' is not available: empty is empty"),
        ({"vault": "kv/app#x"}, "secret 'S': its kind of reference is not supported yet"),
    ],
)
def test_missing_secret_names_its_reference(
    monkeypatch: pytest.MonkeyPatch, folder: Path, reference: dict[str, str], message: str
) -> None:
    monkeypatch.setenv("EMPTY", "")
    Path("empty").write_text("\n")

    with pytest.raises(SecretMissing) as missing:
        resolve("S", reference)

    assert str(missing.value) == message


def test_log_of_a_step_says_where_and_shows_no_secret(
    secrets: Secrets, caplog: pytest.LogCaptureFixture
) -> None:
    log = StepLog("01k8executionid", "each[a]/load", secrets.mask)

    with caplog.at_level(logging.INFO, "flowengine.step"):
        log.info("sent %s to %d%%", VALUE, 5)
        log.debug("not %s", VALUE)

    assert caplog.messages == ["01k8executio each[a]/load: sent *** to 5%"]
    assert VALUE not in str(caplog.records[0].__dict__)
