"""Steps of coding work with the route that a person gave them: the record of the built-in rules is counted from these.

Written by hand, with one question for each: as the next step of a run, does this need thought, or is it routine? The
author knew the rules, so the record is kinder to them than real work would be; steps on which a rule is wrong were
looked for and stay in. After a change, run ``python -m tests.decisions.count_record`` from the top of the repository.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from outpost_lsp.domain.decision import PreparedState
from outpost_lsp.domain.message import Message, TextBlock, ToolCallBlock, ToolResultBlock, user
from outpost_lsp.domain.routing_state import RoutingState

Label = Literal["fast", "deep"]


@dataclass(frozen=True)
class LabelledStep:
    """A state as the router is shown it, and the route that a person gave it."""

    about: str
    label: Label
    state: PreparedState | dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One tool call and its result."""

    name: str
    input: dict[str, Any]
    result: str
    failed: bool = False


def conversation(request: str, *calls: Call, then: str = "") -> list[Message]:
    """A request, then one call per step with its result; `then` is a text of the user beside the last result."""
    messages = [user(request)]
    for number, call in enumerate(calls):
        call_id = f"call-{number}"
        result = ToolResultBlock(call_id=call_id, content=call.result, is_error=True if call.failed else None)
        beside = (TextBlock(text=then),) if then and call is calls[-1] else ()
        messages += [
            Message(role="assistant", content=(ToolCallBlock(id=call_id, name=call.name, input=call.input),)),
            Message(role="user", content=(result, *beside)),
        ]
    return messages


def step(about: str, label: Label, request: str, *calls: Call, then: str = "") -> LabelledStep:
    """A labelled step in the default state."""
    messages = conversation(request, *calls, then=then)
    state = RoutingState(
        system="You work on a repository.", messages=messages, tools=(), step=len(calls) + 1, model="m"
    )
    return LabelledStep(about, label, state)


def step_with_diagnostics(about: str, label: Label, now: int, before: int, request: str, *calls: Call) -> LabelledStep:
    """A labelled step in a state that also counts diagnostics."""
    plain = step(about, label, request, *calls)
    assert isinstance(plain.state, RoutingState)
    return LabelledStep(about, label, {**plain.state.value(), "diagnostics": now, "previousDiagnostics": before})


def read(path: str, text: str) -> Call:
    return Call("read_file", {"path": path}, text)


def listed(*paths: str) -> Call:
    return Call("list_files", {"path": "."}, "\n".join(paths))


def searched(pattern: str, text: str) -> Call:
    return Call("search", {"pattern": pattern}, text)


def git(command: str, text: str) -> Call:
    return Call("git", {"command": command}, f"exit 0\n--- stdout ---\n{text}")


def edited(path: str) -> Call:
    return Call("edit_file", {"path": path, "old_text": "a", "new_text": "b"}, f"{path}: 1 replacement")


def written(path: str) -> Call:
    return Call("write_file", {"path": path, "content": "x"}, f"{path}: 1 byte written")


def shell(command: str, text: str, *, status: int = 0) -> Call:
    return Call("shell", {"command": command}, f"exit {status}\n--- stdout ---\n{text}", failed=status != 0)


def refused(name: str, text: str) -> Call:
    return Call(name, {}, text, failed=True)


def not_found(path: str) -> Call:
    return Call("read_file", {"path": path}, f"{path}: no such file", failed=True)


REPAIR = "Your answer could not be used: the answer holds no complete <report> block.\nThere was no such block."
LONG = (
    "Add a --since option to the export command that takes a date, leaves out older rows, and say in the manual "
    "what it does with rows that carry no date"
)
TEST_FAILURE = "tests/test_total.py F\nE  assert 41 == 42\n1 failed, 12 passed"

STEPS: tuple[LabelledStep, ...] = (
    # A request is new.
    step("rename a variable", "fast", "Rename the variable tmp to total in report.py"),
    step("list a folder", "fast", "List the files under src"),
    step("fix a typo", "fast", "Fix the typo in the README title"),
    step("bump a number", "fast", "Set the version to 1.4.2"),
    step("show a file", "fast", "Show me setup.cfg"),
    step("add an import", "fast", "Add the missing import in cli.py"),
    step("French, short", "fast", "Corrige la faute dans le titre du README"),
    step("run the tests", "fast", "Run the tests and tell me the result"),
    step("short but deep: a wrong total", "deep", "The invoice total is off by one cent. Fix it."),
    step("short but deep: a parser", "deep", "Write a parser for our filter language"),
    step("short but deep: crash", "deep", "It crashes on empty input"),
    step("format", "fast", "Format all Python files"),
    step("a new option with its corner cases", "deep", LONG),
    step(
        "a change over several places",
        "deep",
        "Make the importer skip broken lines, collect them in a report at the end, and exit with 3 when more than "
        "one in ten was broken",
    ),
    step(
        "French, long",
        "deep",
        "Ajoute à la commande d'export une option qui ignore les lignes sans date et écris ce qu'elle fait dans le "
        "manuel ainsi que dans l'aide",
    ),
    step(
        "long but routine",
        "fast",
        "Please go through the docs folder and replace every mention of the old name Foo by the new name Bar, "
        "nothing else, thank you very much",
    ),
    step(
        "behaviour on a border",
        "deep",
        "When two users save the same page within one second the second one wins, make the first one keep its text "
        "and tell the second one",
    ),
    step(
        "long list of plain edits",
        "fast",
        "Change the copyright year to 2026 in LICENSE, README, docs/index.md, docs/about.md, setup.cfg and in the "
        "footer of the web page",
    ),
    # A request with a hard word.
    step("why", "deep", "Why does the second call return None?"),
    step("a race", "deep", "There is a race between save and close"),
    step("a leak", "deep", "Find the leak in the cache"),
    step("refactor", "deep", "Refactor the report module"),
    step("a flaky test", "deep", "test_upload is flaky, fix it"),
    step("French: why", "deep", "Pourquoi ce test échoue-t-il ?"),
    step("French: a leak", "deep", "Trouve la fuite de mémoire dans le cache"),
    step("French: rewrite", "deep", "Réécris le module de facturation"),
    step("security", "deep", "Check the upload form for security holes"),
    step("review", "deep", "Review the changes of this branch"),
    step("a hard word in a plain wish", "fast", "Rename the design folder to layout"),
    step("a hard word in a file name", "fast", "Delete the empty file thread.md"),
    step("migrate", "deep", "Migrate the settings from ini to toml"),
    step("timeout", "deep", "The upload hits a timeout after the last deploy"),
    step("French: slow", "deep", "Trouve la cause de la lenteur au démarrage"),
    # A hard word in what a tool brought.
    step(
        "a file about threads was read",
        "deep",
        "Fix the worker",
        read("worker.py", "def run():\n    thread = threading.Thread(target=loop)\n    thread.start()\n"),
    ),
    step(
        "an error output with a timeout",
        "deep",
        "Fix the failing test",
        shell("pytest", "E  TimeoutError: timed out waiting for the lock"),
    ),
    step(
        "a listing with a design folder",
        "fast",
        "Fix the typo in the title",
        listed("README.md", "design/colours.md", "src/app.py"),
    ),
    step(
        "a licence text was read",
        "fast",
        "Set the year to 2026",
        read("LICENSE", "Copyright 2025\nreview the terms below"),
    ),
    step(
        "a search found deadlocks",
        "deep",
        "Fix the hang on exit",
        searched("lock", "pool.py:41:# may deadlock when close() is called twice"),
    ),
    # A tool looked at something.
    step("listing before a small edit", "fast", "Fix the typo in the title", listed("README.md", "src/app.py")),
    step("reading before a small edit", "fast", "Rename tmp to total", read("report.py", "tmp = 1\nprint(tmp)\n")),
    step("a search for uses", "fast", "Rename tmp to total", searched("tmp", "report.py:1:tmp = 1")),
    step("status before a commit message", "fast", "Say what changed", git("status", " M report.py")),
    step("first listing of a large task", "fast", LONG, listed("export.py", "manual.md")),
    step("more reading to do", "fast", LONG, listed("export.py", "manual.md"), read("manual.md", "# Manual\n")),
    step("no match yet", "fast", "Rename tmp to total", searched("tmpp", "No match.")),
    step("a second search", "fast", LONG, searched("export", "cli.py:3:export"), searched("date", "rows.py:9:date")),
    step(
        "the file with the wrong sum was read",
        "deep",
        "The invoice total is off by one cent. Fix it.",
        read("invoice.py", "total = sum(round(line.net * 1.19, 2) for line in lines)\n"),
    ),
    step(
        "all of the parser was read, writing comes next",
        "deep",
        "Write a parser for our filter language",
        read("filters.md", "expr := term ('or' term)*\nterm := factor ('and' factor)*\n"),
    ),
    step(
        "the diff of a large change",
        "deep",
        "Say what is wrong with this change",
        git("diff", "-    if user.is_admin:\n+    if user:\n"),
    ),
    step("the log was shown", "fast", "Which commit added the option?", git("log", "a1b2c3 add --since")),
    # A tool failed once, nothing edited.
    step("a mistyped path", "fast", "Show me the settings", not_found("seting.toml")),
    step("a folder that moved", "fast", "Fix the typo in the title", not_found("docs/README.md")),
    step("a command that is not installed", "fast", "Run the tests", shell("pytset", "not found", status=127)),
    step("tests fail before any edit", "deep", "Make the tests pass", shell("pytest", TEST_FAILURE, status=1)),
    step("the build fails before any edit", "deep", "Make it build", shell("make", "undefined: total", status=2)),
    step(
        "a wrong folder", "fast", "List the modules", Call("list_files", {"path": "scr"}, "scr: no such folder", True)
    ),
    # A tool failed after an edit.
    step("the edit broke a test", "deep", LONG, edited("export.py"), shell("pytest", TEST_FAILURE, status=1)),
    step("the edit broke the build", "deep", LONG, written("export.py"), shell("make", "syntax error", status=2)),
    step("a second edit did not apply", "deep", LONG, edited("export.py"), refused("edit_file", "not found: old_text")),
    step("a mistyped path after an edit", "fast", "Rename tmp to total", edited("a.py"), not_found("b.p")),
    step("types fail after an edit", "deep", LONG, edited("export.py"), shell("mypy", "error: int | None", status=1)),
    # Failures in a row.
    step("two edits in a row did not apply", "deep", LONG, *[refused("edit_file", "not found: old_text")] * 2),
    step(
        "tests fail again",
        "deep",
        "Make the tests pass",
        shell("pytest", TEST_FAILURE, status=1),
        shell("pytest -x", TEST_FAILURE, status=1),
    ),
    step("three wrong paths", "deep", "Show me the settings", not_found("a"), not_found("b"), not_found("c")),
    step("two wrong paths", "fast", "Show me the settings", not_found("seting.toml"), not_found("settings.tml")),
    step(
        "the build fails in two ways",
        "deep",
        "Make it build",
        shell("make", "undefined: total", status=2),
        shell("make all", "undefined: sum", status=2),
    ),
    # The same call again.
    step("the same file read twice", "deep", LONG, *[read("export.py", "rows = []\n")] * 2),
    step("the same listing twice", "deep", LONG, *[listed("export.py")] * 2),
    step("the tests run twice, green both times", "fast", "Run the tests twice", *[shell("pytest", "12 passed")] * 2),
    step("the same search three times", "deep", "Rename tmp to total", *[searched("tmp", "No match.")] * 3),
    # A form was refused.
    step("a typed answer without its block", "deep", REPAIR),
    step("arguments of a wrong type", "deep", LONG, refused("read_file", "Invalid input for read_file: path: text")),
    step("a tool that is not there", "deep", LONG, refused("open", "There is no tool named 'open'. Tools: read_file.")),
    step(
        "a field too many", "fast", "Show me a.py", refused("read_file", "Invalid input for read_file: mode: unknown")
    ),
    # A tool succeeded that does not only look.
    step("tests pass after an edit", "fast", LONG, edited("export.py"), shell("pytest", "12 passed")),
    step("an edit was made, the next one is plain", "fast", "Set the year to 2026", edited("LICENSE")),
    step("an edit was made, the harder half is left", "deep", LONG, edited("export.py")),
    # The state counts diagnostics.
    step_with_diagnostics("clean after an edit", "fast", 0, 0, "Set the year to 2026", edited("LICENSE")),
    step_with_diagnostics("clean after a fix", "fast", 0, 2, "Fix the warnings", edited("a.py")),
    step_with_diagnostics("clean after the tests", "fast", 0, 0, "Run the tests", shell("pytest", "12 passed")),
    step_with_diagnostics("clean, the harder half is left", "deep", 0, 0, LONG, edited("export.py")),
    step_with_diagnostics("clean after writing", "fast", 0, 0, "Add an empty module", written("empty.py")),
    step_with_diagnostics("clean after formatting", "fast", 0, 0, "Format all files", shell("ruff format", "3 files")),
    step_with_diagnostics("an edit brought two", "deep", 2, 0, LONG, edited("export.py")),
    step_with_diagnostics("an edit brought many", "deep", 14, 1, "Rename tmp to total", edited("report.py")),
    step_with_diagnostics("an edit brought one", "deep", 1, 0, "Fix the warnings", edited("a.py")),
    step_with_diagnostics("a rename half done", "fast", 1, 0, "Rename tmp to total in two files", edited("a.py")),
    # Text of the user beside a result.
    step("a nudge beside a result", "fast", LONG, listed("export.py"), then="Only export.py, please"),
    step("a doubt beside a result", "deep", LONG, read("export.py", "rows"), then="Why not a generator?"),
)
