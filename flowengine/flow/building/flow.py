"""`Flow`: a flow built in Python.

It holds the declarations, each with its place. `assemble` converts them to data, which is run,
checked and written out by the same loader, checker and compiler as for a file.
"""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

from flowengine import flow as language
from flowengine.errors import UsageError
from flowengine.flow.building import conversions
from flowengine.flow.building.graph import Declared, FlowGraph
from flowengine.flow.building.origins import here


class Flow(FlowGraph):
    """A flow built in Python, which the engine accepts wherever it accepts the path of a file.

        flow = Flow("refund", inputs={"customer": str, "amount": float})

        @flow.step(retry=3)
        def check(customer: str) -> dict[str, float]: ...

    Steps run in the order of their declaration unless `to`, `first`, `fork`, `on` or `next` change
    it. The rules are those of a flow file.

    Args:
        id: The flow's name.
        inputs: Name → type or JSON Schema, or a dataclass, TypedDict or pydantic model.
        state: The same, for values that steps write.
        folder: Directory with the modules of the functions. Default: that of the calling module.
        **more: Other top-level keys of a flow file: `version`, `title`, `limits`, `defaults`,
            `on_error`, …
    """

    def subflow(
        self, id: str, *, inputs: Declared = None, state: Declared = None, **more: Any
    ) -> Flow:
        """Declare a flow that steps of this one run: `flow.step("check", flow=child, with_={...})`.

        It has separate inputs, outputs, state and steps. Tools, signals and secrets are shared.

        Args:
            id: Its name.
            inputs: As in `Flow`.
            state: As in `Flow`.
            **more: Other keys of a flow in `flows`: `limits`, `on_error`.

        Returns:
            The flow, to declare steps in.
        """
        inner = Flow(id, folder=self.folder, **more)
        inner.place, inner.root = here(), self.root
        inner.declare_fields("inputs", inputs)
        inner.declare_fields("state", state)
        around = self.root
        assert isinstance(around, Flow)
        around.subflows[id] = inner
        self.changed()
        return inner

    # Results

    def compile(self) -> language.compile.Compiled:
        """Check and compile the flow. An unchanged flow is compiled only once.

        Returns:
            The compiled form, its structural hash and the warnings.

        Raises:
            UsageError: It is a subflow, which runs inside another flow.
            FlowFileError: It has errors. The exception contains all of them, with their places in
                Python.
        """
        if self.root is not self:
            raise UsageError(
                f"{self!r} is a part of {self.root!r}", hint="a step of that flow runs it"
            )
        if self._compiled is None:
            self._compiled = language.compile.compile_source(
                conversions.assemble(self), self.folder
            )
        return self._compiled

    def to_yaml(self) -> str:
        """Return the flow as a file, with every short form expanded.

        A file in `folder` with this text has the same structural hash. Comments of a file that the
        flow was read from are not included.

        Returns:
            YAML.

        Raises:
            FlowFileError: The flow has errors.
        """
        return conversions.expanded(conversions.loaded(self))

    def to_python(self) -> str:
        """Return Python code that builds `flow`, with the same structural hash.

        Functions are named as `module:function`, so the code does not import them.

        Returns:
            The text of a module.

        Raises:
            FlowFileError: The flow has errors.
        """
        return conversions.program(conversions.loaded(self).plain())

    @classmethod
    def from_yaml(cls, path: str | PathLike[str]) -> Self:
        """Read a flow file, to inspect it, extend it, or write it out.

        Args:
            path: The file.

        Returns:
            The flow. Errors in it are reported when it is compiled, with their places in the file.

        Raises:
            FlowFileError: The file is not YAML, or not a mapping.
        """
        return cls._read(conversions.read(fspath(path)), Path(path).resolve().parent)

    @classmethod
    def from_text(cls, text: str, folder: str | PathLike[str] = ".") -> Self:
        """Read a flow from the text of a file.

        Args:
            text: YAML.
            folder: Directory with the modules of its functions.

        Returns:
            The flow, as from `from_yaml`.

        Raises:
            FlowFileError: The text is not YAML, or not a mapping.
        """
        return cls._read(conversions.read_text(text), Path(folder).resolve())

    @classmethod
    def _read(cls, source: conversions.Source, folder: Path) -> Self:
        flow = cls("", folder=folder)
        conversions.adopt(flow, source)
        return flow
