"""Where snapshots come from, one file each."""
