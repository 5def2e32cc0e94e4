"""How many more jobs fit, and what a demand would take."""
