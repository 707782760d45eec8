"""Models behind one interface: requests, replies, and the resolution of model names.

`resolve("provider/model")` returns a `Model`. The library for providers is loaded on the first call
of a model, not on import.
"""

from __future__ import annotations

from flowengine.agents.models.failures import ContextWindowExceeded, ModelError, RateLimited
from flowengine.agents.models.port import (
    FunctionCalling,
    Listener,
    Message,
    Model,
    ModelFacts,
    ModelReply,
    ModelRequest,
    ReplyPart,
    Usage,
)
from flowengine.agents.models.registry import prepare, register, resolve, unregister, using
from flowengine.agents.text_calls.marked_form import CallFault, ModelCall, ToolOffer

__all__ = [
    "CallFault",
    "ContextWindowExceeded",
    "FunctionCalling",
    "Listener",
    "Message",
    "Model",
    "ModelCall",
    "ModelError",
    "ModelFacts",
    "ModelReply",
    "ModelRequest",
    "RateLimited",
    "ReplyPart",
    "ToolOffer",
    "Usage",
    "prepare",
    "register",
    "resolve",
    "unregister",
    "using",
]
