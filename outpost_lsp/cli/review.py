"""The command `review`: the main job from a terminal or from CI."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from outpost_lsp.cli.report import ReviewedFiles, has_findings_at, write_report
from outpost_lsp.cli.session import followed, opened, run_async
from outpost_lsp.cli.status import CANCELLED, DONE, FAILED, FOUND
from outpost_lsp.domain.run import ReviewScope, Run, ScopeKind
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.workspace import Workspace


def review(options: argparse.Namespace) -> int:
    """Review what the options name; the exit status."""
    return run_async(lambda: _review(options))


async def _review(options: argparse.Namespace) -> int:
    async with opened(options, starts_runs=True) as (outpost, workspace):
        scope = review_scope(options, workspace)
        handle = await followed(
            outpost,
            lambda: outpost.review(workspace, scope, agent=options.agent, brief=options.brief),
            quiet=options.quiet,
        )
        return await reported(handle, workspace, options)


def review_scope(options: argparse.Namespace, workspace: Workspace) -> ReviewScope:
    """The scope that the options name, its paths relative to the repository."""
    kind: ScopeKind = "uncommitted"
    if options.all:
        kind = "workspace"
    elif options.staged:
        kind = "staged"
    elif options.unstaged:
        kind = "unstaged"
    elif options.base is not None:
        kind = "branch"
    elif options.commit is not None:
        kind = "commit"
    folder = Path(options.folder)
    paths = tuple(workspace.relative(folder / path, spelled=path) for path in options.paths)
    return ReviewScope(scope=kind, paths=paths, base=options.base, revision=options.commit)


async def reported(handle: RunHandle, workspace: Workspace, options: argparse.Namespace) -> int:
    """Write the findings of a finished review and say how it went."""
    run = handle.run
    findings = list(handle.findings.values())
    texts = await workspace.reviewed_texts(handle.snapshot, {finding.path for finding in findings})
    write_report(
        run,
        findings,
        ReviewedFiles(workspace.top, texts),
        top=workspace.top,
        form=options.format,
        output=options.output,
    )
    if run.status == "succeeded":
        return FOUND if has_findings_at(findings, options.fail_on) else DONE
    return ended_status(run)


def ended_status(run: Run) -> int:
    """The status of a run that did not succeed, with one sentence on standard error."""
    if run.status == "succeeded":
        return DONE
    if run.status == "cancelled":
        print(f"outpost-lsp: {run.title}: cancelled", file=sys.stderr)
        return CANCELLED
    message = run.error.message if run.error is not None else run.status
    print(f"outpost-lsp: {run.title}: {message}", file=sys.stderr)
    return FAILED
