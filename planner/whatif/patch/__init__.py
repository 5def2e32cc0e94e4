"""Changes of a world: what a scenario says, put into effect."""
