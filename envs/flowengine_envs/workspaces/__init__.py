"""Workspaces: their files, what they take of a disk, and which of them other programs obey.

`files`, `disk_usage` and `disk_pace` are also sent into sandboxes, so they need nothing but the
standard library.
"""
