"""The bookkeeping of a manager: specs, their openings, the states of these, and their holders."""
