"""The flow language as models of its expanded form, without any short forms.

Field names are the keys of the file. Those that are Python keywords end in an underscore (`with_`,
`in_`, `for_`). Expressions stay text. `Part.loc` is the place of a part in its file.

The models are not pydantic's: building those and importing it took longer than all other work for
a changed flow. Modules with models do not use `from __future__ import annotations`, whose texts
would have to be compiled again at each start of a program.
"""

from flowengine.flow.models.actions import (
    Alternative,
    Approval,
    AskBeforeCall,
    AskFirst,
    Cancel,
    Choice,
    Escalation,
    Wait,
)
from flowengine.flow.models.base import Part
from flowengine.flow.models.declarations import (
    Concurrency,
    Defaults,
    Output,
    Start,
)
from flowengine.flow.models.flow import Budget, FlowBody, FlowModel, GeneratedBody, SharedBudget
from flowengine.flow.models.modifiers import (
    Emit,
    Entry,
    Every,
    Fail,
    Handler,
    Join,
    Map,
    Next,
    Retry,
)
from flowengine.flow.models.step import Compensation, ParallelStep, Pluggable, Step, Trigger
from flowengine.flow.models.tool import Environment, Tool
from flowengine.flow.source.diagnostics import Loc

__all__ = [
    "Alternative",
    "Approval",
    "AskBeforeCall",
    "AskFirst",
    "Budget",
    "Cancel",
    "Choice",
    "Compensation",
    "Concurrency",
    "Defaults",
    "Emit",
    "Entry",
    "Environment",
    "Escalation",
    "Every",
    "Fail",
    "FlowBody",
    "FlowModel",
    "GeneratedBody",
    "Handler",
    "Join",
    "Loc",
    "Map",
    "Next",
    "Output",
    "ParallelStep",
    "Part",
    "Pluggable",
    "Retry",
    "SharedBudget",
    "Start",
    "Step",
    "Tool",
    "Trigger",
    "Wait",
]
