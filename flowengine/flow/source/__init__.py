"""A flow file as text: what is written where, and what is wrong with it."""
