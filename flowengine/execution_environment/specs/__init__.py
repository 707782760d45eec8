"""What a spec may say, and the providers and sandboxes that it can name."""
