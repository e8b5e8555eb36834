"""Words that hint at work which needs thought, in English and French.

Stems, so that "refactoring" and "réécriture" count; a word of everyday code that merely looks alike must not. The
lists are short on purpose: a person must be able to read them and disagree.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

ENGLISH: Final = (
    r"why",
    r"design(?:s|ed|ing)?",
    r"refactor\w*",
    r"migrat\w+",
    r"rac(?:e|es|y)",
    r"deadlock\w*",
    r"thread(?:s|ed|ing)?",
    r"leak(?:s|ed|ing|y)?",
    r"secur(?:e|ity)",
    r"review(?:s|ed|ing|er|ers)?",
    r"performan(?:ce|t)",
    r"flak(?:y|iness|e|es)",
    r"time-?outs?",
    r"timed out",
)
FRENCH: Final = (
    r"pourquoi",
    r"conception",
    r"concev\w+",
    r"refactoris\w+",
    r"remani\w+",
    r"réécri\w+",
    r"migr(?:e|es|er|ée?s?|ons|ez)",
    r"situations? de compétition",
    r"accès concurrents?",
    r"interblocages?",
    r"fils? d['’]exécution",
    r"fuites?",
    r"sécuri\w+",
    r"revues?",
    r"relecture",
    r"reli(?:re|s|sez)",
    r"performances",
    r"lenteurs?",
    r"instables?",
    r"intermittente?s?",
    r"délais? (?:d['’]attente|dépassés?)",
)

_ANY: Final = re.compile(rf"(?<!\w)(?:{'|'.join(ENGLISH + FRENCH)})(?!\w)")


def has_hard_word(text: str) -> bool:
    """Whether one of the words stands in `text`, whatever its case and however its accents are written."""
    return _ANY.search(unicodedata.normalize("NFC", text).lower()) is not None
