"""The findings of a run in the format that was asked for, on standard output or in a file.

A file is written aside and renamed, so that a reader never sees half of it. The places of findings are those of the
text that was reviewed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from outpost_lsp import __version__
from outpost_lsp.cli.github import github_lines
from outpost_lsp.cli.terminal import DIM, Paint, wants_colour
from outpost_lsp.cli.text_report import summary_line, text_report
from outpost_lsp.domain.finding import Finding, Severity, severity_at_least
from outpost_lsp.domain.markdown import visible
from outpost_lsp.domain.record import Record
from outpost_lsp.domain.run import Run
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.protocol import records
from outpost_lsp.protocol.positions import split_lines, without_line_end
from outpost_lsp.protocol.records import finding_json, run_json
from outpost_lsp.protocol.uris import uri_of

Format = Literal["text", "json", "sarif", "github"]


class ReviewReport(Record):
    """What `--format json` prints. Positions count UTF-16 units and are those of the reviewed text."""

    run: records.Run
    findings: list[records.Finding]


def report_schema() -> dict[str, Any]:
    """The JSON Schema of what `--format json` prints."""
    schema = ReviewReport.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Findings of outpost-lsp"}


class ReviewedFiles:
    """The lines of the files that findings speak of, read once."""

    def __init__(self, top: Path, texts: dict[str, str]) -> None:
        self._top = top
        self._texts = texts
        self._lines: dict[str, list[str]] = {}

    def __call__(self, path: str) -> Sequence[str]:
        """The lines with their ends; none when the file cannot be read."""
        if path not in self._lines:
            self._lines[path] = split_lines(self._text(path))
        return self._lines[path]

    def _text(self, path: str) -> str:
        if path in self._texts:
            return self._texts[path]
        try:
            return (self._top / path).read_bytes().decode("utf-8", "replace").removeprefix("\ufeff")
        except OSError:
            return ""


def write_report(
    run: Run,
    findings: Sequence[Finding],
    files: ReviewedFiles,
    *,
    top: Path,
    form: Format,
    output: str | None,
    is_compared: bool = False,
) -> None:
    """Print the findings, or write them to the file named by `output`.

    `is_compared`: what an earlier report holds was left out, so that all that is here is new.
    """
    shown = [finding for finding in findings if finding.status != "dismissed"]
    ordered = sorted(shown, key=lambda finding: (finding.path, finding.span.start_line, finding.span.start_character))
    paint = Paint(colour=output is None and wants_colour(sys.stdout))
    match form:
        case "text":
            text = "".join(f"{line}\n" for line in _text_lines(run, ordered, len(findings) - len(shown), files, paint))
        case "github":
            text = "".join(f"{line}\n" for line in github_lines(ordered))
        case "json":
            text = json.dumps(_json(run, ordered, files, top), ensure_ascii=False, indent=2) + "\n"
        case "sarif":
            # Written for programs, so it is loaded for them alone.
            from outpost_lsp.reviews.sarif import sarif_log

            log = sarif_log(run, findings, version=__version__, is_compared=is_compared)
            text = json.dumps(log, ensure_ascii=False, indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        _replace(output, text)


def refuse_output(output: str | None) -> None:
    """Raise when a report cannot be written there: told before a run, which may cost money, not after it."""
    if output is None:
        return
    path = Path(os.path.realpath(output))
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not _is_written_into(path):
            with _aside(path):
                pass
    except OSError as error:
        raise _unwritable(output, error) from error


def has_findings_at(findings: Sequence[Finding], floor: Severity | Literal["never"]) -> bool:
    """Whether an open finding is as bad as the floor or worse."""
    return floor != "never" and any(
        finding.status != "dismissed" and severity_at_least(finding.severity, floor) for finding in findings
    )


def _text_lines(
    run: Run, findings: Sequence[Finding], dismissed: int, files: ReviewedFiles, paint: Paint
) -> Iterator[str]:
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)

    def bare_lines(path: str) -> list[str]:
        return [without_line_end(line) for line in files(path)]

    yield from text_report(findings, bare_lines, width=width, paint=paint)
    if run.text and run.text.strip():
        yield from (paint(line, DIM) if line else "" for line in visible(run.text).strip().split("\n"))
        yield ""
    if dismissed:
        yield paint(f"{dismissed} dismissed before and not shown", DIM)
    if run.status == "succeeded" or findings:
        yield summary_line(findings, paint)


def _json(run: Run, findings: Sequence[Finding], files: ReviewedFiles, top: Path) -> dict[str, object]:
    return {
        "run": run_json(run, uri_of),
        "findings": [
            finding_json(finding, uri_of(top / finding.path), files(finding.path), "utf-16") for finding in findings
        ],
    }


def _replace(output: str, text: str) -> None:
    path = Path(os.path.realpath(output))
    try:
        if _is_written_into(path):
            path.write_text(text, "utf-8")
            return
        with _aside(path) as file:
            file.write_text(text, "utf-8")
            mask = os.umask(0)
            os.umask(mask)
            file.chmod(0o666 & ~mask)
            file.replace(path)
    except OSError as error:
        raise _unwritable(output, error) from error


def _is_written_into(path: Path) -> bool:
    """Whether it is a pipe or a device, such as /dev/null: a file put in its place would break what others do with it."""
    return path.exists() and not path.is_file()


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """An empty file beside `path`, gone at the end unless it was renamed."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _unwritable(output: str, error: OSError) -> OutpostError:
    return configuration(f"--output {output}: {error.strerror or error}")
