"""Workspaces: their files, the free space around them, and the files that other programs obey.

`files` and `free_space` are also sent into sandboxes, so they need only the standard library.
"""
