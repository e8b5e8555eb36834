"""The door to the state folder: conversations, journals, runs, findings, locks."""
