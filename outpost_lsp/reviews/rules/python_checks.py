"""All rules of our own for Python, run on one text."""

from __future__ import annotations

import re
from typing import Final

from outpost_lsp.models.rule_based.analysis import SourceText
from outpost_lsp.reviews.rules.placed import Placed
from outpost_lsp.reviews.rules.python_calls import call_faults
from outpost_lsp.reviews.rules.python_flow import flow_faults
from outpost_lsp.reviews.rules.python_module import parsed
from outpost_lsp.reviews.rules.python_names import name_faults

_SUPPRESSED: Final = re.compile(r"#\s*(?:noqa|pylint:\s*disable|type:\s*ignore|pyright:\s*ignore|pragma: no cover)")
_FILE_SUPPRESSED: Final = re.compile(r"^\s*#\s*(?:ruff|flake8):\s*noqa\s*$", re.MULTILINE | re.IGNORECASE)


def python_checks(source: SourceText) -> list[Placed]:
    """What our own rules say of a Python file; nothing where it does not parse, which is said elsewhere."""
    module = parsed(source)
    if module is None or _FILE_SUPPRESSED.search(source.text):
        return []
    found = [*call_faults(module), *flow_faults(module), *name_faults(module)]
    return [item for item in found if not _SUPPRESSED.search(module.lines[item.start[0] - 1])]
