"""How answers are found; imports models only."""
