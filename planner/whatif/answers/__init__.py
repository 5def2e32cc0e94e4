"""Data models of the answers to what-if questions."""
