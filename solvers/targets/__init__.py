"""From assignments of indices to the desired state, and back."""
