"""Stores of an application: where conversations go, what comes back from an archive, what is masked (CONV-16 to CONV-19)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import Agent, Continuation, Harness, OutpostError, Subagent, tool
from outpost_lsp.domain.message import Message, ReasoningBlock, TextBlock, user
from outpost_lsp.domain.model import ModelResult
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.layout import Layout
from tests.harness.stage import Stage, calls, make_repository, provider, says, usage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(make_repository(tmp_path / "repo"), Layout(tmp_path / "state", tmp_path / "cache"))


class Archive(ConversationStore):
    """Moves every conversation away when its turn is over."""

    @property
    def away(self) -> Path:
        return self.folder.parent / "archive"

    def capture(self, id: str) -> Path:
        self.away.mkdir(exist_ok=True)
        return self.path(id).replace(self.away / f"{id}.txt")

    def locate(self, id: str) -> Path | None:
        return super().locate(id) or next(self.away.glob(f"{id}.txt"), None)


class Elsewhere(ConversationStore):
    """A store that holds conversations of another make."""

    format = "pi"  # type: ignore[assignment]


@pytest.mark.parametrize("value", [False, "here", {"format": "harness"}, object()])
def test_CONV_16_what_is_no_store_is_refused_when_the_harness_is_made(value: Any) -> None:
    with pytest.raises(OutpostError, match="conversations") as caught:
        Harness(provider(), conversations=value)
    assert caught.value.code == "configuration"


def test_CONV_16_a_store_of_another_format_is_refused_when_the_harness_is_made(tmp_path: Path) -> None:
    with pytest.raises(OutpostError, match="format") as caught:
        Harness(provider(), conversations=Elsewhere(tmp_path, tmp_path / "locks"))
    assert caught.value.code == "configuration"


async def test_CONV_18_an_archived_conversation_comes_to_its_native_path_before_it_goes_on(stage: Stage) -> None:
    store = Archive(stage.layout.state / "mine", stage.layout.state / "locks")
    model = provider(says("one"), says("two"), says("three"))
    subject = Agent("m", Harness(model, conversations=store))
    first = await stage.run(subject, "first")
    id = first.conversation or ""
    archived = store.away / f"{id}.txt"
    assert first.transcript == archived
    assert not store.path(id).exists()
    before = archived.read_bytes()

    # A fork reads it where it is, and leaves it there.
    copy = await stage.run(subject, "aside", continuation=Continuation(id, fork=True))
    assert archived.read_bytes() == before
    assert [message.text for message in model.requests[1].messages] == ["first", "one", "aside"]

    second = await stage.run(subject, "second", continuation=id)
    assert second.conversation == id
    assert second.conversation != copy.conversation
    assert [message.text for message in model.requests[2].messages] == ["first", "one", "second"]
    # It was written to the native path, appended to there, and archived anew as a whole.
    assert archived.read_bytes().startswith(before)
    assert len(archived.read_bytes()) > len(before)


def test_CONV_18_the_native_copy_is_the_owner_s_alone(tmp_path: Path) -> None:
    store = Archive(tmp_path / "mine", tmp_path / "locks")
    with store.create(model="m", version=1) as transcript:
        transcript.append(user("hi"))
    content = store.capture(transcript.id).read_bytes()
    store.open(transcript.id, version=1).close()
    assert store.path(transcript.id).read_bytes() == content
    assert store.path(transcript.id).stat().st_mode & 0o777 == 0o600


SECRET = "token-ß-1234"


@tool
def reveal(text: str) -> str:
    """Give something away."""
    return f"{text}: {SECRET}"


@pytest.mark.parametrize("pattern", [SECRET, r"token-.-\d+"])
async def test_CONV_19_patterns_are_masked_in_what_is_stored_and_nowhere_else(stage: Stage, pattern: str) -> None:
    child = Agent("c", Harness(provider(calls(("reveal", {"text": SECRET})), says(f"said {SECRET}")), tools=[reveal]))
    model = provider(
        calls(("reveal", {"text": "x"})), calls(("ask", {"prompt": SECRET}, "c2")), says(f"it is {SECRET}")
    )
    subject = Agent("m", Harness(model, tools=[reveal, Subagent("ask", "Asks.", child)]))
    result = await stage.run(subject, f"the {SECRET} is mine", redact=[pattern])
    # The engine works on what was really said.
    assert SECRET in result.text
    assert SECRET in model.requests[0].messages[0].text
    stored = list(stage.layout.state.rglob("*.jsonl"))
    assert len(stored) == 3, "two transcripts and a journal"
    for path in stored:
        for line in path.read_text().splitlines():
            assert "ß-1234" not in json.dumps(json.loads(line), ensure_ascii=False)
        assert "[redacted]" in path.read_text()
    # Without patterns everything stands there in clear.
    plain = await stage.run(Agent("m", Harness(provider(says("ok")))), f"the {SECRET} is mine")
    assert (
        SECRET
        in json.loads((plain.transcript or stage.repository).read_text().splitlines()[1])["message"]["content"][0][
            "text"
        ]
    )


async def test_CONV_19_a_pattern_that_matches_everything_leaves_a_conversation_that_goes_on(stage: Stage) -> None:
    model = provider(calls(("reveal", {"text": "x"})), says("done"), says("more"))
    subject = Agent("m", Harness(model, tools=[reveal]))
    result = await stage.run(subject, "hello", redact=[r"\w+"])
    await stage.run(subject, "again", continuation=result.conversation)
    told = model.requests[2].messages
    assert [message.role for message in told] == ["user", "assistant", "user", "assistant", "user"]
    assert told[0].text == "[redacted]"
    assert (told[1].calls[0].name, told[1].calls[0].id) == ("reveal", told[2].results[0].call_id)


async def test_CONV_19_signed_reasoning_that_would_have_to_be_changed_is_not_kept(stage: Stage) -> None:
    thought = ReasoningBlock(provider="p", model="m", data={"thinking": "the canary-key", "signature": "s"}, text="x")
    answer = ModelResult(content=(thought, TextBlock(text="done")), usage=usage(1, 0, 1))
    result = await stage.run(Agent("m", Harness(provider(answer))), redact=["canary-key"])
    last = json.loads((result.transcript or stage.repository).read_text().splitlines()[-1])
    assert [block["type"] for block in last["message"]["content"]] == ["text"]


def test_masks_of_a_store_and_of_a_run_both_apply(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "c", tmp_path / "l", mask=lambda line: line.replace(b"one", b"1"))
    with store.masking(lambda line: line.replace(b"two", b"2")).create(model="m", version=1) as transcript:
        transcript.append(Message(role="user", content=(TextBlock(text="one two"),)))
    assert b'"1 2"' in transcript.path.read_bytes()
