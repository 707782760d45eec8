"""Interventions of operators: fork, retry, upgrade, cancel."""
