"""What keeps a unit from going on although its step may begin: locks, budgets, places in a map."""
