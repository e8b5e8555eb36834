"""Coding agents inside your editor: the engine as a library."""
