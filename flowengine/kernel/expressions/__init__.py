"""The names that expressions can read, and the past of a token: earlier steps and their outputs."""
