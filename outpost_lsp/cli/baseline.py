"""An earlier report as a baseline: what it holds is known, so that only what is new is shown and counted.

A finding is known by its fingerprint (path, code, quote and its place among equal quotes), so that moved lines do not
make old findings new. Read by `review --baseline`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.reviews.sarif import FINGERPRINT

_LARGEST: Final = 256 * 1024 * 1024


def read_baseline(file: str) -> frozenset[str]:
    """The fingerprints of a SARIF report. `configuration` for what is none, and for one of another program."""
    try:
        with Path(file).open("rb") as stream:
            data = stream.read(_LARGEST + 1)
    except OSError as error:
        raise _refused(file, error.strerror or str(error)) from error
    if len(data) > _LARGEST:
        raise _refused(file, f"it is larger than {_LARGEST >> 20} MiB")
    try:
        log = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _refused(file, "it is no JSON, so it is no SARIF report") from error
    runs = log.get("runs") if isinstance(log, dict) else None
    if not isinstance(runs, list):
        raise _refused(file, "it is no SARIF report: it has no list of runs")
    results = [result for run in runs for result in _results(run)]
    known = frozenset(filter(None, map(_fingerprint, results)))
    if results and not known:
        raise _refused(file, "no result in it has a fingerprint of outpost-lsp, so nothing could be recognised")
    return known


def _results(run: Any) -> list[Any]:
    results = run.get("results") if isinstance(run, dict) else None
    return results if isinstance(results, list) else []


def _fingerprint(result: Any) -> str | None:
    prints = result.get("partialFingerprints") if isinstance(result, dict) else None
    found = prints.get(FINGERPRINT) if isinstance(prints, dict) else None
    return found if isinstance(found, str) else None


def _refused(file: str, why: str) -> OutpostError:
    return configuration(f"--baseline {file}: {why}", field="baseline")
