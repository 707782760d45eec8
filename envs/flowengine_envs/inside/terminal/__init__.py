"""A shell on a terminal that lasts, and is told apart into commands.

| module | holds |
|---|---|
| `requests` | what the engine asks of the terminals of a sandbox |
| `terminal` | a terminal: its commands, one after another |
| `command` | a command while it runs |
| `handover` | its way into the shell, and the lines around it; `ending` how it is made to end |
| `answers` | what is answered about it, who waits for it, and what is recorded |
| `shell` | the shell; `files` the pipes by which it is led |
| `foreground` | what the processes do: whether one waits for input; `looks` asks for it |
| `tmux` | the terminal itself; `stream` what is written to it |
| `transcript` | what was written to it: kept, and in records |
| `watching` | shows the screen to those who watch |
"""
