"""YAML and JSON documents: read, put together, judged, with line numbers for every mistake."""
