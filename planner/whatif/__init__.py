"""What-if: worlds that differ from a snapshot and its policy, planned and compared."""
