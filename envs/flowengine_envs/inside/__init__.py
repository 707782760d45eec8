"""The program that runs inside a sandbox and does there what the engine asks for.

It is sent through its own standard input when it starts, so a sandbox needs nothing of this
project: only Python 3.9 or newer with its standard library. It speaks over standard input and
output; nothing listens anywhere. What both sides need is in `link` and `workspaces`.

| module | holds |
|---|---|
| `server` | requests and answers |
| `loop` | waiting for many descriptors and times with one thread |
| `programs` | starting a program so that all it starts can be ended |
| `keepers` | the processes below which programs run; `children` what becomes of those that end |
| `fork_servers` | programs that stay loaded and fork a process for each run |
| `system` | the calls of Linux that Python does not have |
| `output` | capturing output: the beginning, the end, the count, and all of it in a file |
| `commands` | one program run to its end |
| `file_requests` | what the engine asks of them |
| `forwarding` | connections, led out to the places that may be reached |
| `worker` | the engine's side of the process in which Python code runs |
| `python_worker` | that process |
| `terminal` | a shell on a terminal that lasts: a package with a table of its own |
| `first_process` | runs in its place where a sandbox has one program only |
| `inotify` | being told of files that are made in a folder |
"""
