"""What the company has of its own: here, mail."""
