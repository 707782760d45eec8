"""An execution in memory: its state, its timers and shared locks; its journal, replayed."""
