"""`Runner`, which runs Python agents as executions of a flow.

The flow is generated from the agents, and an engine runs it like any other. Crash recovery,
approvals and history therefore work as for other flows.
"""
