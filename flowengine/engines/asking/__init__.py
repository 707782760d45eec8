"""Those who are asked beside the approvers: programs that decide about calls, and users who log in.

They are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.engines.asking import logins, tool_authority

__all__ = ["logins", "tool_authority"]

__getattr__ = modules(__name__, *__all__)
