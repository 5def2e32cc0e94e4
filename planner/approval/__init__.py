"""Approval of plans: which need it, the signatures that give it, and the approvers that may sign."""
