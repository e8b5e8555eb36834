"""The report of a run: a snapshot taken when the dispatch ends, as Markdown or JSON (REPORT rules)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from outpost_lsp.dispatches.observe import redacted
from outpost_lsp.domain.event import Event, ToolEvent, ToolResultEvent, WarningEvent
from outpost_lsp.domain.wording import count_of
from outpost_lsp.errors import configuration

MAX_FAILED_TOOLS: Final = 50
MAX_PREVIEW: Final = 2_000


@dataclass(frozen=True, slots=True)
class ReportData:
    """The JSON of a report, already redacted."""

    data: Mapping[str, Any]


@dataclass(slots=True)
class ReportCollector:
    """Watches a dispatch's events for what a report tells: failed tools and warnings."""

    failed_tools: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    omitted: int = 0
    _commands: dict[tuple[Any, ...], str | None] = field(default_factory=dict)

    def see(self, event: Event) -> None:
        """Take an event in."""
        if isinstance(event, ToolEvent):
            self._commands[event.pass_, event.subagent_id, event.call_id] = _command(event.input)
        elif isinstance(event, ToolResultEvent):
            # Call ids repeat across passes and subagents (REPORT-04).
            command = self._commands.pop((event.pass_, event.subagent_id, event.call_id), None)
            if event.is_error:
                self._failed(event, command)
        elif isinstance(event, WarningEvent):
            self.warnings.append(event.message)

    def _failed(self, event: ToolResultEvent, command: str | None) -> None:
        if len(self.failed_tools) >= MAX_FAILED_TOOLS:
            self.omitted += 1
            return
        self.failed_tools.append(
            {
                "tool": event.name,
                "command": command,
                "preview": event.preview[:MAX_PREVIEW],
                "pass": event.pass_,
                "subagent_id": event.subagent_id,
            }
        )

    def data(self, fields: Mapping[str, Any], redact: Sequence[re.Pattern[str]]) -> ReportData:
        """The report's data with everything seen so far."""
        whole = {
            "version": 1,
            **fields,
            "failed_tools": self.failed_tools,
            "omitted_failures": self.omitted,
            "warnings": self.warnings,
        }
        plain = json.loads(json.dumps(whole))
        return ReportData(redacted(plain, redact) if redact else plain)


def merged(
    reports: Sequence[ReportData],
    fields: Mapping[str, Any],
    warnings: Sequence[str],
    redact: Sequence[re.Pattern[str]],
) -> ReportData:
    """The reports of several passes as one, with `fields` and `warnings` about all of them (REPORT-02)."""
    failures = [failure for report in reports for failure in report.data["failed_tools"]]
    whole = {
        "version": 1,
        **fields,
        "failed_tools": failures[:MAX_FAILED_TOOLS],
        "omitted_failures": sum(report.data["omitted_failures"] for report in reports)
        + max(0, len(failures) - MAX_FAILED_TOOLS),
        "warnings": [*(warning for report in reports for warning in report.data["warnings"]), *warnings],
    }
    plain = json.loads(json.dumps(whole))
    return ReportData(redacted(plain, redact) if redact else plain)


def render_report(report: ReportData, format: str) -> str:
    """The report in one of its two forms; `configuration` for another."""
    if format == "json":
        return json.dumps(report.data, indent=2, ensure_ascii=False) + "\n"
    if format == "markdown":
        return _markdown(report.data)
    raise configuration(f"report: format: markdown or json is expected, not {format!r}")


def _command(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return None
    found = value.get("command", value.get("cmd"))
    return found if isinstance(found, str) else None


def _markdown(data: Mapping[str, Any]) -> str:
    lines = ["# Run report", "", f"- Completed: {'yes' if data['completed'] else 'no'}"]
    if data["branch"]:
        lines.append(f"- Branch: {code_span(data['branch'])}")
    usage = data["usage"]
    lower_bound = "" if usage.get("complete", True) else " (a lower bound: some requests did not report)"
    lines.append(f"- Tokens: {usage['input']} in ({usage['cached']} cached), {usage['output']} out{lower_bound}")
    if data["cost"] is not None:
        about = "" if data["cost"]["complete"] else "at least "
        lines.append(f"- Cost: {about}{data['cost']['amount']:.4f} {data['cost']['currency']}")
    lines.append(f"- Duration: {data['duration_ms'] / 1000:.1f} s")
    lines += ["", "## Answer", "", *_quoted(data["text"])]
    lines += _diff(data["diff"]) + _failures(data)
    if data["warnings"]:
        lines += ["", "## Warnings", "", *(f"- {escaped(text)}" for text in data["warnings"])]
    return "\n".join(lines) + "\n"


def _diff(diff: Mapping[str, Any] | None) -> list[str]:
    if diff is None:
        return []
    lines = [
        "",
        "## Changes",
        "",
        f"{count_of(diff['files_changed'], 'file')}, +{diff['added']} -{diff['removed']}",
        "",
    ]
    for file in diff["files"]:
        names = " → ".join(code_span(path) for path in file["paths"])
        lines.append(f"- {names}: " + ("binary" if file["binary"] else f"+{file['added']} -{file['removed']}"))
    return lines


def _failures(data: Mapping[str, Any]) -> list[str]:
    if not data["failed_tools"]:
        return []
    lines = ["", "## Failed tools"]
    for failure in data["failed_tools"]:
        command = f": {code_span(failure['command'])}" if failure["command"] else ""
        lines += ["", f"- {code_span(failure['tool'])}{command}", "", *fenced(failure["preview"])]
    if data["omitted_failures"]:
        lines += ["", f"and {data['omitted_failures']} more"]
    return lines


def escaped(text: str) -> str:
    """Prose of others as literal Markdown, on one line."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|<>~&])", r"\\\1", " ".join(text.split()))


def code_span(text: str) -> str:
    """A name in a code span with enough backticks."""
    text = " ".join(text.split("\n"))
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str) -> list[str]:
    """A text in a fence longer than any run of backticks inside."""
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return [fence, *text.splitlines(), fence]


def _quoted(text: str) -> list[str]:
    return [f"> {escaped(line)}".rstrip() for line in text.splitlines()] or [">"]
