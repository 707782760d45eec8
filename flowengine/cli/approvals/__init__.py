"""Shared parts of the commands on approvals."""
