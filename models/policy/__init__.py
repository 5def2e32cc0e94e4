"""What the operator wants: the policy file."""
