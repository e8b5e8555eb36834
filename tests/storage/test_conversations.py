"""Conversations: the file's form, one writer, and what opening repairs (CONV, TRANS, REL-21)."""

from __future__ import annotations

import json
import logging
import multiprocessing
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.message import Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock, user
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.folding import INTERRUPTED, LOST, readable


def answer(*texts: str, calls: tuple[str, ...] = ()) -> Message:
    blocks = [TextBlock(text=text) for text in texts]
    return Message(role="assistant", content=(*blocks, *(ToolCallBlock(id=c, name="echo", input={}) for c in calls)))


def results(*ids: str) -> Message:
    return Message(role="user", content=tuple(ToolResultBlock(call_id=id, content="said") for id in ids))


@pytest.fixture
def store(tmp_path: Path) -> ConversationStore:
    return ConversationStore(tmp_path / "conversations", tmp_path / "locks")


def finished(store: ConversationStore, *messages: Message, version: int = 1) -> tuple[str, Path]:
    with store.create(model="small", version=version) as transcript:  # type: ignore[arg-type]
        for message in messages:
            transcript.append(message)
    return transcript.id, transcript.path


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_conversation_after_echo_and_an_answer_has_five_records(store: ConversationStore) -> None:
    _, path = finished(store, user("hi"), answer("ok", calls=("c1",)), results("c1"), answer("done"))
    records = lines(path)
    assert [record["type"] for record in records] == ["session", "message", "message", "message", "message"]
    assert records[2]["message"] == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "ok"},
            {"type": "tool-call", "id": "c1", "name": "echo", "input": {}},
        ],
    }
    assert records[3]["message"] == {
        "role": "user",
        "content": [{"type": "tool-result", "callId": "c1", "content": "said"}],
    }


def test_CONV_01_files_and_folders_are_the_owners_alone(store: ConversationStore, tmp_path: Path) -> None:
    _, path = finished(store, user("hi"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not list((tmp_path / "locks").iterdir())


@pytest.mark.parametrize("id", ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", ".hidden", "x" * 200, "a\n"])
def test_CONV_01_an_unsafe_id_names_no_conversation(store: ConversationStore, id: str) -> None:
    assert not store.exists(id)
    with pytest.raises(OutpostError, match="conversation id") as caught:
        store.open(id, version=1)
    assert caught.value.code == "session"


def test_TRANS_02_a_compaction_replaces_what_was_before_and_selections_change_nothing(store: ConversationStore) -> None:
    with store.create(model="small", version=2) as transcript:
        transcript.append(user("one"))
        transcript.append(answer("two"))
        transcript.record_selection(
            {"kind": "model-route", "step": 1, "choice": "fast", "reason": "selected", "at": "x"}
        )
        transcript.compact([user("short")])
        transcript.append(answer("three"))
        expected = list(transcript.history)
    assert [message.text for message in expected] == ["short", "three"]
    with store.open(transcript.id, version=1) as again:
        assert list(again.history) == expected
        assert again.version == 2
    assert lines(transcript.path)[3] == {"type": "model-selection", "step": 1, "choice": "fast", "reason": "selected"}


def test_a_version_1_transcript_refuses_selections(store: ConversationStore) -> None:
    with store.create(model="m", version=1) as transcript, pytest.raises(OutpostError, match="version 1"):
        transcript.record_selection({"step": 1})


def test_TRANS_07_a_message_that_may_not_stand_is_refused_before_it_is_written(store: ConversationStore) -> None:
    with store.create(model="m", version=1) as transcript:
        with pytest.raises(OutpostError):
            transcript.append(answer("first"))
        with pytest.raises(OutpostError):
            transcript.compact([answer("first")])
        assert len(lines(transcript.path)) == 1
        assert len(transcript.history) == 0


def test_CONV_06_a_second_writer_is_a_conflict_until_the_first_closes(store: ConversationStore) -> None:
    id, _ = finished(store, user("hi"))
    with store.open(id, version=1):
        with pytest.raises(OutpostError) as caught:
            store.open(id, version=1)
        assert caught.value.code == "conflict"
        with pytest.raises(OutpostError):
            store.remove(id)
    store.open(id, version=1).close()


def test_CONV_07_resuming_appends_to_the_same_file(store: ConversationStore) -> None:
    id, path = finished(store, user("hi"), answer("yes"))
    before = path.read_bytes()
    with store.open(id, version=1) as transcript:
        transcript.append(user("more"))
        assert [message.text for message in transcript.history] == ["hi", "yes", "more"]
    assert path.read_bytes().startswith(before)


def test_CONV_08_a_fork_holds_one_compaction_and_leaves_its_source_alone(store: ConversationStore) -> None:
    id, path = finished(store, user("hi"), answer("yes"), version=2)
    before = path.read_bytes()
    with store.fork(id, model="large", version=1) as fork:
        fork.append(user("and then"))
        assert fork.version == 2
    assert path.read_bytes() == before
    records = lines(fork.path)
    assert [record["type"] for record in records] == ["session", "compaction", "message"]
    assert records[0]["parent"] == id
    assert records[0]["model"] == "large"
    with store.open(fork.id, version=1) as again:
        assert [message.text for message in again.history] == ["hi", "yes", "and then"]


def test_CONV_08_a_fork_of_an_empty_conversation_has_only_a_session(store: ConversationStore) -> None:
    id, _ = finished(store)
    with store.fork(id, model="m", version=1) as fork:
        assert [record["type"] for record in lines(fork.path)] == ["session"]


def test_CONV_09_TRANS_04_a_routed_resume_rewrites_the_session_record_only(store: ConversationStore) -> None:
    id, path = finished(store, user("hi"), answer("yes"))
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(first[:-1] + b',"fromLater":1}\n' + rest)
    store.open(id, version=2).close()
    rewritten, _, kept = path.read_bytes().partition(b"\n")
    assert kept == rest
    assert json.loads(rewritten) == {**json.loads(first), "version": 2, "fromLater": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_CONV_10_interrupted_calls_are_answered_and_the_answer_is_kept(store: ConversationStore) -> None:
    id, path = finished(store, user("hi"), answer(calls=("c1", "c2")))
    with store.open(id, version=1) as transcript:
        last = transcript.history[-1]
    assert [(block.call_id, block.content, block.is_error) for block in last.results] == [
        ("c1", INTERRUPTED, True),
        ("c2", INTERRUPTED, True),
    ]
    size = path.stat().st_size
    with store.open(id, version=1) as transcript:
        assert transcript.history[-1] == last
    assert path.stat().st_size == size


def test_CONV_10_a_fork_answers_interrupted_calls_in_its_own_file(store: ConversationStore) -> None:
    id, path = finished(store, user("hi"), answer(calls=("c1",)))
    before = path.read_bytes()
    with store.fork(id, model="m", version=1) as fork:
        assert fork.history[-1].results[0].content == INTERRUPTED
    assert path.read_bytes() == before


def test_CONV_12_a_childs_session_names_its_callers(store: ConversationStore) -> None:
    with store.create(model="m", version=1, parent_conversation="p", parent_call_id="c") as transcript:
        session = lines(transcript.path)[0]
    assert (session["parentConversation"], session["parentCallId"]) == ("p", "c")
    assert "parent" not in session


def test_resuming_a_missing_conversation_fails_without_leaving_anything(
    store: ConversationStore, tmp_path: Path
) -> None:
    with pytest.raises(OutpostError, match="there is no conversation missing") as caught:
        store.open("missing", version=1)
    assert caught.value.code == "session"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"garbage\n", "no session"),
        (b'{"type":"message"}\n', "no session"),
        (b"[]\n", "no session"),
        (b'{"type":"session","version":3,"id":"x"}\n', "version 3"),
        (b'{"type":"session","version":true}\n', "version True"),
        (b'{"type":"session"}\n', "version None"),
        (b'{"type":"session","version":1}\n{"type":"surprise"}\n', "unknown type 'surprise'"),
    ],
)
def test_CONV_04_TRANS_03_a_file_that_is_no_transcript_is_a_session_fault_and_stays(
    store: ConversationStore, content: bytes, message: str
) -> None:
    id, path = finished(store)
    path.write_bytes(content)
    with pytest.raises(OutpostError, match=message) as caught:
        store.open(id, version=2)
    assert caught.value.code == "session"
    assert path.read_bytes() == content
    path.write_bytes(b'{"type":"session","version":1}\n')
    store.open(id, version=1).close()


def test_CONV_05_a_torn_last_line_is_dropped_and_named(
    store: ConversationStore, caplog: pytest.LogCaptureFixture
) -> None:
    id, path = finished(store, user("hi"), answer("yes"))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"message","mess')
    with caplog.at_level(logging.WARNING), store.open(id, version=1) as transcript:
        assert len(transcript.history) == 2
        transcript.append(user("more"))
    assert "torn by a crash" in caplog.text
    assert path.read_bytes().startswith(whole + b'{"type":"message"')
    assert [record["type"] for record in store.read(id)] == ["session", "message", "message", "message"]


def test_a_last_line_that_lost_only_its_line_end_is_kept(store: ConversationStore) -> None:
    id, path = finished(store, user("hi"), answer("yes"))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with store.open(id, version=1) as transcript:
        transcript.append(user("more"))
    assert len(store.read(id)) == 4


def test_REL_21_a_mangled_record_costs_itself_only_and_is_reported_once(
    store: ConversationStore, caplog: pytest.LogCaptureFixture
) -> None:
    id, path = finished(store, user("one"), answer("two"), user("three"), answer("four"))
    parts = path.read_bytes().split(b"\n")
    parts[2] = b'{"type":"message","mess\xff'
    path.write_bytes(b"\n".join(parts))
    with caplog.at_level(logging.WARNING), store.open(id, version=1) as transcript:
        assert [message.text for message in transcript.history] == ["one", "three", "four"]
    assert caplog.text.count("a record was left out") == 1
    assert (path.parent / f"{path.name}.mangled").read_bytes() == b'{"type":"message","mess\xff\n'
    caplog.clear()
    store.open(id, version=2).close()
    assert caplog.text == ""
    assert len(store.read(id)) == 4


def test_REL_21_a_history_stays_sendable_whatever_record_is_lost(store: ConversationStore) -> None:
    whole = (
        user("q1"),
        answer("a", calls=("c1", "c2")),
        Message(role="user", content=(*results("c1", "c2").content, TextBlock(text="and"))),
        answer("b", calls=("c3",)),
        results("c3"),
        answer("end"),
    )
    for lost in range(len(whole)):
        id, path = finished(store, *whole)
        parts = path.read_bytes().split(b"\n")
        parts[1 + lost] = b"{"
        path.write_bytes(b"\n".join(parts))
        with store.open(id, version=1) as transcript:
            assert not transcript.history.open_calls()
            assert transcript.history[0].role == "user"
            if transcript.history[-1].role == "assistant":
                transcript.append(user("go on"))
            again = list(transcript.history)
        with store.open(id, version=1) as transcript:
            assert list(transcript.history) == again


def test_REL_21_two_answers_in_a_row_get_a_note_between_them(store: ConversationStore) -> None:
    id, path = finished(store, user("one"), answer("two"), user("three"), answer("four"))
    parts = path.read_bytes().split(b"\n")
    parts[3] = b"{"
    path.write_bytes(b"\n".join(parts))
    with store.open(id, version=1) as transcript:
        assert [message.text for message in transcript.history] == ["one", "two", LOST, "four"]


def test_REL_21_unknown_fields_are_passed_over_and_kept(store: ConversationStore) -> None:
    id, path = finished(store, user("hi"))
    content = path.read_bytes().replace(b'"role":"user"', b'"role":"user","later":{"a":1}')
    content = content.replace(b'"type":"text"', b'"type":"text","annotations":[]')
    path.write_bytes(content)
    with store.open(id, version=1) as transcript:
        assert transcript.history[0].text == "hi"
    assert path.read_bytes() == content


def test_half_a_surrogate_pair_is_stored_and_comes_back(store: ConversationStore) -> None:
    id, _ = finished(store, user("a\ud800b"))
    with store.open(id, version=1) as transcript:
        assert transcript.history[0].text == "a\ud800b"


def test_a_mask_applies_to_what_is_stored_and_not_to_the_history(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "c", tmp_path / "l", mask=lambda line: line.replace(b"canary-key", b"***"))
    with store.create(model="m", version=1) as transcript:
        transcript.append(user("canary-key"))
        assert transcript.history[0].text == "canary-key"
    assert b"canary-key" not in transcript.path.read_bytes()


def test_CONV_20_conversations_can_be_listed_and_removed(store: ConversationStore) -> None:
    ids = {finished(store, user("hi"))[0] for _ in range(3)}
    assert {id for id, _ in store.ids()} == ids
    gone = ids.pop()
    assert store.remove(gone)
    assert not store.remove(gone)
    assert {id for id, _ in store.ids()} == ids


def test_CONV_20_reading_shows_messages_and_of_reasoning_only_the_text(store: ConversationStore) -> None:
    thought = ReasoningBlock(provider="p", model="m", data={"signature": "opaque"}, text="I think")
    id, path = finished(
        store, user("hi"), Message(role="assistant", content=(thought, TextBlock(text="ok"))), user("more")
    )
    before = path.read_bytes()
    shown = [readable(message) for message in store.messages(id)]
    assert shown[1] == {
        "role": "assistant",
        "content": [{"type": "reasoning", "text": "I think"}, {"type": "text", "text": "ok"}],
    }
    assert path.read_bytes() == before
    with store.open(id, version=1):
        assert len(store.messages(id)) == 3


def _talk_until_killed(folder: Path, answers: Any) -> None:
    store = ConversationStore(folder / "conversations", folder / "locks")
    with store.create(model="m", version=1) as transcript:
        answers.send(transcript.id)
        for number in range(1_000_000):
            transcript.append(user(f"{number} " + "x" * 3_000))
            transcript.append(answer(str(number)))
            answers.send(number)


def test_REL_01_killed_at_any_moment_every_acknowledged_message_is_there_and_no_lock_blocks(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    for round in range(8):
        folder = tmp_path / str(round)
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_talk_until_killed, args=(folder, sending))
        process.start()
        sending.close()
        assert receiving.poll(60)
        id, acknowledged = receiving.recv(), -1
        while acknowledged < round * 5:
            assert receiving.poll(60)
            acknowledged = receiving.recv()
        process.kill()
        process.join(60)
        try:
            while True:
                acknowledged = receiving.recv()
        except EOFError:
            pass
        store = ConversationStore(folder / "conversations", folder / "locks")
        with store.open(id, version=1) as transcript:
            texts = [message.text.split(" ")[0] for message in transcript.history]
            assert texts[: 2 * acknowledged + 2] == [str(n // 2) for n in range(2 * acknowledged + 2)]
            if transcript.history[-1].role == "assistant":
                transcript.append(user("go on"))


def test_two_processes_never_write_one_conversation(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    store = ConversationStore(tmp_path / "conversations", tmp_path / "locks")
    id, _ = finished(store, user("hi"))
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_hold_open, args=(tmp_path, id, sending))
    process.start()
    assert receiving.poll(60)
    assert receiving.recv() == "open"
    with pytest.raises(OutpostError) as caught:
        store.open(id, version=1)
    assert caught.value.code == "conflict"
    assert caught.value.details["pid"] == process.pid
    process.kill()
    process.join(60)
    store.open(id, version=1).close()


def _hold_open(folder: Path, id: str, answers: Any) -> None:
    ConversationStore(folder / "conversations", folder / "locks").open(id, version=1)
    answers.send("open")
    signal.pause()
