"""Programs that use a server instead of a store: the methods of the engine over HTTP."""
