"""The ports of a store, one for each guarantee."""
