"""The pure kernel: a flow's graph, an execution's state, and `advance` between them.

It reads no clock, no randomness, no file and no network; time and ids come inside events. The same
graph and the same events give the same state and the same commands on every machine.
"""

from flowengine.kernel.advance import ENDED, advance, pending, running
from flowengine.kernel.initial import new_state
from flowengine.kernel.linked import Graph

__all__ = ["ENDED", "Graph", "advance", "new_state", "pending", "running"]
