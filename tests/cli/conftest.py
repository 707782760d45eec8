from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from flowengine import Client
from tests import command_line
from tests.command_line import PROGRAM, Done
from tests.forked_program import end_shared_forks
from tests.server.api import LOCAL
from tests.transcripts import Section, check_section, sections

if TYPE_CHECKING:
    from tests.temporal_stores import Stores


class CommandLine:
    """A user in a folder who runs one command after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        *words: str | Path,
        code: int = 0,
        typed: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Done:
        """Run a command in this process, and check its exit code."""
        done = self.run(*words, typed=typed, env=env)
        assert done.code == code, f"flowengine {words} ended with {done}"
        return done

    def run(
        self, *words: str | Path, typed: str | None = None, env: Mapping[str, str] | None = None
    ) -> Done:
        """Run a command in this process."""
        return command_line.flowengine(*words, typed=typed, env=env)

    def write(self, name: str, text: str) -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        path.write_text(text)
        return path

    def newest(self) -> str:
        """The ID of the newest execution."""
        found: str = self("--json", "list", "-n", "1").json()[0]["execution"]
        return found

    def spawn(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in a separate process. Its flow is already compiled."""
        for word in words:
            if word.endswith(".yaml"):
                command_line.compile_flow(self.folder / word)
        return subprocess.Popen(
            [PROGRAM, *words],
            cwd=self.folder,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def wait_until_running(self, process: subprocess.Popen[str]) -> None:
        """Wait until a step runs in a started process."""
        while not self("--json", "list", "--status", "running").json():
            assert process.poll() is None
            time.sleep(0.2)


def steady(text: str) -> str:
    """Replace values that vary between runs: IDs, times, durations."""
    text = re.sub(r"\b01[0-9a-hjkmnp-tv-z]{6,24}\b", "EXECUTION", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\b\d+\.\d+s\b", "0.0s", text)
    waits = dict.fromkeys(re.findall(r"(?:approval|question|show) ([0-9a-f]{4,16})\b", text))
    for number, wait in enumerate(waits, start=1):
        text = re.sub(rf"\b{wait}\b", f"WAIT{number}", text)
    return text


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    """Collect a page of transcripts."""
    return Page.from_parent(parent, path=file_path) if file_path.suffix == ".md" else None


class Page(pytest.File):
    """A page of transcripts. Each section is a test, and up to two more."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the plays of each section."""
        for section in sections(self.path):
            yield Transcript.from_parent(self, section=section, way="store")
            if "<!-- also with a server" in section.text:
                yield Transcript.from_parent(self, section=section, way="server")
            if "<!-- also in Temporal" in section.shared and "<!-- not in T" not in section.text:
                yield Transcript.from_parent(self, section=section, way="temporal")


class Transcript(pytest.Function):
    """A section of a page, played with a store, a server over it, or a store in Temporal."""

    def __init__(self, *, section: Section, way: str, **more: Any) -> None:
        def play(
            tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_temporal: Stores | None
        ) -> None:
            with _user_in(tmp_path, monkeypatch, way) as user:
                if in_temporal is not None:
                    monkeypatch.setenv("FLOWENGINE_STORE", in_temporal.default)
                check_section(section, user.run, way)

        self._line = section.line
        name = section.title if way == "store" else f"{section.title} [{way}]"
        super().__init__(name=name, callobj=play, **more)
        self.in_temporal = way == "temporal"
        if self.in_temporal:
            self.add_marker(pytest.mark.endurance(sample=100))
        elif "<!-- seldom" in section.text:
            self.add_marker(pytest.mark.endurance)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place of the section."""
        return self.path, self._line - 1, self.name


@pytest.fixture(scope="session", autouse=True)
def _forks() -> Iterator[None]:
    """Programs on terminals are forks of one process, which ends with the tests."""
    yield
    end_shared_forks()


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """User Ana in an empty folder, without settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flowengine.engines.engine.current_user", lambda: "user:ana")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("FLOWENGINE_STORE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def flowengine(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CommandLine]:
    with _user_in(tmp_path, monkeypatch, getattr(request, "param", "store")) as user:
        yield user


@contextmanager
def _user_in(folder: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> Iterator[CommandLine]:
    if way == "store":
        yield CommandLine(folder)
        return
    if way != "server":
        with command_line.kept_open:
            yield CommandLine(folder)
        return
    from flowengine.cli import session
    from tests.cli.beside_server import BesideServer

    with command_line.kept_open, closing(BesideServer(folder)) as user:
        monkeypatch.setattr(session, "connect", user.connect)
        yield user
    assert user.sent, "no command was sent to the server"


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Lets commands reach a server through a transport in this process: `reach(transport)`."""

    def reach(transport: httpx2.BaseTransport, token: str = LOCAL) -> None:
        connected = partial(Client, token=token, transport=transport)
        monkeypatch.setattr("flowengine.cli.session.connect", connected)

    with command_line.kept_open:
        yield reach


also_served = pytest.mark.parametrize("flowengine", ["store", "server"], indirect=True)
"""Marks a test that runs a second time with a server over the store."""

HELLO = """\
flowengine: 1
id: hello
inputs:
  name: {type: string, default: world}
steps:
  - id: greet
    output: Hello, ${{ inputs.name }}!
outputs:
  message: ${{ steps.greet.output }}
"""
REFUND = """\
flowengine: 1
id: refund
version: "3"
inputs:
  amount: {type: number}
  assignees: {type: array, items: {type: string}, default: []}
steps:
  - id: ask
    approval:
      title: Refund ${{ inputs.amount }} EUR?
      subject: {amount: "${{ inputs.amount }}", account: travel}
      edit: [amount]
      form:
        type: object
        properties: {cost_center: {type: string, title: Cost centre, pattern: "^[0-9]{4}$"}}
        required: [cost_center]
      choices: [approve, {id: reject, comment: required}, {id: later, title: Not now}]
      assignees: ${{ inputs.assignees }}
    next: {outcome: {approve: pay, reject: refuse, later: refuse}}
  - id: pay
    output: ${{ steps.ask.output.subject.amount }}
    next: end
  - id: refuse
    output: 0
outputs:
  paid: ${{ default(steps.pay.output, steps.refuse.output) }}
"""


@pytest.fixture
def hello(flowengine: CommandLine) -> Path:
    return flowengine.write("hello.yaml", HELLO)


@pytest.fixture
def refund(flowengine: CommandLine) -> Path:
    return flowengine.write("refund.yaml", REFUND)
