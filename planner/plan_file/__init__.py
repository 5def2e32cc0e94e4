"""Plan files: reading, writing, and detection of edits."""
