"""Observability: events and metrics."""
