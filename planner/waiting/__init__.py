"""Why jobs wait once a plan is applied: for each job the most severe reason that applies, with numbers."""
