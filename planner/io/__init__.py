"""Files that survive a crash: atomic writes, locks, databases, the log of a search."""
