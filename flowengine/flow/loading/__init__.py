"""From a source to models, with the files that it imports."""
