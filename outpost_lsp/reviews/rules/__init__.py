"""The default analyser of the offline review: ruff for Python, and rules of our own for any language.

`RuleAnalyser` is what the offline provider is given. It analyses many texts at once, off the event loop, and merges
what several rules say of one place. A fault of ruff is raised as a fault.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread

from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.brackets import unmatched_brackets
from outpost_lsp.reviews.rules.conflicts import conflict_markers
from outpost_lsp.reviews.rules.debuggers import debugger_statements
from outpost_lsp.reviews.rules.other_languages import slips_of_other_languages
from outpost_lsp.reviews.rules.parsing import data_that_does_not_parse
from outpost_lsp.reviews.rules.placed import Placed, merged
from outpost_lsp.reviews.rules.python_checks import python_checks
from outpost_lsp.reviews.rules.ruff import Ruff, is_python
from outpost_lsp.reviews.rules.secrets import secrets

_NEUTRAL = (
    conflict_markers,
    secrets,
    debugger_statements,
    data_that_does_not_parse,
    unmatched_brackets,
    slips_of_other_languages,
)


class RuleAnalyser:
    """Analyses texts by fixed rules; call it with the texts."""

    def __init__(self) -> None:
        self._ruff = Ruff()

    async def __call__(self, sources: Sequence[SourceText]) -> list[list[RawFinding]]:
        """The findings of each text, in their order."""
        python = [source for source in sources if is_python(source)]
        by_ruff = iter(await self._ruff.findings(python))
        placed = [next(by_ruff) if is_python(source) else [] for source in sources]
        return await anyio.to_thread.run_sync(_completed, sources, placed)


def _completed(sources: Sequence[SourceText], placed: Sequence[Sequence[Placed]]) -> list[list[RawFinding]]:
    return [
        merged(
            [
                *found,
                *(python_checks(source) if is_python(source) else ()),
                *(item for rule in _NEUTRAL for item in rule(source)),
            ]
        )
        for source, found in zip(sources, placed, strict=True)
    ]
