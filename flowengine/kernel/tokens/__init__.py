"""Where tokens go, how they meet, and how one enters a step."""
