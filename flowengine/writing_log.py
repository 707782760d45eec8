"""Whether this context writes a line of a log, which is no output of the step that runs in it."""

from __future__ import annotations

from contextvars import ContextVar

WRITING: ContextVar[bool] = ContextVar("flowengine_writing_log", default=False)
