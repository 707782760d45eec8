"""Workspaces: their files, their disk usage, and the files that other programs obey.

`files` and `disk_usage` are also sent into sandboxes, so they need only the standard library.
"""
