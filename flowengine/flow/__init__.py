"""From a file to a compiled flow."""
