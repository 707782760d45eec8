"""The program that runs inside a sandbox and carries out the engine's requests.

It is sent through its own standard input at startup, so a sandbox needs only Python 3.9 or newer
with its standard library. It communicates over standard input and output, and listens nowhere.
Modules used by both sides are in `link` and `workspaces`.

| module | contents |
|---|---|
| `server` | requests and answers |
| `loop` | single-threaded event loop for descriptors, timers and new files |
| `programs` | starts a program so that all its descendants can be ended |
| `keepers` | the processes below which programs run |
| `fork_servers` | programs that stay loaded and fork a process for each run |
| `killing` | ends process trees |
| `system` | Linux system calls that Python does not provide |
| `commands` | runs one program to its end, and captures its output |
| `file_requests` | requests for files |
| `reserve` | the reserve of free space |
| `forwarding` | forwards connections to the allowed places |
| `worker` | the supervisor's side of the process that runs Python code |
| `python_worker` | that process |
| `terminal` | a persistent shell on a terminal, a package with its own table |
| `first_process` | replaces the supervisor in a sandbox for one program |
"""
