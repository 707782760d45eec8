"""The engines: they drive the kernel."""
