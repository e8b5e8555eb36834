"""The command `audit`: many repositories, each reviewed as a whole, one SARIF report each and a summary.

The invariant: one repository that cannot be reviewed costs the others nothing; the summary names each with its outcome,
and no report is written for a review that did not end. What is done at once is up to the settings, here or on a cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread

from outpost_lsp.cli.report import ReviewedFiles, has_findings_at, write_report
from outpost_lsp.cli.session import run_async, said
from outpost_lsp.cli.status import DONE, FAILED, FOUND
from outpost_lsp.config.environment import default_layout, user_settings
from outpost_lsp.config.overrides import settings_from_assignments
from outpost_lsp.config.sources import ClientSettings, load_settings
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.run import ReviewScope, Run
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.sandbox.process import forbid_inspection
from outpost_lsp.service.estimates import Estimate
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.service.texts import reviewed_texts
from outpost_lsp.service.workspace import Workspace


def audit(options: argparse.Namespace) -> int:
    """Review every repository of a list; the exit status."""
    folders = _listed(Path(options.list))
    output = Path(options.output)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise configuration(f"--output {output}: {error.strerror}") from error
    return run_async(lambda: _audit(options, folders, output))


async def _audit(options: argparse.Namespace, folders: Sequence[Path], output: Path) -> int:
    names = _names(folders)
    outcomes: dict[Path, dict[str, Any]] = {}
    client = settings_from_assignments(said(options))
    limit = _most_at_once(client)
    # An agent's programs are children of this process, whose environment may hold keys (SEC-13).
    forbid_inspection()
    async with Outpost(default_layout(os.environ), os.environ, offline=options.offline) as outpost:
        at_once = asyncio.Semaphore(limit)

        async def one(folder: Path) -> None:
            async with at_once:
                outcomes[folder] = await _outcome(outpost, folder, client, output / f"{names[folder]}.sarif", options)
            if not options.quiet:
                done, all_of_them = len(outcomes), len(folders)
                print(f"outpost-lsp: {done}/{all_of_them} {folder}: {_said(outcomes[folder])}", file=sys.stderr)

        await asyncio.gather(*(one(folder) for folder in folders))
    summary = {
        "version": 1,
        "repositories": [{"folder": str(folder), **outcomes[folder]} for folder in folders],
    }
    text = json.dumps(summary, ensure_ascii=False, indent=2) + "\n"
    await to_thread.run_sync(lambda: (output / "summary.json").write_text(text, "utf-8"))
    print(_totals(list(outcomes.values())))
    if any(outcome["status"] != "succeeded" for outcome in outcomes.values()):
        return FAILED
    return FOUND if any(outcome["failing"] for outcome in outcomes.values()) else DONE


def _most_at_once(client: dict[str, Any]) -> int:
    """How many repositories are reviewed at once: as many as one may have runs."""
    loaded = load_settings(user_file=user_settings(os.environ), client=[ClientSettings("--set", client)])
    if loaded.faults:
        raise configuration(f"nothing was started, because settings are wrong: {loaded.faults[0]}")
    runs = loaded.settings.runs
    return runs.ray.concurrency if runs.executor == "ray" else runs.concurrency


async def _outcome(
    outpost: Outpost, folder: Path, client: Any, report: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """What became of one repository, as the summary has it."""
    try:
        workspace = outpost.add_workspace(folder, client_settings=client)
        await workspace.ready()
        run, findings, snapshot = await _reviewed(outpost, workspace, options)
        if run.status != "succeeded":
            message = run.error.message if run.error is not None else run.status
            return {"status": run.status, "run": run.id, "message": message, "notes": list(run.notes)}
        texts = await reviewed_texts(workspace, snapshot, {finding.path for finding in findings})
        files = ReviewedFiles(workspace.top, texts)
        await to_thread.run_sync(
            lambda: write_report(run, findings, files, top=workspace.top, form="sarif", output=str(report))
        )
    except OutpostError as error:
        return {"status": "failed", "message": error.message}
    finally:
        await outpost.remove_workspace(folder)
    counted = Counter(finding.severity for finding in findings)
    return {
        "status": "succeeded",
        "run": run.id,
        "report": report.name,
        "findings": dict(sorted(counted.items())),
        "failing": has_findings_at(findings, options.fail_on),
        "usage": run.usage.to_json(),
        "notes": list(run.notes),
    }


async def _reviewed(
    outpost: Outpost, workspace: Workspace, options: argparse.Namespace
) -> tuple[Run, list[Finding], str]:
    """A whole review. One that was lost with its machine is begun again as often as the settings say: it only reads."""
    left = workspace.settings.runs.ray.retry_lost
    while True:
        confirm = None if options.yes else _refuse
        handle = await outpost.review(workspace, ReviewScope(scope="workspace"), confirm=confirm)
        run = await handle.wait()
        if run.status != "interrupted" or left == 0:
            return run, list(handle.findings.values()), handle.snapshot
        left -= 1


async def _refuse(_cost: Estimate) -> bool:
    """Nobody sits beside an audit who could be asked for each repository."""
    raise OutpostError("aborted", "not started: reviewing everything costs money by its model; --yes agrees to it")


def _listed(file: Path) -> list[Path]:
    """The folders of a list, one a line, relative to the list; `#` begins a comment."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise configuration(f"{file}: {reason}") from error
    lines = [line.split(" #")[0].strip() for line in text.splitlines()]
    folders = [file.parent / Path(line).expanduser() for line in lines if line and not line.startswith("#")]
    if not folders:
        raise configuration(f"{file}: it names no repository; a folder a line is expected")
    return list(dict.fromkeys(Path(os.path.abspath(folder)) for folder in folders))  # noqa: PTH100 - links are kept


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """A file name for each repository: its own, with a number where two have the same."""
    names: dict[Path, str] = {}
    taken: set[str] = set()
    for folder in folders:
        plain = name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip(".") or "repository"
        number = 1
        while name.lower() in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(name.lower())
        names[folder] = name
    return names


def _said(outcome: dict[str, Any]) -> str:
    if outcome["status"] != "succeeded":
        return f"{outcome['status']}: {outcome.get('message', '')}"
    return ", ".join(f"{count} {severity}" for severity, count in outcome["findings"].items()) or "nothing found"


def _totals(outcomes: Sequence[dict[str, Any]]) -> str:
    failed = sum(outcome["status"] != "succeeded" for outcome in outcomes)
    findings: Counter[str] = Counter()
    for outcome in outcomes:
        findings.update(outcome.get("findings", {}))
    counted = ", ".join(f"{severity}: {count}" for severity, count in sorted(findings.items())) or "no findings"
    return f"{len(outcomes)} repositories, {failed} without a report; {counted}"
