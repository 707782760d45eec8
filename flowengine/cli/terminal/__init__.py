"""Standard output and standard error: results, messages, colors, logs."""
