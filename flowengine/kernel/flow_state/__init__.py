"""The state of a flow: typed values, written through reducers by parallel tokens."""
