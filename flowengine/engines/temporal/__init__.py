"""Executions in Temporal: their workflow history is the journal, and workers drive them."""
