"""The pure kernel: a flow's graph, an execution's state, and `advance` between them.

It reads no clock, no randomness, no file and no network; time and ids come inside events. The same
graph and the same events give the same state and the same commands on every machine.
"""

from flowengine.kernel.advance import ENDED, advance, pending, running
from flowengine.kernel.linked import Graph
from flowengine.kernel.state import State, new_state

__all__ = ["ENDED", "Graph", "State", "advance", "new_state", "pending", "running"]
