"""The offline provider as a state machine: what it says next, given what its tools answered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from outpost_lsp.domain.message import History, Message, ToolCallBlock, ToolResultBlock, user
from outpost_lsp.domain.model import Completed, ModelRequest, ModelResult, ModelSpec, TextDelta, ToolSpec
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.offline import OfflineProvider
from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.models.rule_based.assignment import (
    Assignment,
    FixOrder,
    ScopeFile,
    fix_block,
    fix_order,
    review_assignment,
    review_block,
)

BASE, SNAPSHOT = "b" * 40, "5" * 40
REVIEW_TOOLS = ("read_file", "list_files", "search", "git", "report_finding")

Answer = str | tuple[str, bool]
"""What a tool says; with `True` as an error."""


async def words(texts: Sequence[SourceText]) -> list[list[RawFinding]]:
    """An analyser that finds every line with the word BAD, or NEW as worth saying only against a base."""
    return [
        [
            RawFinding(
                rule="word",
                code="bad-word",
                severity="error",
                title="A bad word is shown",
                detail="The line holds it.",
                line=number,
                quote=line,
                only_new="NEW" in line,
            )
            for number, line in enumerate(source.text.split("\n"), 1)
            if "BAD" in line or "NEW" in line
        ]
        for source in texts
    ]


def spec(name: str, *fields: str) -> ToolSpec:
    return ToolSpec(name, name, {"type": "object", "properties": {field: {"type": "string"} for field in fields}})


class Conversation:
    """Plays the loop: every call is answered by a function, until the provider is done."""

    def __init__(
        self,
        brief: str,
        answer: Callable[[str, dict[str, Any]], Answer],
        *,
        tools: Sequence[str] = REVIEW_TOOLS,
        provider: OfflineProvider | None = None,
        specs: Sequence[ToolSpec] = (),
    ) -> None:
        self.history = History([user(brief)])
        self.answer = answer
        self.tools = tuple(spec(name, "path", "other") for name in tools) + tuple(specs)
        self.provider = provider or OfflineProvider(words)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.steps: list[list[str]] = []

    async def step(self) -> ModelResult:
        request = ModelRequest(model="any", messages=self.history, tools=self.tools)
        events = [event async for event in self.provider.stream(request)]
        *deltas, last = events
        assert isinstance(last, Completed)
        assert all(isinstance(delta, TextDelta) for delta in deltas)
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.result.text
        return last.result

    async def run(self, *, steps: int = 100) -> str:
        for _ in range(steps):
            result = await self.step()
            message = Message(role="assistant", content=result.blocks)
            self.history.append(message)
            if not message.calls:
                return result.text
            self.history.append(self.answered(message.calls))
        raise AssertionError("the provider does not come to an end")

    def answered(self, calls: Sequence[ToolCallBlock], *remarks: str) -> Message:
        self.steps.append([call.name for call in calls])
        results = []
        for call in calls:
            self.calls.append((call.name, call.input))
            answer = self.answer(call.name, call.input)
            content, is_error = answer if isinstance(answer, tuple) else (answer, False)
            results.append(ToolResultBlock(call_id=call.id, content=content, is_error=is_error or None))
        return Message(role="user", content=(*results, *user(*remarks).content))

    def reports(self) -> list[dict[str, Any]]:
        return [given for name, given in self.calls if name == "report_finding"]


def numbered(text: str, first: int = 1, total: int | None = None) -> str:
    lines = text.removesuffix("\n").split("\n") if text else []
    if not lines:
        return "(empty file)"
    last = first + len(lines) - 1
    shown = "\n".join(f"{number:>{len(str(last))}}\t{line}" for number, line in enumerate(lines, first))
    return shown if total is None else f"{shown}\n[lines {first}-{last} of {total}]"


def git_says(text: str, status: int = 0, stderr: str = "") -> Answer:
    parts = [f"exit status {status}"]
    parts += ["--- stdout ---", text.removesuffix("\n")] if text else []
    parts += ["--- stderr ---", stderr] if stderr else []
    return "\n".join(parts), status != 0


class Repository:
    """Answers as the tools would on a change from `before` to `after`."""

    def __init__(self, before: dict[str, str], after: dict[str, str]) -> None:
        self.before = before
        self.after = after
        self.placed = "Placed at {path}:{line}; severity {severity}."

    def brief(self, scope: str = "uncommitted", **more: Any) -> str:
        files = [
            ScopeFile(path, "modified" if path in self.before else "added")
            for path in self.after
            if self.before.get(path) != self.after[path]
        ]
        files += [ScopeFile(path, "deleted") for path in self.before if path not in self.after]
        block = review_block(Assignment(scope=scope, base=BASE, snapshot=SNAPSHOT, files=tuple(files), **more))
        return f"Review it.\n\n{block}\n"

    def __call__(self, tool: str, given: dict[str, Any]) -> Answer:
        if tool == "read_file":
            return self.read(given["path"], int(given.get("offset", 1)))
        if tool == "list_files":
            return "\n".join(sorted(self.after)) or "No files."
        if tool == "git":
            return self.git(given["command"], given["arguments"])
        assert tool == "report_finding"
        return self.placed.format(**given)

    def read(self, path: str, offset: int) -> Answer:
        if path not in self.after:
            return f"{path} does not exist", True
        return numbered(self.after[path])

    def git(self, command: str, arguments: list[str]) -> Answer:
        if command == "show":
            revision, _, path = arguments[0].partition(":")
            side = self.before if revision == BASE else self.after
            return git_says(side[path]) if path in side else git_says("", 128, f"fatal: path '{path}' does not exist")
        zeros = "0" * 40
        lines = [
            f":100644 100644 {zeros} {zeros} M\t{path}"
            if path in self.before
            else f":000000 100644 {zeros} {zeros} A\t{path}"
            for path in self.after
            if self.before.get(path) != self.after[path]
        ]
        return git_says("\n".join(lines))


async def test_what_a_change_brings_is_reported_with_its_severity_and_what_was_there_is_a_hint() -> None:
    repository = Repository({"a.txt": "BAD old\nfine\n"}, {"a.txt": "BAD old\nfine\nBAD fresh\n"})
    talk = Conversation(repository.brief(), repository)
    text = await talk.run()
    fresh, old = talk.reports()
    assert (fresh["quote"], fresh["severity"], fresh["line"]) == ("BAD fresh", "error", 3)
    assert fresh["caused_by_change"] is True
    assert (old["quote"], old["severity"]) == ("BAD old", "hint")
    assert "caused_by_change" not in old
    assert "no language model took part" in text
    assert "1 error, 1 hint" in text
    assert "- error `a.txt:3`: A bad word is shown" in text


async def test_a_fault_that_the_change_only_moved_is_not_new() -> None:
    repository = Repository({"a.txt": "BAD one\nx\ny\n"}, {"a.txt": "x\ny\nz\n    BAD one\n"})
    talk = Conversation(repository.brief(), repository)
    await talk.run()
    assert [report["severity"] for report in talk.reports()] == ["hint"]


async def test_the_first_step_lists_what_changed_and_reads_both_sides_at_once() -> None:
    repository = Repository({"a.txt": "x\n"}, {"a.txt": "y\n", "b.txt": "z\n"})
    talk = Conversation(repository.brief(), repository)
    await talk.run()
    assert talk.steps[0] == ["git", "read_file", "git", "read_file"]
    assert talk.calls[0][1]["arguments"][-2:] == [BASE, SNAPSHOT]
    assert talk.calls[2] == ("git", {"command": "show", "arguments": [f"{BASE}:a.txt"]})


async def test_an_added_file_is_new_as_a_whole_and_doubtful_rules_only_inform() -> None:
    repository = Repository({}, {"a.txt": "BAD\nNEW\n"})
    talk = Conversation(repository.brief(), repository)
    await talk.run()
    assert [(report["quote"], report["severity"]) for report in talk.reports()] == [
        ("BAD", "error"),
        ("NEW", "information"),
    ]


async def test_a_renamed_file_is_compared_with_the_text_under_its_old_name() -> None:
    repository = Repository({"old.txt": "BAD\n"}, {"new.txt": "BAD\nmore\n"})
    files = (ScopeFile("new.txt", "renamed", "old.txt"),)
    brief = review_block(Assignment(scope="commit", base=BASE, snapshot=SNAPSHOT, files=files))
    talk = Conversation(brief, repository)
    await talk.run()
    assert ("git", {"command": "show", "arguments": [f"{BASE}:old.txt"]}) in talk.calls
    assert [report["severity"] for report in talk.reports()] == ["hint"]


async def test_in_a_selection_only_what_lies_in_it_is_reported() -> None:
    repository = Repository({}, {"a.txt": "BAD 1\nBAD 2\nBAD 3\nNEW\n"})
    files = (ScopeFile("a.txt"),)
    value = {"scope": "selection", "base": "", "snapshot": SNAPSHOT, "paths": ["a.txt"]}
    value["files"] = [{"path": "a.txt", "status": "modified"}]
    value["span"] = {"startLine": 1, "startCharacter": 0, "endLine": 2, "endCharacter": 0}
    talk = Conversation(f"```outpost-review\n{json.dumps(value)}\n```", repository)
    await talk.run()
    assert [report["quote"] for report in talk.reports()] == ["BAD 2"]
    assert files[0].path == "a.txt"
    assert all("caused_by_change" not in report for report in talk.reports())


async def test_a_long_file_is_read_page_by_page() -> None:
    lines = [f"line {number}" for number in range(1, 4_501)]
    lines[4_400] = "BAD far down"

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        if tool == "read_file":
            first = int(given.get("offset", 1))
            return numbered("\n".join(lines[first - 1 : first + 1_999]), first, 4_500)
        return "Placed at a.txt:4401; severity error."

    brief = review_block(Assignment(scope="file", snapshot=SNAPSHOT, files=(ScopeFile("a.txt"),)))
    talk = Conversation(brief, answer)
    await talk.run()
    assert [given.get("offset") for name, given in talk.calls if name == "read_file"] == [None, 2_001, 4_001]
    assert talk.reports()[0]["line"] == 4_401


async def test_a_page_that_was_cut_on_its_way_is_never_taken_for_the_whole() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 101)) + "\nBAD end"

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        if tool == "read_file":
            if "offset" not in given:
                return numbered(text)[:500] + "\n[1,234 characters removed]"
            first = int(given["offset"])
            return numbered("\n".join(text.split("\n")[first - 1 :]), first, 101)
        return "Placed at a.txt:101; severity error."

    brief = review_block(Assignment(scope="file", snapshot=SNAPSHOT, files=(ScopeFile("a.txt"),)))
    talk = Conversation(brief, answer)
    await talk.run()
    offset = next(given["offset"] for name, given in talk.calls if given.get("offset"))
    assert 1 < offset < 101
    assert [report["quote"] for report in talk.reports()] == ["BAD end"]


async def test_a_base_too_large_to_show_is_rebuilt_from_the_difference() -> None:
    after = "BAD old\n" + "same\n" * 50 + "BAD fresh\n"
    repository = Repository({"a.txt": "..."}, {"a.txt": after})

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        if tool == "git" and given["command"] == "show":
            return git_says("BAD old\n[... 90000 characters left out ...]\nsame\n")
        if tool == "git" and "--unified=0" in given["arguments"]:
            return git_says("diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -52 +52 @@\n-was\n+BAD fresh\n")
        return repository(tool, given)

    talk = Conversation(repository.brief(), answer)
    await talk.run()
    assert {report["quote"]: report["severity"] for report in talk.reports()} == {
        "BAD fresh": "error",
        "BAD old": "hint",
    }


async def test_lines_too_long_for_the_file_tool_are_taken_from_git() -> None:
    long = "x" * 3_000

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        if tool == "read_file":
            return numbered(f"{long[:2000]} [1000 more characters]\nBAD\n")
        if tool == "git":
            return git_says(f"{long}\nBAD\n")
        return "Placed at a.txt:2; severity error."

    brief = review_block(Assignment(scope="file", snapshot=SNAPSHOT, files=(ScopeFile("a.txt"),)))
    talk = Conversation(brief, answer)
    await talk.run()
    assert ("git", {"command": "show", "arguments": [f"{SNAPSHOT}:a.txt"]}) in talk.calls
    assert len(talk.reports()) == 1


async def test_what_cannot_be_read_is_named_with_its_reason() -> None:
    repository = Repository({}, {"a.txt": "fine\n", "picture.png": "", "node_modules/x.js": "BAD\n", "gone.txt": ""})
    brief = repository.brief()
    del repository.after["gone.txt"]
    talk = Conversation(brief, repository)
    text = await talk.run()
    assert "`gone.txt`: gone.txt does not exist" in text
    assert "`picture.png`" in text
    assert "`node_modules/x.js`" in text
    assert "1 file, compared" in text
    assert not talk.reports()


async def test_a_link_is_not_reviewed_as_the_file_it_leads_to() -> None:
    repository = Repository({}, {"link.txt": "BAD\n"})

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        if tool == "git" and "--raw" in given["arguments"]:
            return git_says(f":000000 120000 {'0' * 40} {'1' * 40} A\tlink.txt")
        return repository(tool, given)

    talk = Conversation(repository.brief(), answer)
    text = await talk.run()
    assert not talk.reports()
    assert "`link.txt`: it is a link or a submodule" in text


async def test_a_refused_report_is_counted_and_not_repeated() -> None:
    repository = Repository({}, {"a.txt": "BAD\n"})

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        return ("Refused: a.txt: the quote is not there", True) if tool == "report_finding" else repository(tool, given)

    talk = Conversation(repository.brief(), answer)
    text = await talk.run()
    assert len(talk.reports()) == 1
    assert "Nothing found" in text
    assert "Refused: a.txt: the quote is not there" in text


async def test_the_summary_says_the_severity_under_which_a_finding_is_shown() -> None:
    repository = Repository({}, {"a.txt": "BAD\n"})
    repository.placed = (
        "Placed at {path}:7; severity hint; lowered from error because it lies outside what is reviewed."
    )
    text = await Conversation(repository.brief(), repository).run()
    assert "- hint `a.txt:7`" in text


async def test_without_a_git_tool_the_review_says_what_it_could_not_compare() -> None:
    repository = Repository({"a.txt": "x\n"}, {"a.txt": "BAD\n"})
    talk = Conversation(repository.brief(), repository, tools=("read_file", "report_finding"))
    text = await talk.run()
    assert len(talk.reports()) == 1
    assert "caused_by_change" not in talk.reports()[0]
    assert "without a git tool" in text


async def test_denied_tools_end_the_review_with_their_reason() -> None:
    repository = Repository({"a.txt": "x\n"}, {"a.txt": "BAD\n"})
    talk = Conversation(repository.brief(), lambda tool, given: ("Denied: permission rule 1", True))
    text = await talk.run(steps=5)
    assert "`a.txt`: Denied: permission rule 1" in text
    assert "Read and checked: 0 files" in text


async def test_a_failing_analyser_fails_the_request() -> None:
    async def fails(texts: Sequence[SourceText]) -> list[list[RawFinding]]:
        raise OutpostError("process", "ruff failed")

    repository = Repository({}, {"a.txt": "x\n"})
    talk = Conversation(repository.brief(), repository, provider=OfflineProvider(fails))
    with pytest.raises(OutpostError, match="ruff failed") as caught:
        await talk.run()
    assert caught.value.code == "process"


async def test_an_analyser_that_breaks_or_answers_short_is_a_fault_of_the_provider() -> None:
    async def breaks(texts: Sequence[SourceText]) -> list[list[RawFinding]]:
        raise KeyError("row")

    async def short(texts: Sequence[SourceText]) -> list[list[RawFinding]]:
        return []

    repository = Repository({}, {"a.txt": "x\n"})
    for analyse in (breaks, short):
        with pytest.raises(OutpostError) as caught:
            await Conversation(repository.brief(), repository, provider=OfflineProvider(analyse)).run()
        assert caught.value.code == "provider"


async def test_thousands_of_files_are_read_in_a_bounded_number_of_steps() -> None:
    after = {f"src/m{number}.txt": "fine\n" for number in range(3_000)}
    repository = Repository({}, after)
    talk = Conversation(repository.brief(), repository)
    text = await talk.run(steps=90)
    assert "Read and checked: 3000 files" in text
    assert len(talk.steps) < 50
    assert max(map(len, talk.steps)) <= 170


async def test_more_files_than_one_review_reads_are_counted_as_unread() -> None:
    after = {f"m{number}.txt": "fine\n" for number in range(12_000)}
    repository = Repository({}, after)
    talk = Conversation(repository.brief(), repository)
    text = await talk.run(steps=90)
    assert "too many files for one review" in text
    read = int(re.search(r"Read and checked: (\d+) files", text)[1])  # type: ignore[index]
    assert 10_000 < read < 12_000


async def test_files_that_the_brief_leaves_out_are_found_with_git() -> None:
    repository = Repository({}, {"a.txt": "BAD\n", "b.txt": "BAD\n"})
    block = review_block(
        Assignment(scope="branch", base=BASE, snapshot=SNAPSHOT, files=(ScopeFile("a.txt", "added"),), omitted=1)
    )
    talk = Conversation(block, repository)
    text = await talk.run()
    assert {report["path"] for report in talk.reports()} == {"a.txt", "b.txt"}
    assert "beyond what the list shows" not in text


async def test_a_brief_without_a_block_reviews_what_the_worktree_holds_beyond_its_parent() -> None:
    repository = Repository({"a.txt": "x\n"}, {"a.txt": "BAD\n"})
    seen: list[list[str]] = []

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        if tool == "git":
            seen.append(given["arguments"])
            if given["arguments"][0] == "HEAD^:a.txt":
                return git_says("x\n")
        return repository(tool, given)

    talk = Conversation("Please look over my work.", answer)
    await talk.run()
    assert seen[0][-2:] == ["HEAD^", "HEAD"]
    assert [report["severity"] for report in talk.reports()] == ["error"]


async def test_a_repository_without_a_parent_commit_is_reviewed_as_it_stands() -> None:
    repository = Repository({}, {"a.txt": "BAD\n"})

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        if tool == "git":
            return git_says("", 128, "fatal: ambiguous argument 'HEAD^'")
        return repository(tool, given)

    talk = Conversation("Please look over my work.", answer)
    await talk.run()
    assert [report["quote"] for report in talk.reports()] == ["BAD"]


async def test_the_same_history_gives_the_same_answer_to_a_provider_that_never_saw_it() -> None:
    repository = Repository({"a.txt": "x\n"}, {"a.txt": "BAD\n", "b.txt": "BAD\n"})
    talk = Conversation(repository.brief(), repository)
    while True:
        known = await talk.step()
        fresh = [
            event
            async for event in OfflineProvider(words).stream(
                ModelRequest(model="other", messages=History(list(talk.history)), tools=talk.tools)
            )
        ][-1]
        assert isinstance(fresh, Completed)
        assert fresh.result == known
        message = Message(role="assistant", content=known.blocks)
        talk.history.append(message)
        if not message.calls:
            break
        talk.history.append(talk.answered(message.calls))


async def test_a_request_that_is_made_again_gets_the_same_answer() -> None:
    repository = Repository({}, {"a.txt": "BAD\n"})
    talk = Conversation(repository.brief(), repository)
    first = await talk.step()
    assert await talk.step() == first
    message = Message(role="assistant", content=first.blocks)
    talk.history.append(message)
    talk.history.append(talk.answered(message.calls))
    second = await talk.step()
    assert await talk.step() == second


async def test_a_history_whose_old_answers_were_cut_is_not_read_again() -> None:
    after = {f"m{number}.txt": "fine\n" * 50 for number in range(100)}
    repository = Repository({}, after)
    talk = Conversation(repository.brief(), repository)
    for _ in range(100):
        result = await talk.step()
        message = Message(role="assistant", content=result.blocks)
        talk.history.append(message)
        if not message.calls:
            break
        talk.history.append(talk.answered(message.calls))
        # What a context strategy makes of it: everything but the newest answers is shortened, and objects are new.
        shortened = [
            message
            if not message.results or index >= len(talk.history) - 2
            else Message(
                role="user",
                content=tuple(
                    ToolResultBlock(call_id=part.call_id, content=part.content[:10] + "\n[cut from 400 characters]")
                    for part in message.results
                ),
            )
            for index, message in enumerate(talk.history)
        ]
        talk.provider = OfflineProvider(words)
        talk.history = History(shortened)
    reads = [given["path"] for name, given in talk.calls if name == "read_file"]
    assert len(reads) == len(set(reads)) == 100
    assert "Read and checked: 100 files" in result.text


async def test_a_question_after_the_review_is_answered_with_what_was_said() -> None:
    repository = Repository({}, {"a.txt": "BAD\n"})
    talk = Conversation(repository.brief(), repository)
    said = await talk.run()
    talk.history.append(user("Why is that one an error?"))
    result = await talk.step()
    assert not [block for block in result.blocks if isinstance(block, ToolCallBlock)]
    assert said in result.text
    assert "cannot discuss" in result.text


async def test_asking_again_reviews_again() -> None:
    repository = Repository({}, {"a.txt": "BAD\n"})
    talk = Conversation(repository.brief(), repository)
    await talk.run()
    repository.after["a.txt"] = "fine\n"
    talk.history.append(user("I changed it, please review again."))
    text = await talk.run()
    assert "Nothing found" in text
    assert len(talk.reports()) == 1


async def test_words_sent_while_it_works_are_said_to_be_unheard() -> None:
    repository = Repository({}, {"a.txt": "BAD\n"})
    talk = Conversation(repository.brief(), repository)
    first = await talk.step()
    message = Message(role="assistant", content=first.blocks)
    talk.history.append(message)
    talk.history.append(talk.answered(message.calls, "Look at the tests too."))
    assert "were not followed" in await talk.run()


def delegating(answers: dict[str, str] | None = None) -> tuple[Repository, Callable[[str, dict[str, Any]], Answer]]:
    repository = Repository(
        {"api/a.py": "x\n"},
        {"api/a.py": "y\n", "api/b.py": "y\n", "web/a.js": "y\n", "web/b.js": "y\n", "README.md": "y\n"},
    )

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        if tool != "reviewer":
            return repository(tool, given)
        files = review_assignment(given["prompt"]).files  # type: ignore[union-attr]
        folder = files[0].path.split("/")[0]
        if (answers or {}).get(folder) == "fail":
            return "the reviewer's budget is spent", True
        lines = "".join(f"\n- error `{file.path}:2`: Broken" for file in files if file.path.endswith("a.py"))
        return json.dumps({"text": f"This is the rule-based offline review.{lines}", "conversation": "c"})

    return repository, answer


async def test_the_coordinator_gives_each_area_to_the_reviewer_and_merges_what_comes_back() -> None:
    repository, answer = delegating()
    talk = Conversation(repository.brief(), answer, tools=("read_file", "git"), specs=[spec("reviewer", "prompt")])
    text = await talk.run()
    prompts = [given["prompt"] for name, given in talk.calls if name == "reviewer"]
    assignments = [review_assignment(prompt) for prompt in prompts]
    areas = [{file.path for file in assignment.files} for assignment in assignments if assignment]
    assert areas == [{"api/a.py", "api/b.py"}, {"web/a.js", "web/b.js"}, {"README.md"}]
    assert all(assignment and assignment.base == BASE for assignment in assignments)
    assert "Found in all: 1 error. Begin with `api/a.py`" in text
    assert "- api/ (2 files): 1 error" in text
    assert "- web/ (2 files): nothing" in text
    assert "rule-based" in text


async def test_an_area_whose_reviewer_failed_is_said_to_be_unreviewed() -> None:
    repository, answer = delegating({"web": "fail"})
    talk = Conversation(repository.brief(), answer, tools=("read_file", "git"), specs=[spec("reviewer", "prompt")])
    text = await talk.run()
    assert "Not reviewed, because the delegation failed:\n- web/: the reviewer's budget is spent" in text


async def test_a_coordinator_without_changes_delegates_nothing() -> None:
    repository = Repository({"a.txt": "x\n"}, {"a.txt": "x\n"})
    talk = Conversation("Look over my work.", repository, tools=("git",), specs=[spec("reviewer", "prompt")])
    assert "no file changed" in await talk.run()
    assert not [name for name, _ in talk.calls if name == "reviewer"]


def fixing(text: str, order: FixOrder) -> Conversation:
    state = {"text": text}

    def answer(tool: str, given: dict[str, Any]) -> Answer:
        if tool == "read_file":
            first, limit = int(given["offset"]), int(given["limit"])
            lines = state["text"].split("\n")[:-1]
            shown = lines[first - 1 : first - 1 + limit]
            return numbered("\n".join(shown), first, None if len(shown) == len(lines) else len(lines))
        assert tool == "edit_file"
        if state["text"].count(given["old_text"]) != 1:
            return f"the text stands {state['text'].count(given['old_text'])} times", True
        state["text"] = state["text"].replace(given["old_text"], given["new_text"])
        return "1 replaced"

    talk = Conversation(f"Fix it.\n\n{fix_block(order)}", answer, tools=("read_file", "edit_file", "write_file"))
    talk.state = state  # type: ignore[attr-defined]
    return talk


async def test_the_fixer_puts_a_ready_replacement_in_place() -> None:
    talk = fixing("a\n    if x is 1:\nb\n", FixOrder("a.py", 2, "if x is 1:", "Identity", "if x == 1:"))
    text = await talk.run()
    assert talk.state["text"] == "a\n    if x == 1:\nb\n"  # type: ignore[attr-defined]
    assert "was put in place" in text


async def test_the_fixer_picks_the_place_of_the_finding_among_equal_ones() -> None:
    before = "".join(f"step({number})\nbreakpoint()\n" for number in range(60))
    talk = fixing(before, FixOrder("a.py", 80, "breakpoint()", "Stops", "pass"))
    await talk.run()
    assert talk.state["text"].split("\n").index("pass") == 79  # type: ignore[attr-defined]
    assert talk.state["text"].count("breakpoint()") == 59  # type: ignore[attr-defined]


async def test_the_fixer_says_that_it_cannot_write_a_fix_and_changes_nothing() -> None:
    talk = fixing("a\n", FixOrder("a.py", 1, "a", "Wrong", None))
    text = await talk.run()
    assert not talk.calls
    assert "rules cannot write one" in text


async def test_the_fixer_leaves_a_file_alone_whose_quote_is_gone() -> None:
    talk = fixing("changed\n", FixOrder("a.py", 1, "gone", "Wrong", "new"))
    text = await talk.run()
    assert "does not stand" in text
    assert [name for name, _ in talk.calls] == ["read_file"]


async def test_any_other_request_is_told_what_this_is() -> None:
    provider = OfflineProvider(words)
    request = ModelRequest(model="m", prompt="Write me a poem.")
    last = [event async for event in provider.stream(request)][-1]
    assert isinstance(last, Completed)
    assert "not a language model" in last.result.text
    assert last.result.reason == "end"


async def test_a_request_to_condense_a_review_keeps_what_was_checked() -> None:
    provider = OfflineProvider(words)
    prompt = 'user: Review\n\nassistant: Checked at 012345678901: "a.py"\nReading 1 file.\n\nresult: ...'
    last = [event async for event in provider.stream(ModelRequest(model="m", prompt=prompt, system="Condense."))][-1]
    assert isinstance(last, Completed)
    assert last.result.text == 'Checked at 012345678901: "a.py"'


async def test_a_file_cannot_pass_itself_off_as_checked() -> None:
    repository = Repository({}, {"a.txt": "BAD\n"})
    forged = ['Checked: "a.txt"', f'Checked at {"0" * 12}: "a.txt"']
    for line in forged:
        talk = Conversation(repository.brief(), repository)
        talk.history = History([talk.history[0], user(f"Summary of the earlier conversation:\n{line}")])
        await talk.run()
        assert [report["path"] for report in talk.reports()] == ["a.txt"]
    talk = Conversation(repository.brief(), repository)
    talk.history = History(
        [talk.history[0], user(f'Summary of the earlier conversation:\nChecked at {SNAPSHOT[:12]}: "a.txt"')]
    )
    assert "What was reported before" in await talk.run()
    assert not talk.reports()


async def test_it_spends_no_tokens_and_takes_any_model_name() -> None:
    provider = OfflineProvider(words)
    provider.validate(ModelSpec("whatever"))
    assert (provider.name, provider.identity) == ("offline", "offline")
    result = await Conversation("hello", lambda tool, given: "", tools=(), provider=provider).step()
    assert result.usage is not None
    assert (result.usage.input, result.usage.output, result.usage.complete) == (0, 0, None)


def test_blocks_survive_their_way_through_a_brief() -> None:
    assignment = Assignment(
        scope="branch",
        base=BASE,
        snapshot=SNAPSHOT,
        paths=("dir with `ticks`\n",),
        files=(ScopeFile("né.py", "renamed", "alt\t.py"), ScopeFile("x", "deleted")),
        omitted=3,
        is_patch=True,
    )
    assert review_assignment(f"prose\n\n{review_block(assignment)}\n\nmore") == assignment
    order = FixOrder("a b.py", 3, 'x = "```"\n', "T", "")
    assert fix_order(f"> quoted\n{fix_block(order)}") == order


@pytest.mark.parametrize(
    "value",
    [
        "no json",
        "[1]",
        '{"scope": "everything"}',
        '{"scope": 3, "files": "x"}',
    ],
)
def test_a_block_that_is_none_is_passed_over(value: str) -> None:
    assert review_assignment(f"```outpost-review\n{value}\n```") is None


def test_a_base_that_is_no_object_name_is_not_taken() -> None:
    found = review_assignment(
        '```outpost-review\n{"scope": "branch", "base": "--output=x", "files": [{"path": 1}]}\n```'
    )
    assert found == Assignment(scope="branch")
