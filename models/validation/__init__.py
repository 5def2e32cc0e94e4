"""What may be wrong with a snapshot, or lost of it."""
