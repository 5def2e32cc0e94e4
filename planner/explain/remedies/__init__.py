"""What would make a job start: changes, from one to the fewest that suffice."""
