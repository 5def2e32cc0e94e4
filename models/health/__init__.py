"""What was measured of GPUs, the rules that judge it, and what they find."""
