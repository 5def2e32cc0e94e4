"""Reports: one HTML page each, complete in itself, for review and for the archive."""
