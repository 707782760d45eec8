"""Models behind one port: what is asked of one, what it answers, and which one answers to a name.

`resolve("provider/model")` returns a `Model`. The library behind the models of providers is
loaded when one of them is asked, never by an import.
"""

from __future__ import annotations

from flowengine.agents.models.errors import ContextWindowExceeded, ModelError, RateLimited
from flowengine.agents.models.port import (
    CallFault,
    FunctionCalling,
    Listener,
    Message,
    Model,
    ModelCall,
    ModelFacts,
    ModelReply,
    ModelRequest,
    ReplyPart,
    Usage,
)
from flowengine.agents.models.registry import prepare, register, resolve, unregister, using
from flowengine.agents.text_calls.records import ToolOffer

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
