"""Flows in the form that the engine uses: compiled, and named by a hash."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine import flow as language
from flowengine.engines import flow_cache
from flowengine.engines.executions.linked_flows import Language, functions_of
from flowengine.engines.executions.reducers import reducers_of
from flowengine.errors import FlowFileError, UsageError
from flowengine.flow import building
from flowengine.flow.export.networkx_graph import networkx_graph
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.structural_hash import form_hash, structural_hash
from flowengine.journal.shapes import Sound
from flowengine.kernel.graph import environment_uses
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec
from flowengine.sdk.python.argument_checks import in_words
from flowengine.sdk.python.imported_modules import only_modules
from flowengine.util.files import check_path, source_digest

if TYPE_CHECKING:
    from networkx import MultiDiGraph

    _Graph = MultiDiGraph[str]  # generic for type checkers only

_FILE_TOOLS = frozenset({"read_file", "write_file", "edit_file", "glob", "search_files"})
"""Tools of `std` that work in the working directory unless they have an environment of files."""
_DOCUMENT_TOOLS = {"read_document": "path", "visit_page": "address"}
"""The same, where this argument may name a file."""
_AT_LAST = " (if no sandbox starts)"


class LoadedFlow(NamedTuple):
    """A checked and compiled flow, ready to run. Contains only plain data."""

    compiled: CompiledFlow
    form: str
    """The hash by which a store identifies it. See `form_hash`."""
    warnings: list[dict[str, Any]] = []  # noqa: RUF012 - never mutated
    """The warnings of the check: `{file, line, column, code, message, hint}` each."""

    def __repr__(self) -> str:
        return f"<loaded flow {self.id}>"

    @property
    def hash(self) -> str:
        """Return the structural hash, which is the same for files with the same meaning."""
        return structural_hash(self.compiled)

    @property
    def id(self) -> str:
        """Return the flow's `id`."""
        return self.compiled["id"]

    @property
    def version(self) -> str:
        """Return the flow's `version`."""
        return self.compiled["version"]

    @property
    def inputs(self) -> dict[str, Any]:
        """Return the declared inputs: name → JSON Schema. Inputs without `default` are required."""
        return self.compiled.get("inputs", {})

    @property
    def host_steps(self) -> list[str]:
        """Return the ids of the steps that run programs on this host as the user, each once.

        Such steps declare `in: host`, or use an environment with `provider: host`. Tools that
        execute model-written code are in `host_agents`, MCP servers are in `host_servers`.
        """
        steps = (step for step in self.compiled["steps"] if "caller" not in step)
        return list(dict.fromkeys(step["id"] for step in steps if _is_on_host(step)))

    @property
    def host_agents(self) -> dict[str, list[str]]:
        """Return agents → their tools that run model-written code on this host, as the user."""
        names: dict[str, dict[str, None]] = {}
        for step in self.compiled["steps"]:
            if "caller" in step and _is_on_host(step):
                names.setdefault(step["caller"], {})[step.get("tool", step["id"])] = None
        return {agent: list(tools) for agent, tools in names.items()}

    @property
    def host_servers(self) -> dict[str, bool]:
        """Return MCP servers on this host → whether they run here only if no sandbox starts."""
        names: dict[str, bool] = {}
        for step in self.compiled["steps"]:
            names |= environment_uses.servers_on_host(environment_uses.of_step(step))
        return names

    @property
    def host_files(self) -> dict[str, list[str | None]]:
        """Return what uses files of this host without a sandbox → their paths.

        These are steps and secrets: `step 'a'`, `secret 'key'`. An environment names its path, or
        an expression determines it (None). Built-in tools for files and documents without an
        environment of files use the working directory (`.`).
        """
        uses: dict[str, list[str | None]] = {
            f"secret '{name}'": [secret["file"]]
            for name, secret in self.compiled.get("secrets", {}).items()
            if "file" in secret
        }
        for step in self.compiled["steps"]:
            paths = environment_uses.host_paths(environment_uses.of_step(step))
            paths += ["."] if _is_in_working_folder(step) else []
            if paths:
                uses.setdefault(f"step '{step['id']}'", []).extend(paths)
        return uses

    @property
    def reducers(self) -> list[str]:
        """Return the Python functions used as state reducers, as `module:function`, each once."""
        return reducers_of(self.compiled)

    @property
    def functions(self) -> list[str]:
        """Return the Python functions of its steps and reducers, as `module:function`.

        A store keeps their names only: they are imported from this host when steps need them.
        """
        return functions_of(self.compiled)

    @property
    def modules(self) -> list[str]:
        """Return the Python modules of its functions, each once."""
        return list(dict.fromkeys(name.partition(":")[0] for name in self.functions))

    @property
    def on_host(self) -> str:
        """Describe everything that runs on this host as the user. Empty: nothing."""
        with Sound(f"flow {self.form}"):
            return self._on_host()

    @property
    def runs_on_host(self) -> bool:
        """Whether something runs on this host as the user even if every sandbox starts."""
        at_last = {step["id"] for step in self.compiled["steps"] if _is_on_host_at_last(step)}
        always = bool(self.host_agents) or not all(self.host_servers.values())
        return always or not at_last.issuperset(self.host_steps)

    def _on_host(self) -> str:
        at_last = {step["id"] for step in self.compiled["steps"] if _is_on_host_at_last(step)}
        steps = [f"{id}{_AT_LAST * (id in at_last)}" for id in self.host_steps]
        servers = [f"server {name}{_AT_LAST * last}" for name, last in self.host_servers.items()]
        agents = self.host_agents.items()
        written = (f"what agent {name} writes ({', '.join(tools)})" for name, tools in agents)
        return ", ".join([*steps, *servers, *written])

    def to_networkx(self) -> _Graph:
        """Return the compiled graph as a new `networkx.MultiDiGraph`, for analysis and export.

        A node is a step, named by its id, or `FLOW:ID` in a subflow. Each scope (the flow, a group,
        a `finally`) also has `SCOPE/start` and `SCOPE/end`. For the flow itself these are `/start`
        and `/end`. Attributes are strings, numbers and booleans. Attributes that do not apply are
        absent.

        Attributes of every node:
            type: `step`, `start`, `end`, `finally`, or `undo` for a compensation.
            scope: The node that contains it. Empty: directly in a flow.
            flow: Id of the flow.

        Attributes of a step and of a compensation:
            step, title, kind, tool, effect: As in the file. `kind` is `none`, `http`, `wait`, ….
            needs: Labels of the workers that can run it.
            runs: Id of the flow that it runs.
            join, need, split: How tokens meet (`each`, `all`, `active`, `count`) and leave (`one`,
                `all`, `first`, `outcome`).
            when, timeout, deadline: Text. Expressions appear as written.
            map, loop, lock: True.
            attempts: Maximum number of attempts, if more than one.
            line, column: In the flow's file. Absent for steps of other flows.

        Attributes of an edge:
            type: The type of the edge. Tokens move along `next`, `error`, `enter`, `trigger` and
                `finally`.

                - `next`: to the next step
                - `error`: from a step or the start of a flow to the target of an error handler
                - `call`: from an agent to a step that it calls
                - `enter`: from a step to the start of the group or flow that it runs
                - `begin`: to the start of a flow that it starts as a separate execution
                - `trigger`: from the start of a flow
                - `finally`: from an end
                - `undo`: to a compensation
                - `cancel`: to the target that a step cancels
            when, outcome, otherwise: When the edge is taken: on a condition, an outcome, or
                otherwise.
            errors: Types of errors, separated by spaces. Absent: any.
            compensate: True if successful steps are compensated first.
            end_all: True if the whole scope ends.
            signals, state: The condition of a trigger: signals, separated by spaces, or a state
                key.

        Attributes of the graph:
            id, version, title, hash: Of the flow.

        Returns:
            The graph. Changing it changes nothing else.
        """
        graph = networkx_graph(self.compiled)
        graph.graph["hash"] = self.hash
        return graph


def _alone(flow: CompiledFlow, number: int) -> tuple[CompiledFlow, str]:
    part = language.link.alone(flow, number)
    return part, form_hash(part, structural_hash(part))


LANGUAGE = Language(CelEvaluator, _alone)
"""The language of flow files, which hosts are given: what runs executions does not import it."""


def load(flow: building.Flow | str | PathLike[str]) -> LoadedFlow:
    """Read, check and compile a flow. An unchanged flow is loaded from the user's cache.

    Args:
        flow: The path of its file, or a flow built in Python.

    Returns:
        The flow.

    Raises:
        FlowFileError: The flow has errors. Contains all of them.
    """
    if isinstance(flow, str | PathLike):
        place = os.path.abspath(flow)
        check_path("the path", place)
        if (cached := flow_cache.find(place)) is not None:
            return LoadedFlow(*cached)
        compiled = language.compile.compile_file(fspath(flow))
        loaded = _loaded(compiled)
        flow_cache.keep(place, flow_cache.CachedFlow(*loaded), compiled.sources)
        return loaded
    check_flow(flow)
    if flow.loaded is None:  # an unchanged one is loaded once per process
        flow.loaded = _find_built(flow)
    built: LoadedFlow = flow.loaded
    return built


def check(flow: building.Flow | str | PathLike[str]) -> list[language.diagnostics.Diagnostic]:
    """Check a flow without running anything.

    Args:
        flow: The path of its file, or a flow built in Python.

    Returns:
        All errors and warnings, in file order. Empty for a valid flow.
    """
    if isinstance(flow, str | PathLike):
        return language.compile.check_file(fspath(flow)).diagnostics

    check_flow(flow)
    try:
        return list(flow.compile().diagnostics)
    except FlowFileError as error:
        return error.diagnostics


def load_text(
    text: str,
    *,
    name: str = "flow.yaml",
    folder: str = "",
    modules: Sequence[str] = (),
    host: bool = False,
) -> LoadedFlow:
    """Check and compile a flow that came as text, and reads no file of this machine.

    Args:
        text: The content of a flow file.
        name: Its name in errors.
        folder: The directory where its modules are searched first.
        modules: Patterns of the names of Python modules that it may name.
        host: Whether its tools may use the directory that its executions work in.

    Returns:
        The flow.

    Raises:
        FlowFileError: The flow has errors, or names a file or another module. Contains all of them.
    """
    with only_modules(modules, folder=host):
        return _loaded(language.compile.compile_text(text, name, folder or "/"))


def as_loaded(flow: building.Flow | LoadedFlow | str | PathLike[str]) -> LoadedFlow:
    """Return a flow as the engine runs it."""
    return flow if isinstance(flow, LoadedFlow) else load(flow)


def check_flow(flow: Any) -> None:
    """Check that a value is a flow, or the path of one.

    Raises:
        UsageError: It is something else, such as an agent.
    """
    if not isinstance(flow, LoadedFlow | str | PathLike) and not hasattr(flow, "loaded"):
        raise UsageError(
            f"{in_words(flow)} is not a flow",
            hint="give a Flow, or the path of a file. To run an agent: agent.run(…, engine=…)",
        )


def _find_built(flow: building.Flow) -> LoadedFlow:
    from flowengine.flow.building.fingerprint import fingerprint

    printed = fingerprint(flow)
    if printed is None:
        return _loaded(flow.compile())
    cached = flow_cache.find(printed.place, printed.meaning)
    if cached is not None:
        return LoadedFlow(*cached)
    compiled = flow.compile()
    loaded = _loaded(compiled)
    own = [(file, source_digest(file) or "") for file in printed.files]
    sources = [*own, *compiled.sources]
    flow_cache.keep(printed.place, flow_cache.CachedFlow(*loaded), sources, printed.meaning)
    return loaded


def _loaded(compiled: language.compile.Compiled) -> LoadedFlow:
    warnings = [diagnostic.as_dict() for diagnostic in compiled.diagnostics]
    return LoadedFlow(compiled.flow, compiled.form, warnings)


def _is_in_working_folder(step: StepSpec) -> bool:
    """Return whether a tool of `std` may use files of the working directory."""
    uses = environment_uses.by_name(step)
    if step.get("kind") != "std" or "files" in uses:
        return False
    tool = step["task"]["tool"]
    if tool not in _DOCUMENT_TOOLS:
        return tool in _FILE_TOOLS
    tag, given = step["input"][1]["input"]
    args = ["const", given["args"]] if tag == "const" else given["args"]
    may_use = step["task"].get("folder", True)  # otherwise, the tool itself refuses its files
    if args[0] not in ("const", "map"):
        return bool(may_use)  # an agent names them
    named = args[1].get(_DOCUMENT_TOOLS[tool])
    if isinstance(named, str):
        return "://" not in named
    return named is not None and may_use


def _is_on_host(step: StepSpec) -> bool:
    if (step.get("task") or {}).get("in") == "host":
        return True
    if not step.get("environments"):
        return False

    return environment_uses.are_on_host(environment_uses.of_step(step))


def _is_on_host_at_last(step: StepSpec) -> bool:
    """Return whether a step runs programs on this host only because no sandbox starts."""
    if (step.get("task") or {}).get("in") == "host":
        return False

    return environment_uses.are_on_host_at_last(environment_uses.of_step(step))
