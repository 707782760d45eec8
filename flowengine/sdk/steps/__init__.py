"""What implements an action of a flow: its interface, and the context of its attempts."""
