"""The command `review`: the main job from a terminal or from CI."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from anyio import to_thread

from outpost_lsp.cli.report import ReviewedFiles, has_findings_at, refuse_output, write_report
from outpost_lsp.cli.session import followed, opened, run_async
from outpost_lsp.cli.status import CANCELLED, DONE, FAILED, FOUND
from outpost_lsp.cli.terminal import is_interactive
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.run import ReviewScope, Run, ScopeKind
from outpost_lsp.errors import configuration
from outpost_lsp.service.detached import start_detached
from outpost_lsp.service.estimates import Estimate
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.texts import reviewed_texts
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.worktrees.patched import LARGEST_PATCH, commit_of_patch


def review(options: argparse.Namespace) -> int:
    """Review what the options name; the exit status."""
    known: frozenset[str] = frozenset()
    if options.detach:
        refuse_report_options(options)
    refuse_output(options.output)
    if options.baseline is not None:
        # Reading reports is for those who have one.
        from outpost_lsp.cli.baseline import read_baseline

        known = read_baseline(options.baseline)
    patch = None if options.patch is None else _read_patch(options.patch)
    return run_async(lambda: _review(options, patch, known))


async def _review(options: argparse.Namespace, patch: bytes | None, known: frozenset[str]) -> int:
    async with opened(options, starts_runs=True) as (outpost, workspace):
        scope = review_scope(options, workspace)
        if patch is not None:
            await workspace.ready()
            name = "from standard input" if options.patch == "-" else Path(options.patch).name
            commit = await commit_of_patch(workspace.repository, patch, name)
            scope = scope.model_copy(update={"revision": commit, "patch": name})

        planned = await outpost.plan_review(workspace, scope, agent=options.agent, brief=options.brief)
        cost = None if options.yes else await planned.estimate()
        if cost is not None and not await _agreed(cost):
            print("outpost-lsp: the review was not started", file=sys.stderr)
            return CANCELLED

        async def start() -> RunHandle:
            if options.detach:
                return start_detached(outpost, planned, scope)
            return outpost.start_review(planned, scope)

        handle = await followed(outpost, start, quiet=options.quiet)
        if handle.is_left:
            tell_left(handle.run)
            return DONE
        return await reported(handle, workspace, options, known)


def refuse_report_options(options: argparse.Namespace) -> None:
    """Raise for what says how findings are reported: a detached review has none yet."""
    for name in ("output", "baseline"):
        if getattr(options, name) is not None:
            raise configuration(f"--{name}: a detached review reports nothing; give it to outpost-lsp collect")


def tell_left(run: Run) -> None:
    """Say how a review that goes on elsewhere is followed; its id alone is on standard output."""
    print(run.id, flush=True)
    print(
        f"outpost-lsp: {run.title}: it goes on without this terminal\n"
        f"outpost-lsp: outpost-lsp collect {run.id} waits for it and reports what it found; --cancel stops it",
        file=sys.stderr,
    )


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
    elif options.commit is not None or options.patch is not None:
        kind = "commit"
    folder = Path(options.folder)
    paths = tuple(workspace.relative(folder / path, spelled=path) for path in options.paths)
    return ReviewScope(scope=kind, paths=paths, base=options.base, revision=options.commit)


def _read_patch(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read(LARGEST_PATCH + 1)
        with Path(file).open("rb") as stream:
            return stream.read(LARGEST_PATCH + 1)
    except OSError as error:
        raise configuration(f"--patch {file}: {error.strerror or error}", field="patch") from error


async def _agreed(cost: Estimate) -> bool:
    """Ask the person at the terminal; where there is none, say what goes on without a question."""
    if sys.stdin is None or not sys.stdin.isatty() or not is_interactive(sys.stderr):
        raise configuration(f"{cost.text}; nothing was started: --yes goes on, --offline costs nothing")
    print(f"outpost-lsp: {cost.text}.\nGo on? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = await to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return answer.strip().lower() in ("y", "yes")


async def reported(
    handle: RunHandle, workspace: Workspace, options: argparse.Namespace, known: frozenset[str] = frozenset()
) -> int:
    """Write the findings of a finished review and say how it went; `known` fingerprints are left out."""
    run = handle.run
    findings: list[Finding] = [one for one in handle.findings.values() if one.fingerprint not in known]
    if left_out := len(handle.findings) - len(findings):
        print(f"outpost-lsp: {left_out} known from {options.baseline} and not shown", file=sys.stderr)
    texts = await reviewed_texts(workspace, handle.snapshot, {finding.path for finding in findings})
    write_report(
        run,
        findings,
        ReviewedFiles(workspace.top, texts),
        top=workspace.top,
        form=options.format,
        output=options.output,
        is_compared=bool(getattr(options, "baseline", None)),
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
