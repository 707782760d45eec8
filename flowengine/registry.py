"""Lookup of step kinds, environments and sandboxes, imported on use.

Listing names imports none of them. The built-in ones are in a table, and those of other packages
have entry points: the name is the word in flow files, and the value is the class. A package cannot
replace built-in classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from flowengine import sdk
from flowengine.errors import FlowEngineError
from flowengine.sdk.environments import Provider, Sandbox
from flowengine.sdk.python.extras import install_command
from flowengine.sdk.steps.context import CommandEnvironment, StepContext
from flowengine.sdk.steps.step_kind import StepKind
from flowengine.sdk.texts.exception_text import describe

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NODES = "flowengine.nodes"
ENVIRONMENTS = "flowengine.envs"
SANDBOXES = "flowengine.sandboxes"

BUILT_IN = {
    NODES: {
        "agent": "flowengine_nodes.agent:Agent",
        "agent_ahead": "flowengine_nodes.agent:Ahead",
        "agent_function": "flowengine_nodes.python_agents:AgentFunction",
        "agent_offer": "flowengine_nodes.agent:Offer",
        "agent_program": "flowengine_nodes.agent:Program",
        "agent_skill": "flowengine_nodes.agent:AgentSkill",
        "agent_turn": "flowengine_nodes.agent:Turn",
        "http": "flowengine_nodes.http:Http",
        "mcp": "flowengine_nodes.mcp:Mcp",
        "python": "flowengine_nodes.python:Python",
        "python_agents": "flowengine_nodes.python_agents:PythonAgents",
        "run": "flowengine_nodes.commands:Run",
        "shell": "flowengine_nodes.commands:Shell",
        "slack": "flowengine_nodes.messages:Slack",
        "smtp": "flowengine_nodes.messages:Smtp",
        "std": "flowengine_nodes.std:Std",
        "web_search": "flowengine_nodes.web_search:WebSearch",
        "webhook": "flowengine_nodes.messages:Webhook",
    },
    ENVIRONMENTS: {
        "bash": "flowengine_envs.kinds.bash:BashProvider",
        "browser": "flowengine_envs.browser.provider:BrowserProvider",
        "docker": "flowengine_envs.kinds.docker.provider:DockerProvider",
        "documents": "flowengine_envs.documents.provider:DocumentsProvider",
        "files": "flowengine_envs.kinds.files:Files",
        "host": "flowengine_envs.kinds.host:HostCommands",
        "http": "flowengine_envs.kinds.http:Http",
        "mcp": "flowengine_envs.mcp.provider:Mcp",
        "node": "flowengine_envs.kinds.node:NodeProvider",
        "python": "flowengine_envs.kinds.python:Python",
        "shell": "flowengine_envs.kinds.shell.provider:ShellProvider",
        "sqlite": "flowengine_envs.kinds.sqlite:Sqlite",
    },
    SANDBOXES: {
        "docker": "flowengine_envs.sandboxes.docker.sandbox:Docker",
        "host": "flowengine_envs.sandboxes.host:HostSandbox",
        "namespace": "flowengine_envs.sandboxes.namespace:Namespace",
    },
}
"""Group of entry points → name → class, as an entry point names it."""


_Plugin = TypeVar("_Plugin")

_Point: TypeAlias = "_BuiltIn | EntryPoint"
"""The name of a class in flow files, and where it is."""

_WHAT = {NODES: "step kind", ENVIRONMENTS: "kind of environment", SANDBOXES: "sandbox"}


class _BuiltIn(NamedTuple):
    """A built-in class, with the attributes of an entry point."""

    name: str
    value: str

    @property
    def module(self) -> str:
        return self.value.partition(":")[0]

    @property
    def dist(self) -> Any:
        """The distribution of flowengine. None: it is imported from a directory of sources."""
        from importlib.metadata import PackageNotFoundError, distribution

        try:
            return distribution("flowengine")
        except PackageNotFoundError:
            return None

    def load(self) -> Any:
        """Import the class."""
        from importlib import import_module

        return getattr(import_module(self.module), self.value.partition(":")[2])


_built_in = {
    group: {name: _BuiltIn(name, value) for name, value in classes.items()}
    for group, classes in BUILT_IN.items()
}
_points: dict[str, dict[str, _Point]] = {}
_classes: dict[tuple[str, str], tuple[_Point, type[Any]]] = {}
"""Group and name → the entry point and its loaded class: loading looks the module up again."""
_kinds: dict[str, StepKind] = {}
_environments: dict[str, CommandEnvironment] = {}
registered_providers: dict[str, Provider[Any]] = {}
"""Kind → provider that a program has registered itself."""
_providers: dict[str, Provider[Any]] = {}


class UnknownKind(FlowEngineError):
    """No installed package provides this step kind or environment, or it cannot be imported."""

    exit_code = 3


def kind_names() -> list[str]:
    """Return the names of all installed step kinds, sorted, without importing them."""
    return sorted(_all(NODES))


def has_kind(name: str) -> bool:
    """Return whether a step kind of this name is installed, without importing it."""
    return _find(NODES, name) is not None


def label(name: str, task: Mapping[str, Any]) -> str:
    """Return the label of a task in pictures: `http`, `python money:convert`, `std.print`.

    Args:
        name: Its step kind. For one that is no longer installed, the label is its name.
        task: The constant part of the compiled step.
    """
    try:
        declared = kind_class(name) if has_kind(name) else sdk.StepKind
    except UnknownKind:
        declared = sdk.StepKind
    if task.get("tool") in declared.tools():
        return f"{name}.{task['tool']}"
    return f"{name} {declared.label(task)}".strip()


def summary(teller: str, kind_name: str, output: Any) -> str | None:
    """Return a one-line summary of the output of a generated flow's step, or None.

    Args:
        teller: The step kind that generated the flow. One that is no longer installed has no
            summaries.
        kind_name: The step kind of the step.
        output: The output of the step.
    """
    try:
        return kind(teller).summary(kind_name, output)
    except Exception:  # an output can always be shown unchanged
        return None


def failure_of(teller: str, kind_name: str, output: Any) -> str | None:
    """Return why a call has failed whose step succeeded, or None if it has not.

    Args:
        teller: As for `summary`.
        kind_name: The step kind of the call.
        output: The output of the step.
    """
    try:
        return kind(teller).failure_of(kind_name, output)
    except Exception:
        return None


def adapted(
    adapter: Mapping[str, Any],
    context: StepContext,
    called: tuple[str, Mapping[str, Any], Mapping[str, Any]],
    result: Any,
) -> Any:
    """Return the output that the adapter of a step makes from the result of its call.

    Args:
        adapter: As in the compiled step: `kind` and `task`.
        context: The attempt.
        called: The called step kind, its `task` and its `input`.
        result: The result of the call.
    """
    name, task, input = called
    reader = kind(name)

    def text(value: Any, room: int) -> str | None:
        if type(reader).text_for_model is sdk.StepKind.text_for_model:
            return None
        # Text between the lines of a secret would hide it from later masking.
        shown = context.mask(value)
        try:
            return reader.text_for_model(task, input, shown, room)
        except Exception:  # the call took effect, and its output can always be shown as JSON
            return None

    return kind(adapter["kind"]).adapt(context, adapter["task"], result, text)


def environment_names() -> list[str]:
    """Return the names of all installed kinds of environment, sorted."""
    return sorted({*registered_providers, *_all(ENVIRONMENTS)})


def kinds_from(module: str) -> list[str]:
    """Return the kinds of environment in the package of a module, the nearest first.

    A kind must be loaded to find out its environments, and some load slowly.

    Args:
        module: A module, or a package. Kinds in its own directories come before others.
    """
    modules = {point.name: point.module for point in _all(ENVIRONMENTS).values()}
    modules |= {
        kind: type(registered_provider).__module__
        for kind, registered_provider in registered_providers.items()
    }
    shared = {kind: _shared_packages(module, value) for kind, value in modules.items()}
    brought = [kind for kind, depth in shared.items() if depth and kind != "host"]
    return sorted(brought, key=lambda kind: (-shared[kind], kind))


def _shared_packages(one: str, other: str) -> int:
    """Return how many enclosing packages two modules share, including themselves."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def kind_class(name: str) -> type[StepKind]:
    """Return the class of a step kind. `UnknownKind` contains the reason if there is none."""
    return _load(NODES, name, sdk.StepKind)


def kind(name: str) -> StepKind:
    """Return the single object of a step kind, with the errors of `kind_class`."""
    cls = _kinds.get(name)
    if cls is None:
        cls = _kinds[name] = kind_class(name)()
    return cls


def environment(name: str) -> CommandEnvironment:
    """Return the single object of a kind of environment, with the errors of `kind_class`."""
    cls = _environments.get(name)
    if cls is None:
        cls = _environments[name] = _load(ENVIRONMENTS, name, sdk.CommandEnvironment)()
    return cls


def sandbox_names() -> list[str]:
    """Return the names of all installed sandboxes, sorted."""
    return sorted(_all(SANDBOXES))


def provider_class(kind: str) -> type[Provider[Any]]:
    """Return the provider class of a kind of environment, with the errors of `kind_class`."""
    return _load(ENVIRONMENTS, kind, Provider)


def provider(kind: str) -> Provider[Any]:
    """Return the single provider of a kind of environment, with the errors of `kind_class`."""
    cls = registered_providers.get(kind) or _providers.get(kind)
    if cls is None:
        cls = _providers.setdefault(kind, provider_class(kind)())
    return cls


def sandbox_class(name: str) -> type[Sandbox]:
    """Return the class of a sandbox, with the errors of `kind_class`."""
    return _load(SANDBOXES, name, Sandbox)


def _find(group: str, name: str) -> _Point | None:
    return _built_in[group].get(name) or _entry_points(group).get(name)


def _all(group: str) -> Mapping[str, _Point]:
    return {**_entry_points(group), **_built_in[group]}


def _entry_points(group: str) -> dict[str, _Point]:
    points = _points.get(group)
    if points is None:
        from importlib.metadata import entry_points

        points = _points[group] = {point.name: point for point in entry_points(group=group)}
    return points


def _load(group: str, name: str, base: type[_Plugin]) -> type[_Plugin]:
    point = _find(group, name)
    what = _WHAT[group]
    if point is None:
        raise UnknownKind(
            f"there is no {what} '{name}'",
            hint=f"installed are {', '.join(sorted(_all(group)))}. Other packages can add more",
        )
    known = _classes.get((group, name))
    if known is not None and known[0] is point:
        return known[1]
    try:
        loaded = point.load()
    except ModuleNotFoundError as error:
        raise _missing(what, point, error) from error
    except Exception as error:  # a third-party package, whose modules may raise any exception
        raise UnknownKind(f"{what} '{name}' cannot be imported: {describe(error)}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise UnknownKind(f"{what} '{name}': {point.value} is not a {_path(base)}")
    _classes[group, name] = point, loaded
    return loaded


def _path(base: type) -> str:
    """Return the import path of a base class for plug-ins."""
    home = sdk.__name__ if base.__name__ in sdk.__all__ else base.__module__
    return f"{home}.{base.__name__}"


def _missing(what: str, point: _Point, error: ModuleNotFoundError) -> UnknownKind:
    """Return an error with the missing package, and the extra of the plug-in that contains it."""
    package = (error.name or "").partition(".")[0]
    dist = point.dist
    if dist is None or package == point.module.partition(".")[0]:
        return UnknownKind(f"{what} '{point.name}' cannot be imported: {error}")
    extra = _extra_with(dist, package)
    return UnknownKind(
        f"{what} '{point.name}' needs {package}, which is not installed",
        hint=install_command(extra, dist.name) if extra else f"pip install {package}",
    )


def _extra_with(dist: Any, package: str) -> str | None:
    """Return the extra of the plug-in's distribution that contains an import package."""
    import re

    wanted = package.replace("_", "-").lower()
    for requirement in dist.requires or ():
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", requirement)
        if name and extra and name[0].replace("_", "-").lower() == wanted:
            return extra[1]
    return None
