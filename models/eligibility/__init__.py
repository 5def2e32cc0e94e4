"""Eligibility: nodes that suit a job, their free resources, and preemption order."""
