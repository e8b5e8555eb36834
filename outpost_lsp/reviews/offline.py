"""The offline model provider, ready to use: the rule-based provider with the default rules."""

from __future__ import annotations

from outpost_lsp.models.offline import OfflineProvider
from outpost_lsp.reviews.rules import RuleAnalyser
from outpost_lsp.reviews.rules.python_compare import lost_by_change


class OfflineModelProvider(OfflineProvider):
    """A model provider that follows fixed rules, needs no service and spends no tokens."""

    def __init__(self) -> None:
        super().__init__(RuleAnalyser(), lost_by_change)
