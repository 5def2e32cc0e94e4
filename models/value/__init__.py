"""Value of jobs by start time, and the cost of disruptions."""
