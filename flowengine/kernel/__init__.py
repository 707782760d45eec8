"""The pure kernel: graph, events, commands, state."""
