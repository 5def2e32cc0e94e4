"""Convert index-based assignments to the desired state, and back."""
