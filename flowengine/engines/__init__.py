"""Engines, which drive the kernel."""
