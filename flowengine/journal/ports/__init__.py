"""The ports of a store, each with one promise."""
