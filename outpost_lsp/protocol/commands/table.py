"""The table of commands: the schemas and the documentation are made of it, and every argument is checked by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from outpost_lsp.domain.record import Record
from outpost_lsp.protocol.commands import changes, findings, runs, workspaces
from outpost_lsp.protocol.commands.arguments import (
    ArgumentsError,
    NoParams,
    Params,
    RunParams,
    ViewParams,
    described,
)
from outpost_lsp.protocol.kinds import kind_of


@dataclass(frozen=True, slots=True)
class CommandShape:
    """A command's argument, its result, and what it does in one line."""

    params: type[Params]
    result: type[Record]
    summary: str


COMMANDS: Final[dict[str, CommandShape]] = {
    "outpost.review": CommandShape(
        runs.ReviewParams,
        runs.RunResult,
        "review a scope and publish what is found; before the scope `workspace` with a model that has a price, an estimate "
        "is shown and asked about (`window/showMessageRequest`), and without a yes nothing starts (`aborted`)",
    ),
    "outpost.coordinate": CommandShape(
        runs.CoordinateParams, runs.RunResult, "start the agent that delegates on a brief"
    ),
    "outpost.dispatch": CommandShape(runs.DispatchParams, runs.RunResult, "start any configured agent on a brief"),
    "outpost.fix": CommandShape(runs.FixParams, runs.RunResult, "let an agent fix a finding"),
    "outpost.continue": CommandShape(runs.ContinueParams, runs.RunResult, "go on with a conversation"),
    "outpost.cancel": CommandShape(RunParams, runs.CancelResult, "stop a run, queued or live"),
    "outpost.steer": CommandShape(runs.SteerParams, runs.SteerResult, "say something to a running agent"),
    "outpost.runs": CommandShape(runs.RunsParams, runs.RunsResult, "list the runs, newest first"),
    "outpost.show": CommandShape(ViewParams, runs.ShowResult, "the timeline of a run, from its journal"),
    "outpost.transcript": CommandShape(runs.TranscriptParams, runs.TranscriptResult, "the messages of a conversation"),
    "outpost.diff": CommandShape(ViewParams, changes.DiffResult, "what a run changed"),
    "outpost.apply": CommandShape(
        changes.ApplyParams, changes.ApplyResult, "bring a run's changes into the user's files"
    ),
    "outpost.discard": CommandShape(RunParams, changes.DiscardResult, "give up a run's changes"),
    "outpost.reopen": CommandShape(RunParams, runs.RunResult, "make applied or discarded changes pending again"),
    "outpost.trust": CommandShape(
        workspaces.TrustParams, workspaces.TrustResult, "tell that the client's trust in a folder changed"
    ),
    "outpost.worktrees": CommandShape(
        workspaces.WorktreesParams, workspaces.WorktreesResult, "list the worktrees, or prune them"
    ),
    "outpost.findings": CommandShape(
        findings.FindingsParams, findings.FindingsResult, "list the findings at their current places"
    ),
    "outpost.dismiss": CommandShape(findings.DismissParams, findings.FindingResult, "do not show a finding any more"),
    "outpost.restore": CommandShape(findings.FindingParams, findings.FindingResult, "show a dismissed finding again"),
    "outpost.clear": CommandShape(findings.ClearParams, findings.ClearResult, "forget findings"),
    "outpost.replay": CommandShape(runs.ReplayParams, runs.RunResult, "go through a run again, from its journal alone"),
    "outpost.agents": CommandShape(NoParams, workspaces.AgentsResult, "list the configured agents"),
    "outpost.doctor": CommandShape(NoParams, workspaces.DoctorResult, "check what the product needs"),
}


def parse(name: str, arguments: Any) -> Params:
    """The checked argument of the command `name`; `ArgumentsError` names what is wrong.

    `arguments` is the request's list: absent, empty or `[null]` mean an empty object, and there is one at most.
    """
    shape = COMMANDS[name]
    if arguments is not None and not isinstance(arguments, list | tuple):
        raise ArgumentsError("arguments: a list with one object is expected")
    given = list(arguments or [])
    if len(given) > 1:
        raise ArgumentsError(f"arguments[1]: {name} takes one object, and {len(given)} values came")
    value = given[0] if given and given[0] is not None else {}
    if not isinstance(value, dict):
        raise ArgumentsError(f"arguments[0]: an object is expected, and {kind_of(value)} came")
    try:
        return shape.params.model_validate(value)
    except ValidationError as error:
        raise ArgumentsError(described(error)) from None
