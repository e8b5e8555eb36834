"""Waiting for git costs no thread, and an application's own way of waiting is left alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from outpost_lsp.worktrees.git import find_repository, run_git
from tests.support.repositories import make_repository


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors of processes are Linux's")
async def test_no_thread_waits_for_a_git_process(tmp_path: Path) -> None:
    repository = await find_repository(make_repository(tmp_path / "repository", {"a": "a\n"}).path)
    started: list[str] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    threading.Thread.start = noted  # type: ignore[method-assign]
    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(run_git, repository, ["rev-parse", "HEAD"])
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
    assert not [name for name in started if name.startswith("waitpid")]


async def test_the_status_and_the_output_are_the_processes_own(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "repository", {"a": "a\n"})
    repository = await find_repository(made.path)
    head, missing = await asyncio.gather(
        run_git(repository, ["rev-parse", "HEAD"]), run_git(repository, ["cat-file", "-e", "0" * 40])
    )
    assert (head.status, head.stdout.decode().strip()) == (0, made.head)
    assert missing.status == 1


def test_a_policy_of_the_application_is_left_alone() -> None:
    program = (
        "import asyncio, sys\n"
        "class Own(asyncio.DefaultEventLoopPolicy): pass\n"
        "asyncio.set_event_loop_policy(Own())\n"
        "from outpost_lsp.worktrees.git import git_version\n"
        "assert asyncio.run(git_version())\n"
        "if sys.version_info < (3, 12):\n"
        "    watcher = asyncio.get_event_loop_policy().get_child_watcher()\n"
        "    assert type(watcher) is asyncio.ThreadedChildWatcher, watcher\n"
    )
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], check=True)
