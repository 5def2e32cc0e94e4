"""Plans in files: reading, writing, and whether one was edited."""
