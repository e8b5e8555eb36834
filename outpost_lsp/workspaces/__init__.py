"""Workspaces on branches: opened under a lock, guarded, integrated, and closed without losing work."""
