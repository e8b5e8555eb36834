"""The door to machines that carry runs out: HTTPS and JSON to a face, whatever engine is behind it."""
