"""The terminal's face: the same runs, without an editor."""
