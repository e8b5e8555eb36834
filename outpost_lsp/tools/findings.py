"""The toolset `findings`: how an agent reports a remark, and what stands between a report and its publication.

Nothing is published at a place that was guessed: the file must be there, the quote must be in it. The scope decides how
the place relates to what is reviewed. Every answer to the agent says where the finding was placed, or why it was not
shown. Reviewing agents get this toolset; `review/` makes the scope.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from anyio import to_thread
from anyio.lowlevel import checkpoint

from outpost_lsp.domain.anchor import Anchor, AnchorFault, LineRange, find_quote, touches
from outpost_lsp.domain.event import FindingEvent, WarningEvent
from outpost_lsp.domain.finding import Dismissal, Finding, Severity, Span, Suggestion, fingerprint
from outpost_lsp.domain.markdown import one_line, safe_markdown
from outpost_lsp.domain.replacement import replacement_edit
from outpost_lsp.domain.tool import Tool, ToolContext, ToolOutput, Toolset
from outpost_lsp.errors import OutpostError
from outpost_lsp.tools.finding_input import ReportedFinding, slug
from outpost_lsp.tools.ledger import FindingLedger, Relation
from outpost_lsp.tools.reviewed_text import ReviewedText, ReviewedTexts

Outside = Literal["hint", "drop", "keep"]

_DESCRIPTION: Final = (
    "Report one fault in the reviewed files. It is placed by the quote, which must stand in the file as it is; the line "
    "only decides between equal places. The answer says where it was placed, or why it is not shown. "
    "Report each fault once."
)
_REMEMBERED_FOLDERS: Final = 16
_SEARCHED_ON_THE_LOOP: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingScope:
    """What a run reviews, and what of its findings is shown. Agents of one run share the ledger.

    `replace(scope, agent=...)` from `dataclasses` gives the scope of a subagent.
    """

    run_id: str = ""
    agent: str = ""
    snapshot: str = ""
    """The reviewed commit: a file that the agent itself changed is read from there. Empty: files as they stand."""
    changed: Mapping[str, Sequence[LineRange]] | None = None
    """By path, the changed lines as git counts them; `None` when the scope is not about a change."""
    paths: tuple[str, ...] = ()
    """The files and folders asked for; none means everything."""
    span: Span | None = None
    """The selected part of the one file in `paths`."""
    outside: Outside = "hint"
    """What becomes of a finding outside the change, or outside what was asked for."""
    max_findings: int = 100
    min_confidence: float = 0.0
    excluded: Callable[[str], bool] = lambda _path: False
    dismissed: Callable[[Finding], Dismissal | None] = lambda _finding: None
    """The dismissal that covers a finding, if any; one whose time is over counts no more, but is shown with it."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ledger: FindingLedger = field(default_factory=FindingLedger)


def finding_tools(scope: FindingScope | None = None) -> Toolset:
    """The toolset with `report_finding`. Without a scope every place counts, and each worktree is a run of its own."""
    unscoped: OrderedDict[str, FindingScope] = OrderedDict()
    texts = ReviewedTexts()

    async def report(value: ReportedFinding, context: ToolContext) -> ToolOutput:
        chosen = scope or _scope_of_folder(unscoped, str(context.sandbox.root))
        return await _report(value, context, chosen, texts)

    return Toolset("findings", [Tool("report_finding", _DESCRIPTION, ReportedFinding, report)])


def _scope_of_folder(known: OrderedDict[str, FindingScope], root: str) -> FindingScope:
    found = known.setdefault(root, FindingScope())
    known.move_to_end(root)
    while len(known) > _REMEMBERED_FOLDERS:
        known.popitem(last=False)
    return found


async def _report(
    value: ReportedFinding, context: ToolContext, scope: FindingScope, texts: ReviewedTexts
) -> ToolOutput:
    try:
        path = context.sandbox.files.normalise(value.path)
        if scope.excluded(path):
            return _withheld(scope, f"{path} is excluded from reviews; if it is generated, review what it is made from")
        text = await texts.read(context.sandbox, path, scope.snapshot)
    except OutpostError as error:
        if error.code != "workspace":
            raise
        return _refused(scope, context, error.message)
    anchor = await _anchored(value, scope, path, text)
    if isinstance(anchor, AnchorFault):
        return _refused(scope, context, f"{path}: {anchor.message}")
    if value.confidence is not None and value.confidence < scope.min_confidence:
        return _withheld(scope, f"its confidence {value.confidence:g} is below the asked {scope.min_confidence:g}")
    severity, in_diff = _placed_in_scope(value, scope, path, text, anchor)
    if severity is None:
        return _withheld(scope, f"{path}:{anchor.span.start_line + 1} lies outside {_asked(scope)}")
    # To find the place and to publish it are two pieces of work; an editor may have asked something meanwhile.
    await checkpoint()
    return _admit(_finding(value, context, scope, path, text, anchor, severity, in_diff), value, context, scope)


async def _anchored(value: ReportedFinding, scope: FindingScope, path: str, text: ReviewedText) -> Anchor | AnchorFault:
    def find() -> Anchor | AnchorFault:
        hint = None if value.line is None else text.source.line_after_line_feeds(value.line - 1)
        return find_quote(text.source, value.quote, line_hint=hint, prefer=_preferred(scope, path, text))

    if len(text.source.text) <= _SEARCHED_ON_THE_LOOP:
        return find()
    return await to_thread.run_sync(find)


def _preferred(scope: FindingScope, path: str, text: ReviewedText) -> Sequence[LineRange]:
    if scope.span is not None and path in scope.paths:
        return [(scope.span.start_line, scope.span.end_line + 1)]
    return text.editor_lines((scope.changed or {}).get(path, ()))


def _placed_in_scope(
    value: ReportedFinding, scope: FindingScope, path: str, text: ReviewedText, anchor: Anchor
) -> tuple[Severity | None, bool | None]:
    """The severity it is shown with (`None`: not at all), and whether it belongs to the change."""
    first, last = anchor.span.start_line, anchor.span.end_line
    if scope.changed is not None:
        ranges = text.editor_lines(scope.changed.get(path, ()))
        inside = touches(ranges, first, last) or value.caused_by_change is True
        in_diff: bool | None = inside
    else:
        in_diff = None
        inside = _is_below(path, scope.paths)
        if inside and scope.span is not None:
            inside = scope.span.start_line <= last and first <= scope.span.end_line
    if inside or scope.outside == "keep":
        return value.severity, in_diff
    return (None if scope.outside == "drop" else "hint"), in_diff


def _is_below(path: str, paths: Sequence[str]) -> bool:
    return not paths or any(not top or path == top or path.startswith(f"{top}/") for top in paths)


def _asked(scope: FindingScope) -> str:
    if scope.changed is not None:
        return (
            "the reviewed change; if the change causes it, say so with caused_by_change and explain how in the detail"
        )
    return "what was asked to be reviewed"


def _finding(
    value: ReportedFinding,
    context: ToolContext,
    scope: FindingScope,
    path: str,
    text: ReviewedText,
    anchor: Anchor,
    severity: Severity,
    in_diff: bool | None,
) -> Finding:
    title = one_line(value.title)
    code = slug(value.code)
    suggestion = None
    if value.replacement is not None and text.is_exact:
        edit = replacement_edit(text.source, anchor, value.quote, value.replacement)
        suggestion = None if edit is None else Suggestion(title=one_line(f"Fix: {title}", 120), edits=(edit,))
    return Finding(
        id="",
        run_id=scope.run_id,
        agent=scope.agent,
        path=path,
        span=anchor.span,
        severity=severity,
        code=code,
        title=title,
        detail=safe_markdown(value.detail.strip()),
        quote=anchor.text,
        suggestion=suggestion,
        in_diff=in_diff,
        confidence=value.confidence,
        fingerprint=fingerprint(path, code, anchor.text, anchor.ordinal),
        model=context.model.name,
        route=context.route,
    )


def _admit(finding: Finding, value: ReportedFinding, context: ToolContext, scope: FindingScope) -> ToolOutput:
    ledger = scope.ledger
    dismissal = scope.dismissed(finding)
    if dismissal is not None and not _is_over(dismissal, scope.now()):
        return _dismissed(finding.model_copy(update={"dismissal": dismissal}), context, ledger)
    if dismissal is not None:
        finding = finding.model_copy(update={"dismissal": dismissal, "detail": _with_end_of(dismissal, finding.detail)})
    if (known := ledger.twin(finding)) is not None:
        joined, relation = ledger.join(known, finding)
        if joined != known:
            context.report(FindingEvent(finding=joined, call_id=context.call_id))
        return ToolOutput(_joined_text(joined, relation))
    if len(ledger.published) >= scope.max_findings:
        return _cut(context, scope)
    finding = finding.model_copy(update={"id": ledger.next_id(scope.run_id)})
    ledger.publish(finding)
    context.report(FindingEvent(finding=finding, call_id=context.call_id))
    return ToolOutput(_placed_text(finding, value))


def _is_over(dismissal: Dismissal, now: datetime) -> bool:
    if dismissal.until is None:
        return False
    try:
        until = datetime.fromisoformat(dismissal.until)
    except ValueError:
        return False
    # A bare date means the end of nothing smaller than itself; it is read as its first moment in UTC.
    return (until if until.tzinfo else until.replace(tzinfo=UTC)) <= now


def _with_end_of(dismissal: Dismissal, detail: str) -> str:
    return f"{detail}\n\nDismissal expired: it held until {one_line(dismissal.until or '', 40)}.".lstrip()


def _dismissed(finding: Finding, context: ToolContext, ledger: FindingLedger) -> ToolOutput:
    dismissal = finding.dismissal
    if finding.fingerprint not in ledger.dismissed:
        finding = finding.model_copy(update={"id": ledger.next_id(finding.run_id), "status": "dismissed"})
        ledger.dismissed[finding.fingerprint] = finding
        context.report(FindingEvent(finding=finding, call_id=context.call_id))
    because = f" The reason given: {one_line(dismissal.reason)}" if dismissal and dismissal.reason else ""
    return ToolOutput(f"Not shown: {_place(finding)} was dismissed before; do not report it again.{because}")


def _cut(context: ToolContext, scope: FindingScope) -> ToolOutput:
    scope.ledger.cut += 1
    if not scope.ledger.cut_reported:
        scope.ledger.cut_reported = True
        context.observe(
            WarningEvent(message=f"more than {scope.max_findings} findings (max_findings): the rest is not shown")
        )
    return ToolOutput(
        f"Not shown: this run already has {scope.max_findings} findings, the most it may have (max_findings). "
        "Report no more; name what else matters in your answer."
    )


def _refused(scope: FindingScope, context: ToolContext, reason: str) -> ToolOutput:
    scope.ledger.rejected += 1
    context.report(FindingEvent(rejected=reason, call_id=context.call_id))
    return ToolOutput(f"Refused: {reason}", is_error=True)


def _withheld(scope: FindingScope, reason: str) -> ToolOutput:
    scope.ledger.withheld += 1
    return ToolOutput(f"Not shown: {reason}.")


def _joined_text(finding: Finding, relation: Relation) -> str:
    match relation:
        case "repeated":
            return f"Reported already in this run, at {_place(finding)}: {finding.title}. Nothing was added."
        case "confirmed":
            return f"Another agent reported it too, at {_place(finding)}: {finding.title}. The two are one finding now."
        case "merged":
            return f"Merged with the finding at {_place(finding)} on the same text: {finding.title}."


def _placed_text(finding: Finding, value: ReportedFinding) -> str:
    parts = [f"Placed at {_place(finding)}"]
    line = finding.span.start_line + 1
    if value.line is not None and value.line != line:
        parts.append(f"line {value.line} was given, the quote stands on line {line}")
    parts.append(f"severity {finding.severity}")
    if finding.severity != value.severity:
        parts.append(f"lowered from {value.severity} because it lies outside what is reviewed")
    if value.replacement is not None:
        parts.append("the replacement is offered as a fix" if finding.suggestion else "the replacement is not offered")
    return "; ".join(parts) + "."


def _place(finding: Finding) -> str:
    return f"{finding.path}:{finding.span.start_line + 1}"
