"""Models behind one port: what is asked of a model, and what comes back."""
