"""The company's code: here, mail."""
