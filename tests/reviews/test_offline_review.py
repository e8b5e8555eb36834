"""The offline reviewer, coordinator and fixer at work: real repositories, the real loop, tools, git and ruff."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    DispatchResult,
    Finding,
    Harness,
    OfflineModelProvider,
    PermissionRule,
    Permissions,
    Subagent,
    edit_tools,
    file_tools,
    finding_tools,
    git_tools,
    search_tools,
    summarize_history,
    truncate_tool_results,
)
from outpost_lsp.dispatches.dispatch import dispatch
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from outpost_lsp.domain.event import Event
from outpost_lsp.domain.finding import Span
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.rule_based.assignment import FixOrder, fix_block
from outpost_lsp.reviews.instructions import SHIPPED_AGENTS
from outpost_lsp.reviews.rules import ruff
from outpost_lsp.reviews.scope import PreparedReview, prepare_review
from outpost_lsp.storage.layout import Layout
from outpost_lsp.worktrees.git import find_repository
from tests.support.repositories import Case, RealRepository, make_repository


@dataclass
class Review:
    """A review that was run, and everything seen meanwhile."""

    prepared: PreparedReview
    result: DispatchResult
    events: list[Event] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        return [event.finding for event in self.of("finding") if event.finding is not None]

    @property
    def short(self) -> set[tuple[str, str, str]]:
        return {(finding.path, finding.code, finding.severity) for finding in self.findings}

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.kind == kind]


class Desk:
    """Reviews one repository."""

    def __init__(self, repository: RealRepository, folder: Path) -> None:
        self.repository = repository
        self.provider = OfflineModelProvider()
        self.layout = Layout(folder / "state", folder / "cache")

    def sandboxes(self, prepared: PreparedReview) -> WorktreeSandboxProvider:
        return WorktreeSandboxProvider(layout=self.layout, snapshot=prepared.snapshot)

    def agent(self, prepared: PreparedReview, **harness: Any) -> Agent:
        tools = [file_tools(), search_tools(), git_tools(), finding_tools(prepared.finding_scope("run", "reviewer"))]
        instructions = SHIPPED_AGENTS["reviewer"].instructions
        return Agent(
            "offline", Harness(self.provider, tools=tools, instructions=instructions, conversations=None, **harness)
        )

    async def prepare(self, scope: str = "uncommitted", **more: Any) -> PreparedReview:
        found = await find_repository(self.repository.path)
        return await prepare_review(found, ReviewScope(scope=scope, **more))  # type: ignore[arg-type]

    async def review(self, scope: str = "uncommitted", *, harness: dict[str, Any] | None = None, **more: Any) -> Review:
        prepared = await self.prepare(scope, **more)
        return await self.run(prepared, self.agent(prepared, **(harness or {})), prepared.brief)

    async def run(self, prepared: PreparedReview, agent: Agent, brief: str) -> Review:
        review = Review(prepared, None)  # type: ignore[arg-type]
        review.result = await dispatch(
            self.repository.path, agent, brief, observe=review.events.append, sandbox_provider=self.sandboxes(prepared)
        )
        return review


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    files = {
        "shop/cart.py": "import os\n\n\ndef size(path):\n    return os.stat(path).st_size\n\n\ndef old(x):\n    return x is 'a'\n",
        "shop/prices.py": "def price(x):\n    return x\n",
        "web/app.js": "function f() {\n  return 1;\n}\n",
        "data.json": '{"a": 1}\n',
    }
    return Desk(make_repository(tmp_path / "repo", files), tmp_path)


async def test_an_uncommitted_change_is_reviewed_against_its_base(desk: Desk) -> None:
    desk.repository.write(
        "shop/cart.py", "def size(path):\n    return os.stat(path).st_size\n\n\ndef old(x):\n    return x is 'a'\n"
    )
    desk.repository.write("web/app.js", "function f() {\n  debugger;\n  return 1;\n}\n")
    desk.repository.write("data.json", '{"a": 1,}\n')
    desk.repository.write("new.py", "def f(x):\n    return f'{x}', y\n")
    before = desk.repository.state()
    review = await desk.review()
    assert review.short == {
        ("shop/cart.py", "undefined-name", "error"),
        ("shop/cart.py", "is-literal", "hint"),
        ("web/app.js", "debugger-statement", "error"),
        ("data.json", "does-not-parse", "error"),
        ("new.py", "undefined-name", "error"),
    }
    assert desk.repository.state() == before
    assert len({finding.fingerprint for finding in review.findings}) == len(review.findings)
    assert all(finding.in_diff for finding in review.findings if finding.severity == "error")
    assert "no language model took part" in review.result.text
    assert "4 errors, 1 hint" in review.result.text


async def test_a_fault_outside_every_hunk_keeps_its_severity_when_the_change_causes_it(desk: Desk) -> None:
    text = desk.repository.path.joinpath("shop/cart.py").read_text()
    desk.repository.write("shop/cart.py", text.replace("import os\n", ""))
    [error] = [finding for finding in (await desk.review()).findings if finding.severity == "error"]
    assert error.quote == "return os.stat(path).st_size"
    assert error.in_diff is True


async def test_faults_on_the_same_text_are_one_finding_and_the_summary_counts_as_the_run_does(desk: Desk) -> None:
    desk.repository.write(
        "shop/prices.py",
        "import subprocess\n\n\ndef price(x, f):\n    subprocess.Popen(x, shell=True, preexec_fn=f)\n    return x\n",
    )
    review = await desk.review()
    assert len(review.findings) == 2
    assert len({finding.id for finding in review.findings}) == 1
    assert "Found in the uncommitted changes: 1 error.\n" in (review.result.text or "")


async def test_the_usage_is_zero_tokens_and_complete(desk: Desk) -> None:
    desk.repository.write("shop/prices.py", "def price(x):\n    return x + y\n")
    usage = (await desk.review()).result.usage
    assert (usage.input, usage.output, usage.complete) == (0, 0, None)


async def test_it_works_through_the_tools_like_any_model(desk: Desk) -> None:
    desk.repository.write("shop/prices.py", "def price(x):\n    return x + y\n")
    review = await desk.review()
    assert [event.name for event in review.of("tool")] == ["git", "read_file", "git", "report_finding"]
    assert not [event for event in review.of("tool-result") if event.is_error]


async def test_a_safe_fix_is_offered_as_a_suggestion(desk: Desk) -> None:
    desk.repository.write("shop/prices.py", "def price(x):\n    if x is 'free':\n        return 0\n    return x\n")
    [finding] = (await desk.review()).findings
    assert finding.suggestion is not None
    [edit] = finding.suggestion.edits
    assert "==" in edit.text


@pytest.mark.parametrize("scope", ["staged", "unstaged"])
async def test_staged_and_unstaged_work_are_reviewed_apart(desk: Desk, scope: str) -> None:
    desk.repository.write("shop/prices.py", "def price(x):\n    return x + staged\n")
    desk.repository.git("add", "shop/prices.py")
    desk.repository.write("shop/prices.py", "def price(x):\n    return x + staged + unstaged\n")
    found = [finding for finding in (await desk.review(scope)).findings if finding.severity == "error"]
    titles = " ".join(finding.title for finding in found)
    assert ("`staged`" in titles) is (scope == "staged")
    assert ("`unstaged`" in titles) is (scope == "unstaged")


async def test_a_commit_and_a_branch_are_reviewed_at_their_revision(desk: Desk) -> None:
    desk.repository.git("checkout", "-q", "-b", "feature")
    desk.repository.write("shop/prices.py", "def price(x):\n    return x + first\n")
    first = desk.repository.commit_all("first")
    desk.repository.write("shop/prices.py", "def price(x):\n    return x + second\n")
    desk.repository.commit_all("second")
    assert ["`first`" in finding.title for finding in (await desk.review("commit", revision=first)).findings] == [True]
    branch = await desk.review("branch", base="main")
    assert ["`second`" in finding.title for finding in branch.findings] == [True]


async def test_a_renamed_file_keeps_its_old_faults_old(desk: Desk) -> None:
    desk.repository.git("mv", "shop/cart.py", "shop/basket.py")
    text = desk.repository.path.joinpath("shop/basket.py").read_text()
    desk.repository.write("shop/basket.py", text + "\n\ndef more():\n    return nowhere\n")
    assert (await desk.review()).short == {
        ("shop/basket.py", "undefined-name", "error"),
        ("shop/basket.py", "is-literal", "hint"),
    }


async def test_a_workspace_is_reviewed_as_it_stands(desk: Desk) -> None:
    review = await desk.review("workspace")
    assert review.short == {("shop/cart.py", "is-literal", "error")}
    assert all(finding.in_diff is None for finding in review.findings)


async def test_habits_are_warnings_where_a_change_brings_them_and_information_in_code_that_stands(desk: Desk) -> None:
    text = "def price(x, ask):\n    try:\n        return ask(x)\n    except:\n        return hash(x) is 'a'\n"
    desk.repository.write("shop/prices.py", text)
    habit, fault = "bare-except", "is-literal"
    brought = {(code, severity) for path, code, severity in (await desk.review()).short if path == "shop/prices.py"}
    assert {(habit, "warning"), (fault, "error")} <= brought
    standing = {(code, severity) for path, code, severity in (await desk.review("workspace")).short}
    assert {(habit, "information"), (fault, "error")} <= standing


async def test_a_default_that_is_never_changed_is_a_warning_where_it_is_new_and_information_where_it_stands(
    desk: Desk,
) -> None:
    path, text = "shop/cart.py", "\n\ndef known(x, seen=[]):\n    return x in seen\n"
    desk.repository.write(path, desk.repository.path.joinpath(path).read_text() + text)
    default = "mutable-argument-default"
    assert (path, default, "warning") in (await desk.review()).short
    assert (path, default, "information") in (await desk.review("workspace")).short
    assert (path, default, "information") in (await desk.review("file", paths=(path,))).short


async def test_a_selection_is_reviewed_within_its_lines(desk: Desk) -> None:
    span = Span(start_line=7, start_character=0, end_line=9, end_character=0)
    inside = await desk.review("selection", paths=("shop/cart.py",), span=span)
    assert {code for _, code, _ in inside.short} == {"is-literal"}
    outside = await desk.review(
        "selection",
        paths=("shop/cart.py",),
        span=Span(start_line=0, start_character=0, end_line=4, end_character=0),
    )
    assert not outside.findings


async def test_a_repository_without_commits_is_reviewed(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    repository = RealRepository(tmp_path / "repo")
    repository.git("init", "-q", "-b", "main")
    repository.write("a.py", "print(nowhere)\n")
    review = await Desk(repository, tmp_path).review()
    assert review.short == {("a.py", "undefined-name", "error")}


async def test_odd_names_binary_large_and_broken_files_are_read_or_named(desk: Desk) -> None:
    names = ["né e.py", "a#b%20c.py", "tab\there.py", 'quo"te.py', "-dash.py", "日本/語.py", "*.py"]
    for name in names:
        desk.repository.write(name, "print(nowhere)\n")
    desk.repository.write("back\\slash.py", "print(nowhere)\n")
    desk.repository.write("blob.dat", b"\x00\x01" * 1_000)
    desk.repository.write("huge.txt", "x" * 79 * 60_000)
    desk.repository.write("latin.py", b"# caf\xe9\nprint(nowhere)\n")
    desk.repository.write("crlf.py", b"x = 1\r\nprint(nowhere)\r\n")
    desk.repository.write("empty.py", "")
    review = await desk.review()
    assert {path for path, code, _ in review.short if code == "undefined-name"} == {
        *names,
        "latin.py",
        "crlf.py",
    }
    # To the tools a backslash is a separator, so that nothing can be reported of this one.
    assert "Reports that were not taken: 1" in review.result.text
    assert "back/slash.py" in review.result.text
    assert "`blob.dat`" in review.result.text
    assert "`huge.txt`" in review.result.text
    assert "14 files" not in review.result.text


async def test_a_base_longer_than_one_answer_is_still_compared(desk: Desk) -> None:
    lines = [f"def f{number}(x):\n    return x is 'a{number}'\n" for number in range(3_000)]
    desk.repository.write("long.py", "\n\n".join(lines))
    desk.repository.commit_all()
    lines[1_500] = "def f1500(x):\n    return nowhere\n"
    desk.repository.write("long.py", "\n\n".join(lines))
    review = await desk.review()
    assert [finding.code for finding in review.findings if finding.severity == "error"] == ["undefined-name"]
    assert "could not" not in review.result.text


async def test_many_files_are_all_read(desk: Desk) -> None:
    for number in range(700):
        desk.repository.write(f"many/m{number:03}.py", f"print(name_{number})\n" if number % 100 == 0 else "x = 1\n")
    review = await desk.review()
    assert len([finding for finding in review.findings if finding.path.startswith("many/")]) == 7
    assert "Read and checked: 700 files" in review.result.text


async def test_a_denied_folder_is_named_and_the_rest_is_reviewed(desk: Desk) -> None:
    desk.repository.write("secret/a.py", "print(nowhere)\n")
    desk.repository.write("b.py", "print(nowhere)\n")
    rules = [PermissionRule("deny", tools=["read_file"], paths=["secret/**"], reason="not for agents")]
    review = await desk.review(harness={"permissions": Permissions(rules)})
    assert {path for path, _, _ in review.short} == {"b.py"}
    assert "`secret/a.py`: Denied" in review.result.text


async def test_shortened_histories_do_not_change_what_is_found(desk: Desk) -> None:
    for number in range(150):
        desk.repository.write(f"many/m{number:03}.py", f"# {'x' * 400}\nprint(name_{number})\n")
    context = [truncate_tool_results(keep_recent=1, max_characters=50), summarize_history(trigger_characters=20_000)]
    review = await desk.review(harness={"context": context})
    assert review.of("compaction")
    published = {finding.path for finding in review.findings if finding.code == "undefined-name"}
    assert len(published) == 100, "the most findings a run may have"


async def test_a_failing_analyser_fails_the_run(desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "ruff"
    broken.write_text("#!/bin/sh\nexit 9\n")
    broken.chmod(0o755)
    monkeypatch.setattr(ruff, "_binary", lambda: str(broken))
    desk.repository.write("b.py", "x = 1\n")
    with pytest.raises(OutpostError) as caught:
        await desk.review()
    assert caught.value.code == "process"


async def test_hostile_configuration_of_the_repository_does_not_silence_the_review(
    desk: Desk, case: Callable[[str], Case]
) -> None:
    desk.repository.write("ruff.toml", 'exclude = ["**"]\n')
    desk.repository.write("pyproject.toml", '[tool.ruff.lint]\nignore = ["ALL"]\n')
    desk.repository.write("b.py", "print(nowhere)\n")
    assert ("b.py", "undefined-name", "error") in (await desk.review()).short


async def test_the_coordinator_delegates_areas_and_its_reviewers_place_the_findings(desk: Desk) -> None:
    for folder in ("shop", "web"):
        desk.repository.write(f"{folder}/one.py", "print(nowhere)\n")
        desk.repository.write(f"{folder}/two.py", "x = 1\n")
    prepared = await desk.prepare()
    reviewer = desk.agent(prepared)
    shipped = SHIPPED_AGENTS["coordinator"]
    coordinator = Agent(
        "offline",
        Harness(
            desk.provider,
            instructions=shipped.instructions,
            tools=[file_tools(), search_tools(), git_tools(), Subagent("reviewer", "Reviews an area", reviewer)],
            conversations=None,
        ),
    )
    review = await desk.run(prepared, coordinator, prepared.brief)
    assert [event.status for event in review.of("subagent")] == ["started", "finished"] * 2
    assert review.short == {(f"{folder}/one.py", "undefined-name", "error") for folder in ("shop", "web")}
    assert "Found in all: 2 errors." in review.result.text
    assert "- shop/ (2 files): 1 error" in review.result.text
    plain = await desk.run(prepared, coordinator, "Look over my uncommitted work.")
    assert plain.result.text == review.result.text


async def test_the_fixer_puts_a_suggestion_in_place_in_its_worktree(desk: Desk) -> None:
    fixer = Agent("offline", Harness(desk.provider, tools=[file_tools(), edit_tools()], conversations=None))
    order = FixOrder("shop/cart.py", 9, "return x is 'a'", "Identity", "return x == 'a'")
    prepared = await desk.prepare("workspace")
    review = await desk.run(prepared, fixer, f"Fix it.\n\n{fix_block(order)}")
    assert "was put in place" in review.result.text
    assert review.result.changes is not None
    assert "shop/cart.py" in str(review.result.changes)
    assert "x is 'a'" in desk.repository.path.joinpath("shop/cart.py").read_text()
