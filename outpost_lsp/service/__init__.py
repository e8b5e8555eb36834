"""Live runs, the queue, and the findings of a workspace."""
