"""The door to git: snapshots, worktrees, changes. The only starter of git."""
