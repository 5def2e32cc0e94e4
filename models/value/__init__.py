"""What jobs are worth, by their start, and what it costs to disturb them."""
