"""Opening workspaces in real repositories (WS-01 to WS-18, LOCK-02)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import anyio
import pytest

from outpost_lsp import BranchPolicy, Command, DiffGuard, LifecycleHooks, OutpostError, open_workspace, recovery_details
from tests.support.repositories import make_repository
from tests.workspaces.conftest import Bench, sh

FAILING = LifecycleHooks(workspace_ready=(Command(executable="sh", arguments=["-c", "exit 4"]),))


async def refused(opening: object, code: str) -> OutpostError:
    with pytest.raises(OutpostError) as caught:
        await opening  # type: ignore[misc]
    assert caught.value.code == code, caught.value
    return caught.value


async def test_WS_01_any_folder_of_a_checkout_will_do_and_a_missing_one_is_refused(
    bench: Bench, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(bench.repository.path / "src")
    async with open_workspace(link, layout=bench.layout) as workspace:
        assert workspace.repository == bench.repository.path.resolve()
        assert workspace.directory == workspace.repository
        assert (workspace.branch, workspace.base_branch) == ("main", "main")
        assert workspace.baseline == bench.repository.head
        assert workspace.git_directories == (bench.repository.path / ".git",)
    await refused(open_workspace(tmp_path / "nowhere", layout=bench.layout), "workspace")


async def test_WS_02_WS_03_state_is_kept_in_the_products_own_folders_and_the_repository_is_left_alone(
    bench: Bench,
) -> None:
    before = bench.repository.state()
    async with bench.open("named", "work") as workspace:
        assert workspace.directory.parent == bench.workspaces
        assert not (bench.repository.path / ".outpost").exists()
        assert bench.repository.git("status", "--porcelain") == ""
    after = bench.repository.state()
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {name for name in changed if "refs/heads" not in name and "logs" not in name} <= {".git"}
    assert ".git/info/exclude" not in changed


async def test_WS_04_integrate_needs_a_branch_and_current_works_detached(bench: Bench) -> None:
    bench.repository.git("checkout", "-q", "--detach")
    await refused(bench.open("integrate"), "workspace")
    assert bench.held_locks() == []
    async with bench.open() as workspace:
        assert (workspace.branch, workspace.base_branch) == ("HEAD", "")


async def test_WS_05_copies_and_a_guard_do_not_go_with_current(bench: Bench) -> None:
    for options in ({"copies": ["ignored"]}, {"guard": DiffGuard()}):
        with pytest.raises(OutpostError) as caught:
            bench.open(**options)
        assert caught.value.code == "configuration"


async def test_WS_06_a_generated_branch_has_the_label_and_a_uuid_in_its_name(bench: Bench) -> None:
    long = "Überprüfe  THE code! " + "x" * 80
    async with bench.open("integrate", label=long) as workspace:
        slug, uuid = workspace.branch.removeprefix("outpost/")[:-37], workspace.branch[-36:]
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
        assert slug == "berpr-fe-the-code-" + "x" * 30
        assert len(slug) == 48
    async with bench.open("integrate") as workspace:
        assert workspace.branch.startswith("outpost/job-")


@pytest.mark.parametrize("name", ["-x", "a..b", "a b", "x.lock", "a\nb", "@{-1}", "HEAD", "a/", "a~1"])
async def test_WS_06_a_name_that_git_would_not_take_is_refused_before_anything_is_made(bench: Bench, name: str) -> None:
    fault = await refused(bench.open("named", name), "configuration")
    assert "branch" in str(fault)
    assert (bench.held_locks(), len(bench.worktrees()), bench.branches()) == ([], 1, ["main"])


async def test_WS_07_the_folder_is_named_by_the_label_and_a_hash_of_the_branch(bench: Bench) -> None:
    digits = hashlib.sha256(b"work").hexdigest()[:12]
    async with bench.open("named", "work", label="My Job") as workspace:
        assert workspace.directory == bench.workspaces / f"my-job-{digits}"
    digits = hashlib.sha256(b"other/one").hexdigest()[:12]
    async with bench.open("named", "other/one") as workspace:
        assert workspace.directory == bench.workspaces / digits


async def test_WS_08_the_lock_is_taken_before_anything_is_made(bench: Bench) -> None:
    with bench.locks.take("work"):
        fault = await refused(bench.open("named", "work"), "conflict")
        assert fault.details["lock"] == str(bench.locks.path("work"))
        assert (len(bench.worktrees()), bench.branches()) == (1, ["main"])
        assert not bench.workspaces.exists() or not list(bench.workspaces.iterdir())
    async with bench.open("named", "work"):
        pass


async def test_LOCK_02_the_keys_are_the_checkout_and_the_branch(bench: Bench) -> None:
    async with bench.open():
        assert bench.held_locks() == [bench.locks.path(str(bench.repository.path)).name]
    async with bench.open("named", "work"):
        assert bench.held_locks() == [bench.locks.path("work").name]
        name = hashlib.sha256(b"work").hexdigest()[:20]
        assert bench.held_locks() == [f"{name}.json"]
    async with bench.open("integrate") as workspace:
        assert bench.held_locks() == [bench.locks.path(workspace.branch).name]
    assert bench.held_locks() == []


async def test_WS_09_a_worktree_deleted_by_hand_is_built_again_from_its_branch(bench: Bench) -> None:
    workspace = await bench.open("named", "work")
    sh(workspace.directory, "echo mine > mine.txt; git add -A; git commit -qm mine")
    await workspace.close(preserve=True)
    sh(bench.repository.path, f"rm -r '{workspace.directory}'")
    async with bench.open("named", "work") as again:
        assert (again.directory / "mine.txt").read_text() == "mine\n"
        assert len(bench.worktrees()) == 2


async def test_WS_09_the_registration_of_a_users_own_missing_worktree_stays(bench: Bench, tmp_path: Path) -> None:
    bench.repository.git("worktree", "add", "-q", "-b", "theirs", str(tmp_path / "theirs"))
    (tmp_path / "theirs").rename(tmp_path / "unmounted")
    async with bench.open("named", "work"):
        assert str(tmp_path / "theirs") in bench.worktrees()


async def test_WS_10_a_managed_worktree_is_used_again_as_it_is(bench: Bench) -> None:
    workspace = await bench.open("named", "work", label="first")
    (workspace.directory / "a.txt").write_text("dirty\n")
    (workspace.directory / "new.txt").write_text("new\n")
    assert (await workspace.close()).retained_directory == workspace.directory
    async with bench.open("named", "work") as again:
        assert again.directory == workspace.directory
        assert (again.directory / "a.txt").read_text() == "dirty\n"
        assert (again.directory / "new.txt").read_text() == "new\n"


async def test_WS_10_a_detached_managed_worktree_is_found_by_its_name_without_the_label(bench: Bench) -> None:
    workspace = await bench.open("named", "work", label="Some label")
    sh(workspace.directory, "git checkout -q --detach")
    assert (await workspace.close()).retained_directory == workspace.directory
    async with bench.open("named", "work") as again:
        assert again.directory == workspace.directory
        assert len(bench.worktrees()) == 2


async def test_WS_11_a_branch_that_is_checked_out_elsewhere_is_a_conflict_with_the_place(
    bench: Bench, tmp_path: Path
) -> None:
    fault = await refused(bench.open("named", "main"), "conflict")
    assert fault.details["directory"] == str(bench.repository.path)
    bench.repository.git("worktree", "add", "-q", "-b", "theirs", str(tmp_path / "theirs"))
    fault = await refused(bench.open("named", "theirs"), "conflict")
    assert fault.details["directory"] == str(tmp_path / "theirs")
    assert bench.held_locks() == []


@pytest.fixture
def origin(bench: Bench, tmp_path: Path) -> str:
    """A remote whose branch `work` is one commit ahead, fetched by the user."""
    repository = bench.repository
    repository.git("branch", "work")
    repository.git("clone", "-q", "--bare", str(repository.path), str(tmp_path / "origin.git"))
    repository.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    sh(tmp_path, "git clone -q -b work origin.git other; cd other; echo more > more.txt; git add -A; git commit -qm more; git push -q origin work")  # fmt: skip
    repository.git("fetch", "-q", "origin")
    return repository.git("rev-parse", "refs/remotes/origin/work")


async def test_WS_12_a_clean_worktree_follows_what_was_fetched_only_when_asked(bench: Bench, origin: str) -> None:
    workspace = await bench.open("named", "work")
    await workspace.close(preserve=True)
    before = bench.repository.git("rev-parse", "work")
    async with bench.open("named", "work"):
        assert bench.repository.git("rev-parse", "work") == before
    workspace = await bench.open("named", "work")
    await workspace.close(preserve=True)
    async with bench.open("named", "work", follow_origin=True) as again:
        assert bench.repository.git("rev-parse", "work") == origin
        assert (again.directory / "more.txt").exists()


async def test_WS_12_local_commits_and_dirty_files_are_never_moved(bench: Bench, origin: str) -> None:
    workspace = await bench.open("named", "work")
    sh(workspace.directory, "echo local > local.txt; git add -A; git commit -qm local")
    local = bench.repository.git("rev-parse", "work")
    await workspace.close(preserve=True)
    async with bench.open("named", "work", follow_origin=True):
        assert bench.repository.git("rev-parse", "work") == local != origin


async def test_WS_13_a_foreign_folder_in_the_way_is_moved_to_recovery_whole(bench: Bench) -> None:
    digits = hashlib.sha256(b"work").hexdigest()[:12]
    async with bench.open("named", "first"):
        pass
    (bench.workspaces / digits).mkdir()
    (bench.workspaces / digits / "theirs.txt").write_text("keep me")
    async with bench.open("named", "work") as workspace:
        assert workspace.directory == bench.workspaces / digits
        assert not (workspace.directory / "theirs.txt").exists()
    (moved,) = bench.recovery.iterdir()
    assert re.fullmatch(rf"orphan-{digits}-[0-9a-f-]{{36}}", moved.name)
    assert (moved / "theirs.txt").read_text() == "keep me"


async def test_WS_14_a_new_branch_starts_where_it_is_told_without_tracking(bench: Bench, origin: str) -> None:
    first = bench.repository.head
    bench.repository.write("b.txt", "b")
    bench.repository.commit_all("second")
    async with bench.open(branch=BranchPolicy("named", "old", start="HEAD~1")) as workspace:
        assert workspace.baseline == first
    async with bench.open(branch=BranchPolicy("named", "tracked", start="origin/work")) as workspace:
        assert workspace.baseline == origin
        assert "tracked" not in (bench.repository.path / ".git/config").read_text()
    # An existing branch is taken as it is, the start only has to be there.
    async with bench.open(branch=BranchPolicy("named", "old", start="main")) as workspace:
        assert workspace.baseline == first
    for start in ("nowhere", "--output=x", "HEAD^{tree}"):
        await refused(bench.open(branch=BranchPolicy("named", "old", start=start)), "configuration")
    assert bench.held_locks() == []


async def test_WS_15_uncommitted_changes_of_the_checkout_are_not_in_it(bench: Bench) -> None:
    bench.repository.write("a.txt", "changed\n")
    bench.repository.write("new.txt", "new\n")
    async with bench.open("named", "work") as workspace:
        assert (workspace.directory / "a.txt").read_text() == "one\ntwo\nthree\n"
        assert not (workspace.directory / "new.txt").exists()


async def test_WS_16_an_opening_that_fails_removes_a_clean_worktree_and_keeps_one_that_holds_something(
    bench: Bench,
) -> None:
    fault = await refused(bench.open("integrate", hooks=FAILING), "process")
    assert (len(bench.worktrees()), bench.held_locks(), bench.branches()) == (1, [], ["main"])
    writing = LifecycleHooks(
        workspace_ready=(Command(executable="sh", arguments=["-c", "mkdir ignored; echo x > ignored/x; exit 4"]),)
    )
    fault = await refused(bench.open("named", "work", hooks=writing), "process")
    details = recovery_details(fault) or {}
    assert details["branch"] == "work"
    assert (Path(details["directory"]) / "ignored/x").exists()
    assert bench.held_locks() == []


async def test_WS_17_ready_hooks_run_once_in_order_in_the_workspace(bench: Bench) -> None:
    def say(text: str) -> Command:
        return Command(executable="sh", arguments=["-c", f"echo {text} >> ready.log; pwd >> ready.log"])

    hooks = LifecycleHooks(workspace_ready=(say("first"), say("second")))
    async with bench.open("named", "work", hooks=hooks) as workspace:
        place = str(workspace.directory)
        assert (workspace.directory / "ready.log").read_text().split() == ["first", place, "second", place]


async def test_WS_17_a_start_up_hook_that_exits_4_fails_with_that_status_and_the_checkout_opens_again(
    bench: Bench,
) -> None:
    fault = await refused(bench.open(hooks=FAILING), "process")
    assert fault.details["status"] == 4
    async with bench.open():
        pass


async def test_WS_18_the_scope_of_the_opening_does_not_reach_later_calls(bench: Bench) -> None:
    with anyio.CancelScope() as scope:
        workspace = await bench.open("named", "work")
    scope.cancel()
    async with workspace.sandbox() as sandbox:
        assert (await sandbox.command(Command(executable="true"))).status == 0
    await workspace.close()


async def test_a_repository_without_commits_has_nothing_a_branch_could_begin_at(bench: Bench, tmp_path: Path) -> None:
    empty = make_repository(tmp_path / "empty", commit=False)
    await refused(open_workspace(empty.path, branch=BranchPolicy("named", "work"), layout=bench.layout), "workspace")
    async with open_workspace(empty.path, layout=bench.layout) as workspace:
        assert workspace.baseline == ""


async def test_two_openings_of_one_checkout_exclude_each_other_until_the_first_is_closed(bench: Bench) -> None:
    async with bench.open():
        fault = await refused(bench.open(), "conflict")
        assert fault.details["pid"] > 0
    async with bench.open():
        pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "named"},
        {"mode": "integrate", "name": "x"},
        {"mode": "current", "start": "HEAD"},
        {"mode": "other"},
        {"mode": "named", "name": " "},
        {"mode": "named", "name": "x", "from": "HEAD"},
    ],
)
def test_a_policy_that_contradicts_itself_is_refused_when_it_is_made(wrong: dict[str, str]) -> None:
    with pytest.raises(OutpostError) as caught:
        open_workspace(".", branch=wrong)
    assert caught.value.code == "configuration"
