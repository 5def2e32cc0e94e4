"""YAML and JSON documents: parsing, joining and validation, with a line number for every error."""
