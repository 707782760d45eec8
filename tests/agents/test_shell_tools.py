"""An agent at a terminal: it runs commands, waits for them, types, and interrupts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, Response
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.runner import MetaChain
from flowengine.sdk.texts.untrusted import unmarked
from flowengine_envs.sandboxes.processes import has

ASK = [{"role": "user", "content": "Do it."}]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for program in ("bwrap", "tmux"):
        if not has(program):
            pytest.skip(f"no {program}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def run(*calls: tuple[str, dict[str, Any]], engine: Engine | None = None) -> Response:
    """Run an agent with a shell whose model makes these calls, each in a separate reply."""
    replies: list[dict[str, Any]] = [
        {"calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls
    ]
    agent = Agent(name="Worker", model="scripted/x").enable_shell(kind="shell")
    model = ScriptedModel([*replies, {"text": "so"}])
    with using(model):
        response = MetaChain(engine).run(agent, ASK)
    offered = [one.name for one in model.requests[0].tools]
    assert offered == ["shell_run", "shell_wait", "shell_type", "shell_interrupt"]
    return response


def answers(response: Response) -> list[str]:
    return [unmarked(one["content"]) for one in response.messages if one["role"] == "tool"]


@pytest.mark.endurance
# Shows S71
def test_it_runs_types_waits_and_interrupts() -> None:
    greet = {"command": "cd /tmp; read -p 'Name? ' name; echo \"Hi $name\""}
    find = "python3 -c 'import socket; socket.getaddrinfo(\"nowhere.invalid\", 80)'"
    asked, greeted, working, still, ended, kept, cut_off = answers(
        run(
            ("shell_run", greet),
            ("shell_type", {"text": "Bob"}),
            ("shell_run", {"command": "sleep 1000", "wait": 0.1}),
            ("shell_wait", {"wait": 0.1}),
            ("shell_interrupt", {"wait": 60}),
            ("shell_run", {"command": "echo $name $PWD"}),
            ("shell_run", {"command": find, "wait": 60}),
        )
    )

    assert "[prompt]\nName? \n[waiting for input, it reads a line, in /" in asked
    assert greeted.endswith("Hi Bob\n[done, exit code 0, in /tmp]")
    assert working.endswith("\n[running, in /tmp]")
    assert "sleep 1000" in still.partition("[processes]\n")[2]
    assert ended.endswith("[done, exit code 130, in /tmp]")
    assert kept == "Bob /tmp\n[done, exit code 0, in /tmp]"
    hint = "programs in this environment reach no network: allow hosts in policy.network"
    assert cut_off.endswith(f"\n{hint}\n[done, exit code 1, in /tmp]")


def test_it_presses_keys_and_sees_the_screen() -> None:
    page = {"command": "seq 500 | less", "wait": 60}
    shown, end, left = answers(
        run(
            ("shell_run", page),
            ("shell_type", {"keys": ["G"]}),
            ("shell_type", {"keys": ["q"], "wait": 60}),
        )
    )

    assert "\n[waiting for input, it reads keys, in /" in shown
    assert shown.partition("[screen]\n")[2].startswith("1\n2\n")
    assert "500" in end.partition("[screen]\n")[2]
    assert "[done, exit code 0, in /" in left


def test_nothing_is_typed_at_the_prompt_of_the_shell(folder: Path) -> None:
    _, refused, both, after = answers(
        run(
            ("shell_run", {"command": "true"}),
            ("shell_type", {"text": "touch typed"}),
            ("shell_type", {"text": "x", "keys": ["q"]}),
            ("shell_run", {"command": "sleep 0.2; ls"}),
        )
    )

    assert "no command is running, so the input would not be read" in refused
    assert "either 'text' or 'keys'" in both
    assert "\n" not in after


@pytest.mark.parametrize(
    "rule",
    [
        "{deny: std.run_command}",
        "{deny: std.shell_run}",
        "{allow: std.run_command, when: \"${{ only_runs(args.command, ['ls']) }}\"}",
    ],
)
def test_rules_about_commands_hold_in_a_shell(rule: str, folder: Path) -> None:
    path = folder / "config" / "flowengine" / "rules.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"rules:\n  - {rule}\n  - {{ask: '*'}}\n")

    with Engine("store") as engine:
        response = run(("shell_run", {"command": "touch /src/x"}), engine=engine)

    if "deny" in rule:
        assert "(deny: std." in answers(response)[0]
    else:
        assert [one["title"] for one in response.waits]


def test_what_is_typed_is_asked_about_where_commands_are(folder: Path) -> None:
    path = folder / "config" / "flowengine" / "rules.yaml"
    path.parent.mkdir(parents=True)
    rule = "{allow: std.run_command, when: \"${{ only_runs(args.command, ['cat']) }}\"}"
    path.write_text(f"rules:\n  - {rule}\n")

    with Engine("store") as engine:
        response = run(
            ("shell_run", {"command": "cat"}), ("shell_type", {"text": "hello"}), engine=engine
        )

    [wait] = response.waits
    assert wait["title"] == "Call shell_type: text hello?", wait
