"""How an execution continues after a process died, and how what failed begins anew."""
