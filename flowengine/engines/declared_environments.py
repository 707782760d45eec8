"""A single environment that a flow file declares: its spec for the manager."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowengine.engines.environments.requests import spec_of
from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.engines.flows import LANGUAGE
from flowengine.errors import InputError, NotFound, UsageError
from flowengine.execution_environment import EnvironmentManager
from flowengine.flow.compile import Compiled, compile_source
from flowengine.flow.source.yaml_source import read
from flowengine.kernel.expressions.names import computed_inputs
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.sdk.python.argument_checks import check_input_names

_SECTIONS = frozenset({"flowengine", "id", "imports", "inputs", "secrets", "environments"})
"""Sections that a declaration of an environment may refer to."""
_USE = ""
"""A name that no input has."""


class DeclaredEnvironments:
    """The environments of a flow file.

    Raises:
        FlowFileError: The file cannot be read.
        NotFound: The file does not exist.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._source = read(path)
        self._data = self._source.data if isinstance(self._source.data, dict) else {}
        if not self._data:
            self._compiled()

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The inputs that the flow declares: name → JSON Schema."""
        return _map(self._data.get("inputs"))

    def args(self, name: str) -> Mapping[str, Any]:
        """Return the arguments of an environment: name → JSON Schema."""
        return _map(_map(self._declaration(name).get("args")).get("properties"))

    def of_kind(self, kind: str) -> list[str]:
        """Return the names of the environments of a kind."""
        declared = _map(self._data.get("environments"))
        return [str(name) for name, what in declared.items() if _map(what).get("kind") == kind]

    def find(self, kind: str, name: str | None) -> str:
        """Return the name of an environment.

        Args:
            kind: The kind that it must have.
            name: The requested name. None: the only environment of this kind.

        Returns:
            The name.

        Raises:
            NotFound: No environment matches.
            UsageError: It is of another kind, or no name is given and there are several.
        """
        fitting = self.of_kind(kind)
        known = f"environments of kind '{kind}' there: {', '.join(fitting) or 'none'}"
        if name is None:
            if len(fitting) == 1:
                return fitting[0]
            raise UsageError(f"which environment of {self.path}?", hint=known)
        found = self._declaration(name).get("kind")
        if found is None:
            raise NotFound(f"{self.path} declares no environment '{name}'", hint=known)
        if found != kind:
            raise UsageError(f"'{name}' is of kind '{found}', not '{kind}'", hint=known)
        return name

    def spec(
        self,
        name: str,
        args: Mapping[str, Plain],
        inputs: Mapping[str, Plain],
        owner: str,
        manager: EnvironmentManager,
    ) -> dict[str, Any]:
        """Return the spec of an environment, with its expressions evaluated.

        Args:
            name: Name of the environment.
            args: Its arguments.
            inputs: The inputs that it refers to.
            owner: Its owner, in the scope `execution`.
            manager: The manager, which registers the mounted directories.

        Returns:
            The spec.

        Raises:
            FlowFileError: The declaration has errors.
            InputError: It refers to a missing input.
        """
        compiled = self._compiled({name: dict(args)})
        flow = compiled.flow
        [(_, use)] = flow["steps"][0]["input"][1]["environments"][1].items()
        flow["defaults"] = [*flow.get("defaults", ()), [_USE, use]]
        graph = LinkedFlow(flow, compiled.form, LANGUAGE).graph
        try:
            given = computed_inputs(graph, self._given(flow, inputs), {"id": owner}, 0)[_USE]
        except EvaluationError as error:
            raise InputError(
                f"'{name}' cannot be evaluated: {error.message}", hint="give inputs: -i NAME=VALUE"
            ) from None
        return spec_of(manager, given, owner, os.getcwd(), flow.get("secrets", {}))

    def _declaration(self, name: str) -> Mapping[str, Any]:
        """Return the declaration of an environment in a file or one of its imports."""
        alias, dot, inner = name.partition(".")
        if not dot:
            return _map(_map(self._data.get("environments")).get(name))
        path = _map(self._data.get("imports")).get(alias)
        if not isinstance(path, str):
            return {}
        beside = Path(self.path).parent / path
        return DeclaredEnvironments(str(beside))._declaration(inner) if beside.is_file() else {}

    def _given(self, flow: Any, inputs: Mapping[str, Plain]) -> dict[str, Plain]:
        """Return the inputs, completed with constant defaults."""
        schemas = flow.get("inputs", {})
        check_input_names(inputs, schemas)
        computed = {name for name, _ in flow["defaults"]}
        constant = {
            name: schema["default"]
            for name, schema in schemas.items()
            if "default" in schema and name not in computed
        }
        return {**constant, **inputs}

    def _compiled(self, use: Mapping[str, Any] | None = None) -> Compiled:
        """Compile the declarations alone, with a step that uses one of them."""
        if use is not None:
            for key in [section for section in self._data if section not in _SECTIONS]:
                del self._data[key]
            self._data["steps"] = [{"id": "use", "run": {"command": ["true"]}, "in": use}]
        return compile_source(self._source, str(Path(self.path).resolve().parent))


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
