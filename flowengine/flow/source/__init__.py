"""A flow file as text: the positions of its parts, and its errors.

The reader of YAML is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.flow.source import yaml_source

__all__ = ["yaml_source"]

__getattr__ = modules(__name__, __all__)
