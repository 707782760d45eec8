"""Standard output and standard error: results, messages, colours, logs."""
