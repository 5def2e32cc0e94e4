"""State of a plan under construction: free and used resources now and later, and the objective."""
