"""Hooks around workspaces and sandboxes (LIFE-01 to LIFE-05, SBX-05)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import BranchPolicy, Command, HostSandboxProvider, LifecycleHooks, OutpostError, dispatch
from tests.workspaces.conftest import Bench, worker


def say(text: str, **more: Any) -> Command:
    return Command(executable="sh", arguments=["-ec", text], **more)


async def test_LIFE_01_LIFE_03_workspace_hooks_run_once_and_sandbox_hooks_at_every_start(
    bench: Bench, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    hooks = LifecycleHooks(
        workspace_ready=(say(f"echo workspace $(pwd) >> '{log}'"),),
        host_ready=(say(f"echo host $(pwd) >> '{log}'"), say(f"echo below $(pwd) >> '{log}'", directory="src")),
        sandbox_ready=(say(f"echo sandbox $(pwd) $HOME >> '{log}'"),),
    )
    async with bench.open("named", "work", hooks=hooks) as workspace:
        place = str(workspace.directory)
        assert log.read_text() == f"workspace {place}\n"
        for _ in range(2):
            log.write_text("")
            async with workspace.sandbox():
                lines = sorted(line.split() for line in log.read_text().splitlines())
                assert [line[0] for line in lines] == ["below", "host", "sandbox"]
                assert [line[1] for line in lines] == [f"{place}/src", place, place]
                # The home of a sandbox is its own.
                assert Path(lines[2][2]).is_relative_to(bench.layout.cache)


async def test_LIFE_02_host_hooks_follow_each_other_while_sandbox_hooks_run_all_at_once(
    bench: Bench, tmp_path: Path
) -> None:
    """Two sandbox hooks and the second host hook wait for each other, which only works at the same time."""
    one, two = tmp_path / "one", tmp_path / "two"
    waits = "until [ -e '{}' ]; do sleep 0.01; done"
    hooks = LifecycleHooks(
        host_ready=(say(f"touch '{tmp_path}/first'"), say(f"test -e '{tmp_path}/first'; touch '{two}'")),
        sandbox_ready=(
            say(f"touch '{one}'; {waits.format(two)}", deadline_s=60),
            say(waits.format(one), deadline_s=60),
        ),
    )
    async with bench.open("named", "work", hooks=hooks) as workspace, workspace.sandbox():
        assert two.exists()


async def test_LIFE_02_the_first_failure_ends_all_others_and_is_raised(bench: Bench, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hooks = LifecycleHooks(
        host_ready=(say(f"until [ -s '{pid}' ]; do sleep 0.01; done; exit 7"),),
        sandbox_ready=(say(f"echo $$ > '{pid}'; exec sleep 1000"),),
    )
    async with bench.open("named", "work", hooks=hooks) as workspace:
        with pytest.raises(OutpostError) as caught:
            async with workspace.sandbox():
                pass
        assert (caught.value.code, caught.value.details["status"]) == ("process", 7)
        assert not Path(f"/proc/{pid.read_text().strip()}").exists()


async def test_LIFE_04_hooks_given_to_the_sandbox_replace_those_of_its_workspace(bench: Bench, tmp_path: Path) -> None:
    log = tmp_path / "log"
    outer = LifecycleHooks(host_ready=(say(f"echo outer >> '{log}'"),))
    inner = LifecycleHooks(sandbox_ready=(say(f"echo inner >> '{log}'"),))
    async with bench.open("named", "work", hooks=outer) as workspace:
        async with workspace.sandbox(hooks=inner):
            assert log.read_text() == "inner\n"
        await workspace.dispatch(worker("true"), "go", hooks=inner)
        assert log.read_text() == "inner\ninner\n"
        await workspace.dispatch(worker("true"), "go")
        assert log.read_text() == "inner\ninner\nouter\n"


async def test_LIFE_05_a_start_up_failure_frees_lock_and_lease(bench: Bench) -> None:
    failing = LifecycleHooks(sandbox_ready=(say("exit 3"),))
    with pytest.raises(OutpostError) as caught:
        await dispatch(
            bench.repository.path,
            worker("true"),
            "go",
            branch=BranchPolicy("named", "work"),
            hooks=failing,
            layout=bench.layout,
        )
    assert caught.value.code == "process"
    # SBX-05: the lease was released and the workspace clean, so that it is gone.
    assert (len(bench.worktrees()), bench.held_locks()) == (1, [])
    async with bench.open("named", "work") as workspace:
        with pytest.raises(OutpostError):
            async with workspace.sandbox(hooks=failing):
                pass
        async with workspace.sandbox() as sandbox:
            assert (await sandbox.command(Command(executable="true"))).status == 0


class _Broken:
    name = "broken"

    async def acquire(self, _context: Any, /) -> Any:
        raise OutpostError("provider", "no machine could be had")


class _Unreleasable(HostSandboxProvider):
    async def acquire(self, context: Any, /) -> Any:
        lease = await super().acquire(context)

        class Stuck:
            def __getattr__(self, name: str) -> Any:
                return getattr(lease, name)

            async def release(self) -> None:
                raise OutpostError("provider", "it does not let go")

        return Stuck()


async def test_SBX_05_a_provider_that_fails_while_acquiring_leaves_the_clean_worktree(bench: Bench) -> None:
    with pytest.raises(OutpostError) as caught:
        await dispatch(
            bench.repository.path,
            worker("true"),
            "go",
            branch=BranchPolicy("named", "work"),
            sandbox_provider=_Broken(),
            layout=bench.layout,
        )
    assert caught.value.code == "provider"
    assert len(bench.worktrees()) == 2
    assert bench.held_locks() == []


async def test_SBX_03_a_release_that_fails_keeps_the_workspace_and_is_raised(bench: Bench) -> None:
    with pytest.raises(OutpostError) as caught:
        await dispatch(
            bench.repository.path,
            worker("true"),
            "go",
            branch=BranchPolicy("named", "work"),
            sandbox_provider=_Unreleasable(),
            layout=bench.layout,
        )
    assert str(caught.value) == "it does not let go"
    assert len(bench.worktrees()) == 2
    assert bench.held_locks() == []


async def test_hooks_of_a_snapshot_sandbox_run_too(bench: Bench, tmp_path: Path) -> None:
    log = tmp_path / "log"
    hooks = LifecycleHooks(
        workspace_ready=(say(f"echo workspace >> '{log}'"),),
        host_ready=(say(f"echo ready >> '{log}'"),),
        sandbox_ready=(say(f"echo ready >> '{log}'"),),
    )
    await dispatch(bench.repository.path, worker("true"), "go", hooks=hooks, layout=bench.layout)
    assert log.read_text() == "workspace\nready\nready\n"
    with pytest.raises(OutpostError) as caught:
        LifecycleHooks(host_ready=(Command(executable=""),))
    assert caught.value.code == "configuration"
