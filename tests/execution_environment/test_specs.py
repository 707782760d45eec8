# Shows E102
"""Valid and invalid specs (E2, E10, E31, E100 to E102, E105, E114's refusal)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from flowengine.errors import UsageError
from flowengine.execution_environment import (
    EnvironmentManager,
    SpecInvalid,
    register_provider,
    register_sandbox,
    unregister_provider,
    unregister_sandbox,
)
from flowengine.execution_environment.specs.spec import json_schema
from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import AXES, Capabilities, Provider, Request, Sandbox, Spec
from tests.execution_environment.toy import SPEC, Toy


def faults(manager: EnvironmentManager, spec: Any) -> dict[str, str]:
    """Return the errors of a spec, by path."""
    with pytest.raises(SpecInvalid) as invalid:
        manager.declare(spec)
    assert manager.list() == []
    return {fault.path: fault.message for fault in invalid.value.faults}


# Shows E105
def test_all_faults_are_told_at_once_with_the_nearest_right_name(
    manager: EnvironmentManager, toy: Toy
) -> None:
    found = faults(
        manager,
        {
            "kind": "toy",
            "scope": "galaxy",
            "resourcekey": "x",
            "provider": "namespce",
            "config": {"imag": "x", "size": "many", "token": "SEKRET"},
            "policy": {"netwrk": "none", "allow": "ls"},
            "limits": {"memory": -1, "cpus": float("nan"), "time": "0s", "mem": 1, "disk": "lots"},
            "needs": {"isolation": "conainer", "netwrk": True, "memory": 1},
            "approval": "required",
            "on_wait": "soon",
        },
    )

    assert found == {
        "scope": "is 'galaxy'; known: action_call, agent, execution, global, region, request, "
        "session",
        "resourcekey": "is unknown; did you mean 'resource_key'?",
        "provider": "there is no 'namespce' for this kind; known: toy",
        "config.imag": "is unknown; did you mean 'image'?",
        "config.size": "must be a whole number",
        "config.token": "must be a reference to a secret, secret:NAME, and not its value",
        "policy.netwrk": "is unknown; did you mean 'network'?",
        "policy.allow": "must be a list",
        "limits.memory": "must be greater than 0",
        "limits.cpus": "must be a finite number",
        "limits.time": "must be greater than 0",
        "limits.mem": "is unknown; did you mean 'memory'?",
        "limits.disk": "is not a valid size: write for example 512MiB or 2GB",
        "needs.isolation": "is none, process, namespace, container; did you mean 'container'?",
        "needs.netwrk": "is unknown; did you mean 'network'?",
        "needs.memory": "must be true",
        "approval": "is only for environments of a flow file, whose calls wait for an approver. "
        "Declare it there, or leave 'approval' out, since a program that opens an environment "
        "consents to it",
        "on_wait": "is not a valid duration: write for example 90s, 15m or 1h30m",
    }


@pytest.mark.parametrize(
    ("spec", "place", "message"),
    [
        ({"kind": "toi"}, "kind", "there is no kind 'toi'; did you mean 'toy'?"),
        ({"kind": "search"}, "kind", "search needs no environment: use a tool, 'web_search'"),
        ({}, "kind", "is missing"),
        ({"kind": 7}, "kind", "must be text"),
        ([], "", "must be a mapping such as {'kind': 'python'}"),
        ({"kind": "toy", "config": 3}, "config", "must be a mapping"),
        ({"kind": "toy", "resource_key": ""}, "resource_key", "must be text of at least 1"),
        ({"kind": "toy", "provider": []}, "provider", "must be a list of at least 1"),
        ({"kind": "toy", "limits": {"processes": True}}, "limits.processes", "must be a number"),
        ({"kind": "toy", "policy": {"network": ["*x"]}}, "policy.network.0", "is not a pattern"),
        ({"kind": "mcp", "config": {"env": {"x": 1}}}, "config.env.x", "must be text"),
    ],
)
# Shows E78
def test_a_fault_is_told_at_its_place(
    manager: EnvironmentManager, toy: Toy, spec: Any, place: str, message: str
) -> None:
    assert message in faults(manager, spec)[place]


# Shows E100
def test_sizes_and_times_are_read(manager: EnvironmentManager, toy: Toy) -> None:
    toy.holds = dict.fromkeys(AXES, "by hand")
    limits = {"memory": "2GiB", "disk": "1.5MB", "output": 100, "time": "1m30s", "total_time": 0.5}

    seen = manager.ensure({**SPEC, "limits": limits}).resource.request.limits

    assert (seen.memory, seen.disk, seen.output) == (2**31, 1_500_000, 100)
    assert (seen.time, seen.total_time, seen.cpus) == (90.0, 0.5, None)


# Shows E2
def test_the_schema_of_specs_is_current() -> None:
    import os

    path = Path(__file__).parents[2] / "schemas" / "environment-1.schema.json"
    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)

    assert path.read_text() == text, "UPDATE_GOLDEN=1 makes it anew"


@pytest.mark.parametrize(
    ("on_wait", "is_right"),
    [("keep", True), ("release", True), ("10m", True), (70, True), (0, False), ("kep", False)],
)
def test_the_schema_and_the_manager_agree_about_a_wait(
    manager: EnvironmentManager, toy: Toy, on_wait: Any, is_right: bool
) -> None:
    spec = {**SPEC, "on_wait": on_wait}

    assert Draft202012Validator(json_schema()).is_valid(spec) == is_right
    if is_right:
        assert manager.ensure(spec).state == "ready"
    else:
        assert "on_wait" in faults(manager, spec)


# Enforced limits


# Shows E101
def test_a_limit_that_nobody_holds_is_refused_or_told(
    manager: EnvironmentManager, toy: Toy
) -> None:
    toy.holds = {"memory": "cgroup v2"}
    spec = {**SPEC, "limits": {"memory": "1GiB", "processes": 10}}

    with pytest.raises(EnvironmentUnavailable, match=r"limits\.processes .*'toy'.*best_effort"):
        manager.ensure(spec)
    handle = manager.ensure({**spec, "limits": {**spec["limits"], "best_effort": True}})

    assert toy.opens == 1
    assert handle.unenforced == ["processes"]
    assert handle.capabilities.holds == {"memory": "cgroup v2"}
    seen = manager.inspect(handle.id)
    assert seen is not None
    assert (seen["unenforced"], seen["held"]) == (["processes"], {"memory": "cgroup v2"})


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"needs": {"isolation": "container"}}, "requires isolation 'container'.*gives 'none'"),
        ({"needs": {"filesystem": True}}, "requires that 'filesystem' is enforced"),
        ({"policy": {"network": "none"}}, r"policy\.network cannot be enforced"),
        ({"policy": {"network": ["db:5432"]}}, r"policy\.network cannot be enforced"),
        ({"policy": {"writable": ["/tmp"]}}, r"policy\.writable cannot be enforced"),
    ],
)
def test_what_cannot_be_proved_here_is_refused_before_anything_starts(
    manager: EnvironmentManager, toy: Toy, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(EnvironmentUnavailable, match=told):
        manager.ensure({**SPEC, **more, "limits": {"best_effort": True}})

    assert toy.tries == 0
    assert manager.ensure({**SPEC, "policy": {"network": "any"}}).state == "ready"


# Sandboxes


class Boxed(Toy):
    """A toy that runs in sandboxes."""

    sandbox = "strong"


class Strong(Sandbox):
    name = "strong"
    missing: str | None = None

    @classmethod
    def capabilities(cls) -> Capabilities:
        return Capabilities("namespace", {"network": "own namespace", "memory": "cgroup"})

    @classmethod
    async def probe(cls, spec: Spec) -> None:
        if cls.missing:
            raise EnvironmentUnavailable(cls.missing)


class Weak(Strong):
    name = "weak"
    missing: str | None = None

    @classmethod
    def capabilities(cls) -> Capabilities:
        return Capabilities("none")


@pytest.fixture
def boxed() -> Iterator[Boxed]:
    provider = Boxed("boxed")
    register_provider(provider)
    register_sandbox(Strong)
    register_sandbox(Weak)
    Strong.missing = Weak.missing = None
    yield provider
    unregister_provider("boxed")
    unregister_sandbox("strong")
    unregister_sandbox("weak")


def test_nothing_falls_back_to_what_the_spec_does_not_name(
    manager: EnvironmentManager, boxed: Boxed
) -> None:
    Strong.missing = "there is no strong one here; say 'provider: weak'"

    with pytest.raises(EnvironmentUnavailable, match="say 'provider: weak'"):
        manager.ensure({"kind": "boxed"})

    assert boxed.tries == 0


def test_where_none_can_be_had_every_reason_is_told(
    manager: EnvironmentManager, boxed: Boxed
) -> None:
    Strong.missing, Weak.missing = "no strong one", "no weak one"

    with pytest.raises(EnvironmentUnavailable) as unavailable:
        manager.ensure({"kind": "boxed", "provider": ["strong", "weak"]})

    assert "strong: no strong one; weak: no weak one" in str(unavailable.value)


def test_a_start_that_fails_is_no_reason_for_another_sandbox(
    manager: EnvironmentManager, boxed: Boxed
) -> None:
    async def fails(request: Request) -> Any:
        raise OSError("no luck")

    boxed.open = fails
    with pytest.raises(Exception, match="no luck"):
        manager.ensure({"kind": "boxed", "provider": ["strong", "weak"]})

    assert boxed.tries == 1


# Providers


class Whole(Provider[Any]):
    kind = "whole"

    async def probe(self, spec: Spec) -> None: ...
    async def ensure(self, request: Request) -> Any: ...
    def health_check(self, resource: Any) -> bool:
        return True

    async def release(self, resource: Any) -> None: ...


def test_a_provider_without_a_kind_or_base_is_refused() -> None:
    with pytest.raises(UsageError, match="has no 'kind'"):
        register_provider(type("Nameless", (Provider,), {})())
    duck: Any = type("Duck", (), dict(vars(Whole)))
    with pytest.raises(UsageError, match="not derived"):
        register_provider(duck())


# Shows E108
def test_a_second_provider_of_a_kind_is_refused_and_the_first_stays(
    manager: EnvironmentManager, toy: Toy
) -> None:
    with pytest.raises(UsageError, match="'toy' already"):
        register_provider(Toy())

    manager.ensure(SPEC)
    assert toy.opens == 1
