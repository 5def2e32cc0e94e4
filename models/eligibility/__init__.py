"""What may run where: which nodes suit a job, what is free on them, and whom a job may follow."""
