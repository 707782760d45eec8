"""The actions of steps, and the effects of each outcome."""
