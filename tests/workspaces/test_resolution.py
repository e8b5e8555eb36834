"""Conflicts that an agent resolves (CONF-01 to CONF-09)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import (
    AgentConflictResolver,
    Command,
    CommandResult,
    ConflictContext,
    DiffGuard,
    OutpostError,
    Resolution,
    recovery_details,
)
from outpost_lsp.dispatches.workspace import Workspace
from tests.workspaces.conftest import Bench, sh, worker

MERGES = "printf 'both\\n' > a.txt; git add a.txt; git commit -qm 'both sides'"
FINE = Command(executable="grep", arguments=["-q", "both", "a.txt"])


def resolver(script: str = MERGES, verify: Command = FINE, **more: Any) -> AgentConflictResolver:
    return AgentConflictResolver(worker(script), verify=verify, **more)


def verifying(script: str, **more: Any) -> Command:
    return Command(executable="sh", arguments=["-ec", script], **more)


@dataclass(frozen=True)
class Conflicted:
    """A workspace whose branch and base changed the same line, and the two commits."""

    bench: Bench
    workspace: Workspace
    source: str
    host: str

    async def fails(self, on_conflict: Any, code: str, **options: Any) -> OutpostError:
        """Integrate, fail, and find both workspaces kept and everything of the user's as it was (CONF-09)."""
        before = self.bench.repository.state()
        with pytest.raises(OutpostError) as caught:
            await self.workspace.integrate(on_conflict=on_conflict, **options)
        assert caught.value.code == code, caught.value
        after = self.bench.repository.state()
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert not [name for name in changed if "outpost" not in name and name not in {".git", ".git/refs/heads"}], (
            changed
        )
        assert self.bench.repository.git("rev-parse", self.workspace.branch) == self.source
        details = recovery_details(caught.value) or {}
        assert details["source_branch"] == self.workspace.branch
        assert details["source_directory"] == str(self.workspace.directory)
        assert details["branch"].startswith("outpost/resolve-")
        assert Path(details["directory"]).is_dir()
        assert self.bench.locks.owner(details["branch"]) is None
        assert self.bench.locks.owner("merge:main") is None
        assert (await self.workspace.close()).retained_directory == self.workspace.directory
        return caught.value


@pytest.fixture
async def conflicted(bench: Bench) -> AsyncIterator[Conflicted]:
    workspace = await bench.open("integrate")
    sh(workspace.directory, "echo agent > a.txt; git add -A; git commit -qm agent")
    bench.repository.write("a.txt", "person\n")
    host = bench.repository.commit_all("person")
    yield Conflicted(bench, workspace, bench.repository.git("rev-parse", workspace.branch), host)
    await workspace.close()


async def test_an_agent_resolves_and_the_checkout_moves_forward_to_what_was_verified(conflicted: Conflicted) -> None:
    repository = conflicted.bench.repository
    events: list[Any] = []
    done = await conflicted.workspace.integrate(on_conflict=resolver(observe=events.append, instructions="Be kind."))
    assert done is not None
    assert (done.resolved, done.commit) == (True, repository.head)
    assert (repository.path / "a.txt").read_text() == "both\n"
    # The parents of the merge are the source and the host, in this order.
    assert repository.git("rev-parse", "HEAD^1", "HEAD^2").split() == [conflicted.source, conflicted.host]
    # CONF-08: the source branch is not moved.
    assert repository.git("rev-parse", conflicted.workspace.branch) == conflicted.source
    brief = next(event.text for event in events if event.kind == "prompt")
    assert all(word in brief for word in (conflicted.source, conflicted.host, "a.txt", "Be kind."))
    await conflicted.workspace.close()
    assert (len(conflicted.bench.worktrees()), conflicted.bench.branches()) == (1, ["main"])


async def test_CONF_01_it_needs_the_policy_integrate_an_open_workspace_and_no_open_sandbox(bench: Bench) -> None:
    async with bench.open("named", "work") as workspace:
        with pytest.raises(OutpostError) as caught:
            await workspace.integrate(on_conflict=resolver())
        assert caught.value.code == "configuration"
    async with bench.open("integrate") as workspace, workspace.sandbox():
        with pytest.raises(OutpostError) as caught:
            await workspace.integrate(on_conflict=resolver())
        assert caught.value.code == "configuration"
    with pytest.raises(OutpostError) as caught:
        await workspace.integrate(on_conflict=resolver())
    assert caught.value.code == "configuration"


async def test_CONF_01_the_workspace_is_busy_while_a_conflict_is_resolved(conflicted: Conflicted) -> None:
    """The lock of the base is held meanwhile (INT-03)."""
    workspace = conflicted.workspace
    seen: list[str] = []

    async def resolve(context: ConflictContext) -> Resolution:
        async def open_sandbox() -> None:
            async with workspace.sandbox():
                pass

        for attempt in (workspace.close(), workspace.integrate(), open_sandbox()):
            with pytest.raises(OutpostError) as caught:
                await attempt
            seen.append(caught.value.code)
        assert conflicted.bench.locks.owner("merge:main") is not None
        return await resolver()(context)

    await workspace.integrate(on_conflict=resolve)
    assert seen == ["configuration"] * 3


async def test_CONF_02_the_resolver_is_called_for_a_conflict_and_nothing_else(bench: Bench) -> None:
    async def never(_context: ConflictContext) -> Resolution:
        raise AssertionError

    async with bench.open("integrate", guard=DiffGuard(protected_paths=("secret",))) as workspace:
        sh(workspace.directory, "echo w > w; git add -A; git commit -qm w")
        done = await workspace.integrate(on_conflict=never)
        assert done is not None
        assert (done.merged, done.resolved) == (True, False)
        sh(workspace.directory, "echo agent > a.txt; git add -A; git commit -qm a")
        bench.repository.write("a.txt", "person\n")
        bench.repository.commit_all("person")
        # INT-07: any change of the checkout blocks it, untracked files included.
        bench.repository.write("untracked.txt", "mine\n")
        with pytest.raises(OutpostError) as caught:
            await workspace.integrate(on_conflict=never)
        assert (caught.value.code, caught.value.details["paths"]) == ("conflict", ["untracked.txt"])
        (bench.repository.path / "untracked.txt").unlink()
        bench.repository.git("checkout", "-q", "-b", "other")
        with pytest.raises(OutpostError) as caught:
            await workspace.integrate(on_conflict=never)
        assert caught.value.code == "conflict"
        bench.repository.git("checkout", "-q", "main")
        sh(workspace.directory, "echo s > secret; git add -A; git commit -qm s")
        with pytest.raises(OutpostError) as caught:
            await workspace.integrate(on_conflict=never)
        assert caught.value.code == "guard"


async def test_CONF_03_the_resolver_gets_a_workspace_that_starts_at_the_source(conflicted: Conflicted) -> None:
    contexts: list[ConflictContext] = []

    async def resolve(context: ConflictContext) -> Resolution:
        contexts.append(context)
        assert context.workspace.baseline == context.candidate_commit == conflicted.source
        return await resolver()(context)

    await conflicted.workspace.integrate(on_conflict=resolve)
    (context,) = contexts
    assert context.workspace.branch.startswith("outpost/resolve-")
    assert (context.host_commit, context.conflicts) == (conflicted.host, ("a.txt",))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"branch": "main"}, "conflict"),
        ({"directory": Path("/elsewhere")}, "conflict"),
        ({"verification": CommandResult(3, "out", "err")}, "process"),
        ({"commit": "0" * 40}, "conflict"),
    ],
)
async def test_CONF_04_what_a_resolver_gives_back_is_checked(
    conflicted: Conflicted, change: dict[str, Any], code: str
) -> None:
    async def resolve(context: ConflictContext) -> Resolution:
        return replace(await resolver()(context), **change)

    fault = await conflicted.fails(resolve, code)
    if code == "process":
        assert (fault.details["status"], fault.details["stdout"]) == (3, "out")


@pytest.mark.parametrize(
    "wrong",
    [
        Command(executable=" "),
        Command(executable="true", directory=""),
        Command(executable="true", directory="src"),
        Command(executable="true", stdin=""),
        Command(executable="true", deadline_s=0),
        "true",
    ],
)
def test_CONF_05_a_verification_has_an_executable_and_neither_directory_nor_input(wrong: Any) -> None:
    with pytest.raises(OutpostError) as caught:
        resolver(verify=wrong)
    assert caught.value.code == "configuration"


def test_CONF_05_a_verification_has_300_seconds_unless_it_says_otherwise() -> None:
    assert resolver().verify.deadline_s == 300
    assert resolver(verify=Command(executable="true", deadline_s=7)).verify.deadline_s == 7


async def test_CONF_06_a_real_merge_is_prepared_that_must_conflict(conflicted: Conflicted) -> None:
    """The agent finds it under way, with the files in conflict."""
    looks = "test -e \"$(git rev-parse --git-dir)/MERGE_HEAD\"; git diff --name-only --diff-filter=U | grep -qx a.txt; grep -q '<<<<<<<' a.txt"  # fmt: skip
    done = await conflicted.workspace.integrate(on_conflict=resolver(f"{looks}; {MERGES}"))
    assert done is not None


async def test_CONF_06_a_merge_that_does_not_conflict_is_refused(conflicted: Conflicted) -> None:
    async def resolve(context: ConflictContext) -> Resolution:
        sh(context.workspace.directory, "echo person > a.txt; git add -A; git commit -qm theirs")
        return await resolver()(context)

    await conflicted.fails(resolve, "conflict")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("true", "conflict"),
        ("printf 'both\\n' > a.txt", "conflict"),
        ("printf 'both\\n' > a.txt; git add a.txt", "conflict"),
        (f"{MERGES}; echo x > left.txt", "conflict"),
        (f"{MERGES}; git checkout -q --detach", "conflict"),
        ("git merge --abort", "process"),
        ("git merge --abort; echo x > x; git add x; git commit -qm x", "process"),
    ],
)
async def test_CONF_07_a_resolution_that_is_not_whole_is_refused(
    conflicted: Conflicted, script: str, code: str
) -> None:
    await conflicted.fails(resolver(script), code)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("echo edited >> a.txt", "conflict"),
        ("git commit -q --allow-empty -m more", "conflict"),
        ("echo x > left.txt", "conflict"),
        ("git checkout -q --detach", "conflict"),
        ("exit 9", "process"),
    ],
)
async def test_CONF_07_a_verification_that_changes_something_or_fails_is_refused(
    conflicted: Conflicted, script: str, code: str
) -> None:
    fault = await conflicted.fails(resolver(verify=verifying(script)), code)
    if code == "process":
        assert fault.details["status"] == 9


async def test_CONF_07_a_verification_that_hangs_is_ended(conflicted: Conflicted, tmp_path: Path) -> None:
    hanging = verifying(f"echo $$ > '{tmp_path}/pid'; exec sleep 1000", deadline_s=5.0)
    await conflicted.fails(resolver(verify=hanging), "timeout")
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(
    "meanwhile",
    [
        "git commit -q --allow-empty -m later",
        "echo dirty >> a.txt",
        "echo x > untracked.txt",
        "git checkout -q -b other",
        "git update-ref refs/heads/{source} HEAD",
    ],
)
async def test_CONF_08_whatever_moved_meanwhile_stops_the_integration(conflicted: Conflicted, meanwhile: str) -> None:
    repository = conflicted.bench.repository

    async def resolve(context: ConflictContext) -> Resolution:
        resolution = await resolver()(context)
        sh(repository.path, meanwhile.format(source=conflicted.workspace.branch))
        return resolution

    with pytest.raises(OutpostError) as caught:
        await conflicted.workspace.integrate(on_conflict=resolve)
    assert caught.value.code == "conflict"
    assert (recovery_details(caught.value) or {})["branch"].startswith("outpost/resolve-")
    assert "both" not in (repository.path / "a.txt").read_text()
    assert repository.git("rev-parse", "main") != (recovery_details(caught.value) or {}).get("commit")


@pytest.mark.parametrize(
    ("afterwards", "code"),
    [
        ("echo x > left.txt", "conflict"),
        ("git checkout -q --detach", "conflict"),
        ("git commit -q --allow-empty -m later", "conflict"),
        ("git reset -q --hard HEAD^1", "conflict"),
    ],
)
async def test_CONF_08_a_resolution_that_changes_after_it_was_given_back_is_refused(
    conflicted: Conflicted, afterwards: str, code: str
) -> None:
    async def resolve(context: ConflictContext) -> Resolution:
        resolution = await resolver()(context)
        sh(context.workspace.directory, afterwards)
        return resolution

    await conflicted.fails(resolve, code)


async def test_CONF_08_a_resolution_that_leaves_out_a_side_is_refused(conflicted: Conflicted) -> None:
    """It can be moved forward to, and still lacks what the agent did."""

    async def resolve(context: ConflictContext) -> Resolution:
        sh(context.workspace.directory, f"git reset -q --hard {context.host_commit}; git commit -q --allow-empty -m x")
        return Resolution(
            commit=sh(context.workspace.directory, "git rev-parse HEAD"),
            branch=context.workspace.branch,
            directory=context.workspace.directory,
            verification=CommandResult(0, "", ""),
        )

    await conflicted.fails(resolve, "process")


async def test_CONF_08_the_guard_looks_at_the_resolution(bench: Bench) -> None:
    workspace = await bench.open("integrate", guard=DiffGuard(protected_paths=("secret",)))
    sh(workspace.directory, "echo agent > a.txt; git add -A; git commit -qm agent")
    bench.repository.write("a.txt", "person\n")
    host = bench.repository.commit_all("person")
    with pytest.raises(OutpostError) as caught:
        await workspace.integrate(on_conflict=resolver(f"echo s > secret; git add secret; {MERGES}"))
    assert (caught.value.code, caught.value.details["reasons"]) == ("guard", ["protected-paths"])
    assert bench.repository.head == host
    assert (await workspace.close()).retained_directory == workspace.directory


async def test_CONF_09_the_time_limit_ends_it_and_keeps_both(conflicted: Conflicted) -> None:
    async def resolve(_context: ConflictContext) -> Resolution:
        await asyncio.Event().wait()
        raise AssertionError

    await conflicted.fails(resolve, "timeout", deadline_s=0.2)


async def test_CONF_09_cancelling_keeps_both_too(conflicted: Conflicted) -> None:
    started = asyncio.Event()
    places: list[Path] = []

    async def resolve(context: ConflictContext) -> Resolution:
        places.append(context.workspace.directory)
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    running = asyncio.ensure_future(conflicted.workspace.integrate(on_conflict=resolve))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert places[0].is_dir()
    assert conflicted.bench.repository.head == conflicted.host
    assert conflicted.bench.locks.owner("merge:main") is None
    assert (await conflicted.workspace.close()).retained_directory == conflicted.workspace.directory


async def test_a_merge_driver_that_the_repository_names_is_never_run(bench: Bench, tmp_path: Path) -> None:
    """Git cannot merge such a file without it, so that it counts as one that could not be merged (SEC-02)."""
    marker = tmp_path / "marker"
    bench.repository.write(".gitattributes", "a.txt merge=evil\n")
    bench.repository.commit_all("attributes")
    bench.repository.git("config", "merge.evil.driver", f"touch '{marker}'")
    workspace = await bench.open("integrate")
    sh(workspace.directory, "printf 'zero\\none\\ntwo\\nthree\\n' > a.txt; git add -A; git commit -qm agent")
    bench.repository.write("a.txt", "one\ntwo\nthree\nfour\n")
    host = bench.repository.commit_all("person")
    with pytest.raises(OutpostError) as caught:
        await workspace.integrate()
    assert caught.value.code == "conflict"
    assert (bench.repository.head, marker.exists()) == (host, False)
    await workspace.close()
