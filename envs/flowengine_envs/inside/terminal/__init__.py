"""A persistent shell on a terminal, whose output is split into commands.

| module | contents |
|---|---|
| `requests` | the engine's requests for the terminals of a sandbox |
| `terminal` | a terminal: its commands, one after another |
| `command` | a running command, answers about it, its records and output |
| `handover` | passes a command to the shell, through pipes |
| `ending` | the end of a command: checks for it and for input, and signals |
| `shell` | the shell and its output |
| `foreground` | the state of the processes: whether one waits for input |
| `tmux` | the terminal itself, and its viewers |
"""
