"""How a step performs its action, and what follows from each outcome."""
