"""Loading of a source and its imports into models."""
