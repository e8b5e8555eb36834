"""What tests of runs elsewhere share: an open service and a project."""

from __future__ import annotations

from tests.support.offices import Office, Open, environment, folders, office, open_office, project, until

__all__ = ["Office", "Open", "environment", "folders", "office", "open_office", "project", "until"]
