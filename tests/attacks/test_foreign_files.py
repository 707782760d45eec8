"""A third-party project refers to files outside of it: their contents are never shown.

`check` reads links, and paths that lead out of the project, with the user's permissions, and its
output ends up in logs and pages. Files named on the command line may be quoted, since the user can
read them. Files named in other files, or found in folders, are quoted only if they are of the
expected type.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command_line import flowengine

SECRETS = {
    "shadow": "hostadmin:$6$SALT$HASH0123456789:19000:0:99999:7:::\ndaemon:*:19000::::::\n",
    "key": "-----BEGIN OPENSSH PRIVATE KEY-----\nHASH0123456789\n-----END\n",
    "hosts": "github.com:\n    oauth_token: HASH0123456789\n    user: ana\n",
    "netrc": "machine HASH0123456789 login: [ana\n",
    "list": "- HASH0123456789\n- *HASH0123456789\n",
    "binary": "\x00\x01HASH0123456789\n",
    "coding": "# coding: HASH0123456789\n",
    "tabs": "a: 1\n\tHASH0123456789: {\n",
}
STEPS = "steps:\n  - {id: a, output: 1}\n"


@pytest.fixture(params=SECRETS, ids=str)
def project(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a project's folder in which `foreign` is a link to a private file of the user's."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "own.yaml").write_text(SECRETS[request.param])
    project = tmp_path / "project"
    project.mkdir()
    for name in ("foreign.yaml", "foreign.test.yaml", "foreign_module.py"):
        (project / name).symlink_to(home / "own.yaml")
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    return project


def told(*arguments: str) -> str:
    """Run a command that must fail, and return all of its output."""
    done = flowengine(*arguments)
    assert done.code not in {0, 1}
    return done.out + done.err


def write(name: str, text: str) -> None:
    Path(name).write_text(f"flowengine: 1\nid: f\n{text}")


def keeps_quiet(said: str) -> None:
    assert [word for word in ("HASH", "hostadmin", "oauth", "BEGIN") if word in said] == []


def refused(said: str, place: str, name: str) -> None:
    assert f"{place}: error[E401]: {name!r} is not a flow file" in said
    keeps_quiet(said)


@pytest.mark.parametrize("path", ["./foreign.yaml", "../home/own.yaml"])
@pytest.mark.usefixtures("project")
def test_an_import(path: str) -> None:
    write("f.yaml", f"imports: {{x: {path}}}\n{STEPS}")

    refused(told("check", "f.yaml"), "f.yaml:3:14", path)
    refused(told("run", "f.yaml"), "f.yaml:3:14", path)
    said = told("--json", "check", "f.yaml")
    assert f"{path!r} is not a flow file" in said
    keeps_quiet(said)


@pytest.mark.usefixtures("project")
def test_an_import_of_an_import() -> None:
    write("f.yaml", f"imports: {{lib: ./lib.yaml}}\n{STEPS}")
    Path("lib.yaml").write_text("flowengine: 1\nid: lib\nimports: {x: ./foreign.yaml}\n")

    refused(told("check", "f.yaml"), "lib.yaml:3:14", "./foreign.yaml")


@pytest.mark.usefixtures("project")
def test_a_flow_that_a_step_runs() -> None:
    write("f.yaml", "steps:\n  - {id: a, flow: ./foreign.yaml}\n")

    refused(told("check", "f.yaml"), "f.yaml:4:19", "./foreign.yaml")


@pytest.mark.usefixtures("project")
def test_a_flow_that_test_cases_name() -> None:
    Path("a.test.yaml").write_text("flow: ./foreign.yaml\ncases: [{name: n}]\n")

    refused(told("test", "a.test.yaml"), "a.test.yaml:1:7", "./foreign.yaml")
    Path("foreign.test.yaml").unlink()
    Path("foreign.test.yaml").write_text("cases: [{name: n}]\n")
    refused(told("test", "foreign.test.yaml"), "foreign.test.yaml:1:1", "foreign.yaml")


@pytest.mark.usefixtures("project")
def test_test_cases_of_a_folder() -> None:
    said = told("test", ".")

    assert "foreign.test.yaml is not a test case file" in said
    keeps_quiet(said)


def test_settings_of_a_project(project: Path) -> None:
    if "coding" in Path("foreign.yaml").read_text():
        Path("foreign.yaml").write_text("HASH0123456789\n")  # a comment alone is not an error
    write("f.yaml", STEPS)
    (project / ".flowengine").mkdir(mode=0o700)
    (project / ".flowengine" / "settings.yaml").symlink_to(os.path.realpath("foreign.yaml"))

    said = told("run", "f.yaml")

    assert "settings.yaml" in said
    keeps_quiet(said)


@pytest.mark.parametrize(
    "planted",
    [b"\xff\xfe", b"[" * 100_000, b"strict: " + b"[" * 100_000, "folder", "pipe", "/dev/zero"],
    ids=["bytes", "deep", "deeper", "folder", "pipe", "endless"],
)
def test_settings_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: bytes | str
) -> None:
    monkeypatch.chdir(tmp_path)
    write("f.yaml", STEPS)
    settings = Path(".flowengine/settings.yaml")
    settings.parent.mkdir(mode=0o700)
    if isinstance(planted, bytes):
        settings.write_bytes(planted)
    elif planted == "folder":
        settings.mkdir()
    elif planted == "pipe":
        os.mkfifo(settings)
    else:
        settings.symlink_to(planted)

    said = told("run", "f.yaml")

    assert "settings.yaml" in said
    assert "this is a bug" not in said
    assert len(said) < 500


@pytest.mark.usefixtures("project")
def test_a_python_module() -> None:
    write("f.yaml", "steps:\n  - {id: a, python: 'foreign_module:f'}\n")

    said = told("check", "f.yaml")

    assert "foreign_module" in said
    keeps_quiet(said)


def test_a_file_that_cannot_be_read_is_told_where_it_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("f.yaml", f"imports: {{x: ./x.yaml}}\n{STEPS}")
    Path("x.yaml").write_text("flowengine: 1\nid: x\n")
    real = Path.open

    def refuse(self: Path, *given: object, **named: object) -> object:
        if self.name == "x.yaml":
            raise PermissionError(13, "Permission denied")
        return real(self, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)

    assert "f.yaml:3:14: error[E401]: cannot read x.yaml: Permission denied" in told(
        "check", "f.yaml"
    )


def test_a_file_next_to_a_missing_one_is_named_only_if_it_may_be_meant(folder: Path) -> None:
    Path("id_rsa.pub").touch()
    Path("library.yaml").touch()
    write("f.yaml", f"imports:\n  x: ./id_rsa.pup\n  y: ./libary.yaml\n{STEPS}")

    said = told("check", "f.yaml")

    assert "id_rsa.pub" not in said
    assert "did you mean 'library.yaml'?" in said


def test_a_python_module_that_nests_too_deeply(folder: Path) -> None:
    Path("deep.py").write_text("y = 1" + " + 1" * 30_000)
    write("f.yaml", "steps:\n  - {id: a, python: 'deep:f'}\n")

    said = told("check", "f.yaml")

    assert "error[E401]: module 'deep' cannot be read" in said
