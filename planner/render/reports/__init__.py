"""Reports: self-contained HTML pages for review and for the archive."""
