"""A shell on a terminal that lasts, and is told apart into commands.

| module | holds |
|---|---|
| `requests` | what the engine asks of the terminals of a sandbox |
| `terminal` | a terminal: its commands, one after another |
| `command` | a command while it runs; `waiters` who waits for an answer |
| `handover` | its way into the shell; `ending` how it is made to end |
| `answers` | what is told of it, and written down |
| `shell` | the shell; `files` the pipes by which it is led |
| `lines` | the lines that the shell reads beside its commands |
| `foreground` | what the processes do: whether one waits for input |
| `tmux` | the terminal itself; `stream` what is written to it |
| `text`, `transcript` | what was written to it: as text, kept, and in records |
"""
