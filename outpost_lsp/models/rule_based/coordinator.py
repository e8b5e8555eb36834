"""The offline coordinator: splits what changed into areas, gives each to its reviewer, and puts the answers together.

It reads no code itself and judges nothing: what it says about the code is what its reviewers placed, counted and
sorted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from outpost_lsp.domain.finding import SEVERITIES
from outpost_lsp.domain.message import Message
from outpost_lsp.domain.model import ToolSpec
from outpost_lsp.models.rule_based.areas import Area, split_into_areas
from outpost_lsp.models.rule_based.assignment import REVIEW_FENCE, Assignment, review_assignment, review_block
from outpost_lsp.models.rule_based.review_state import LAST_CHANGE, ReviewState
from outpost_lsp.models.rule_based.sides import Call
from outpost_lsp.models.rule_based.summary import NamedFinding, counted, named_findings
from outpost_lsp.models.rule_based.tool_text import short_reason
from outpost_lsp.models.rule_based.turn import Turn, current_task

_WHO: Final = "This is the rule-based offline coordinator: no language model took part in splitting or merging."
_MOST_PROSE: Final = 600


@dataclass(frozen=True, slots=True)
class Delegation:
    """An area that was given away, and what came back."""

    area: str
    files: int
    text: str
    failed: bool


def subagent_tools(tools: Sequence[ToolSpec]) -> list[str]:
    """The names of the tools that take a prompt and nothing else: agents to delegate to."""
    return [tool.name for tool in tools if set(tool.input_schema.get("properties", ())) == {"prompt"}]


def next_turn(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn:
    """What the coordinator says next."""
    task = current_task(messages, REVIEW_FENCE)
    if task.question is not None:
        return Turn(f"{_WHO}\n\nIt cannot discuss its result; this is what it said:\n\n{task.answer}")
    delegates = subagent_tools(tools)
    reviewer = "reviewer" if "reviewer" in delegates else delegates[0]
    assignment = review_assignment(task.brief) or LAST_CHANGE
    # The state of a review is used for its list of files alone: the coordinator reads none of them.
    state = ReviewState(assignment, frozenset(tool.name for tool in tools) & {"git", "list_files"})
    given: dict[str, tuple[str, int]] = {}
    done: list[Delegation] = []
    for message in messages[task.start + 1 :]:
        state.feed(message)
        for call in message.calls:
            if call.name in delegates and isinstance(call.input, Mapping):
                given[call.id] = _named_area(str(call.input.get("prompt", "")))
        for result in message.results:
            if result.call_id in given:
                area, files = given[result.call_id]
                done.append(Delegation(area, files, _answer(result.content), bool(result.is_error)))
    if done:
        return Turn(_merged(done, state))
    listing = state.listing_calls()
    if listing and state.steps < _MOST_LISTING_STEPS:
        return Turn("Listing what there is to split.", tuple(listing))
    return _delegate(state, reviewer, task.brief)


_MOST_LISTING_STEPS: Final = 20


def _delegate(state: ReviewState, reviewer: str, brief: str) -> Turn:
    files = [sides.file for sides in state.sides.values()]
    if not files and (state.deleted or state.binary or state.left_out):
        return Turn(f"{_WHO}\n\nNothing to delegate: the change only deletes files or holds none that can be read.")
    if not files and state.listing_done and not state.listing_trouble and "git" in state.tools:
        return Turn(f"{_WHO}\n\nNothing to delegate: no file changed.")
    areas = split_into_areas(files) or (Area("everything", ()),)
    calls = tuple(Call(reviewer, {"prompt": _prompt(area, state.assignment, brief)}) for area in areas)
    lines = [f"- {area.name}: {len(area.files)} {'file' if len(area.files) == 1 else 'files'}" for area in areas]
    head = "One area" if len(areas) == 1 else f"{len(areas)} areas"
    return Turn(f"{head}, given to `{reviewer}` one after the other:\n" + "\n".join(lines), calls)


_AREA_LINE: Final = re.compile(r'Review the area (".*") \((\d+) files?\) of a larger change\.')


def _prompt(area: Area, assignment: Assignment, brief: str) -> str:
    intent = brief.split("```", 1)[0].strip()
    name = json.dumps(area.name, ensure_ascii=False)
    count = f"{len(area.files)} {'file' if len(area.files) == 1 else 'files'}"
    parts = [f"Review the area {name} ({count}) of a larger change."]
    if intent:
        parts.append(f"The whole task was given in these words:\n{intent[:_MOST_PROSE]}")
    if area.files:
        paths = tuple(file.path for file in area.files)
        parts.append("Look at these files only:\n" + "\n".join(f"- {path}" for path in paths))
        parts.append(review_block(replace(assignment, paths=paths, files=area.files, omitted=0)))
    return "\n\n".join(parts)


def _named_area(prompt: str) -> tuple[str, int]:
    match = _AREA_LINE.fullmatch(prompt.split("\n", 1)[0])
    try:
        return (str(json.loads(match[1])), int(match[2])) if match else ("an area", 0)
    except ValueError:
        return "an area", 0


def _answer(content: str) -> str:
    # A delegation answers with JSON text; a failed one with the message of its fault.
    try:
        value = json.loads(content)
    except ValueError:
        return content
    text = value.get("text") if isinstance(value, dict) else None
    return text if isinstance(text, str) else content


def _merged(done: Sequence[Delegation], state: ReviewState) -> str:
    findings: dict[tuple[str, int, str], NamedFinding] = {}
    for delegation in done:
        if not delegation.failed:
            for found in named_findings(delegation.text):
                findings.setdefault((found.path, found.line, found.title), found)
    ordered = sorted(findings.values(), key=lambda found: (SEVERITIES.index(found.severity), found.path, found.line))
    parts = [_WHO, _first(ordered)]
    if ordered:
        parts.append("\n".join(str(found) for found in ordered))
    parts.append("Areas:\n" + "\n".join(_area_line(delegation) for delegation in done))
    failed = [delegation for delegation in done if delegation.failed]
    if failed:
        lines = [f"- {delegation.area}: {short_reason(delegation.text)}" for delegation in failed]
        parts.append("Not reviewed, because the delegation failed:\n" + "\n".join(lines))
    if left := _left(state):
        parts.append(left)
    parts.extend(_prose(delegation) for delegation in done if _is_prose(delegation))
    parts.append("What rules cannot see, logic above all, was not looked at unless a model reviewed an area.")
    return "\n\n".join(parts)


def _first(ordered: Sequence[NamedFinding]) -> str:
    if not ordered:
        return "No reviewer named a finding."
    text = f"Found in all: {counted([found.severity for found in ordered])}."
    risky = Counter(found.path for found in ordered if found.severity in ("error", "warning"))
    if risky:
        path, count = max(risky.items(), key=lambda item: (item[1], item[0]))
        text += f" Begin with `{path}`: {count} of its findings {'is' if count == 1 else 'are'} an error or a warning."
    return text


def _area_line(delegation: Delegation) -> str:
    files = f"{delegation.files} {'file' if delegation.files == 1 else 'files'}" if delegation.files else "its own list"
    if delegation.failed:
        return f"- {delegation.area} ({files}): failed"
    return f"- {delegation.area} ({files}): {counted([found.severity for found in named_findings(delegation.text)])}"


def _left(state: ReviewState) -> str:
    notes = []
    if state.deleted:
        notes.append(f"{len(state.deleted)} deleted")
    if state.binary:
        notes.append(f"{len(state.binary)} of a binary kind")
    if state.left_out:
        notes.append(f"{len(state.left_out)} made elsewhere or minified")
    if state.unlisted:
        notes.append(f"{state.unlisted} beyond what the list shows")
    return f"Files given to nobody: {', '.join(notes)}." if notes else ""


def _is_prose(delegation: Delegation) -> bool:
    return not delegation.failed and not named_findings(delegation.text) and "rule-based" not in delegation.text


def _prose(delegation: Delegation) -> str:
    text = delegation.text.strip()
    shown = text if len(text) <= _MOST_PROSE else f"{text[:_MOST_PROSE]}…"
    return f"The reviewer of {delegation.area} said:\n{shown}"
