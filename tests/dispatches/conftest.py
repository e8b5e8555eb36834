"""The stage of the harness tests serves here too."""

from tests.harness.conftest import stage

__all__ = ["stage"]
