"""From a file to a compiled flow. The compiler is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.flow import compile
    from flowengine.flow.compile import call_rules, link
    from flowengine.flow.source import diagnostics, yaml_source

__all__ = ["call_rules", "compile", "diagnostics", "link", "yaml_source"]

__getattr__ = modules(
    __name__,
    *("compile", "compile.call_rules", "compile.link"),
    *("source.diagnostics", "source.yaml_source"),
)
