"""Workspaces: their files, their disk usage, and the files that other programs obey.

`files`, `disk_usage` and `disk_pace` are also sent into sandboxes, so they need only the standard
library.
"""
