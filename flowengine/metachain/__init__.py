"""`MetaChain`: runs agents that are Python objects, as executions of a flow.

The flow is generated from the agents, and an engine runs it like any other. So what holds for
flows holds here: crash and resume, approvals, history.
"""

from flowengine.metachain.chain import MetaChain
from flowengine.metachain.work import AgentRunFailed

__all__ = ["AgentRunFailed", "MetaChain"]
