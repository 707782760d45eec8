"""A flow's own state: typed values, written through reducers by tokens in parallel."""
