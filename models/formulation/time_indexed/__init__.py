"""Variables and rows of later slots."""
