"""A persistent shell on a terminal, whose output is split into commands.

| module | contents |
|---|---|
| `requests` | the engine's requests for the terminals of a sandbox |
| `terminal` | a terminal: its commands, one after another |
| `command` | a running command |
| `handover` | passes a command to the shell, and the lines around it |
| `ending` | the end of a command: checks for it and for input, and signals |
| `answers` | answers about a command, requests that wait for it, and records |
| `shell` | the shell |
| `files` | the pipes that control the shell |
| `foreground` | the state of the processes: whether one waits for input |
| `tmux` | the terminal itself |
| `stream` | the output of the terminal |
| `transcript` | stored output, in memory and in records |
| `watching` | sends the screen to viewers |
"""
