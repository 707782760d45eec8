"""Executions that live in Temporal: their history is the journal, and workers drive them."""
