"""The server: an HTTP API over a store, with identities, rights and an audit record.

It drives no executions. A start or a decision is recorded in the store, and the process that drives
the execution takes it from there.
"""
