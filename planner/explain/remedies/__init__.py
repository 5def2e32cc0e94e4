"""Search for remedies: the fewest and smallest changes that make a waiting job start."""
