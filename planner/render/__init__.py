"""Plans and diffs as text, JSON and HTML; no decisions."""
