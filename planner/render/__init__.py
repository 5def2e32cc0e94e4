"""Plans and diffs as text, JSON and HTML. This package formats results and decides nothing."""
