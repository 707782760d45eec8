"""What drives the kernel."""
