"""What one event of a streamed answer costs beside reading it raw: `python -m tests.benchmarks.stream_events [--events N]`.

CPU microseconds per event of this process, in all three wire forms. Two readers take turns on the same answers: `httpx`
and a split at blank lines (the floor), and the provider (requested, read, decoded, put together). The service runs in a
process of its own and sends `--burst` events in each write; a model service sends one. Goal, at one event a write: the
provider at most 1.5 times the floor.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import httpx

from outpost_lsp import AnthropicModelProvider, OpenAIModelProvider
from outpost_lsp.domain.model import Completed, ModelProvider, ModelRequest

Read = Callable[[], Awaitable[None]]
_WORD = "some words "


def _data(event: dict[str, object], name: str = "") -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def _chat(count: int) -> list[bytes]:
    def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        shared = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return _data({**shared, "system_fingerprint": "fp", "choices": [choice]})

    return [*(chunk({"content": _WORD}) for _ in range(count)), chunk({}, "stop"), b"data: [DONE]\n\n"]


def _responses(count: int) -> list[bytes]:
    def event(kind: str, number: int, more: dict[str, object]) -> bytes:
        return _data({"type": kind, "sequence_number": number, **more}, kind)

    place: dict[str, object] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": _WORD * count, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    response = {"id": "resp_1", "status": "completed", "model": "m", "output": [item]}
    deltas = [
        event("response.output_text.delta", number, {**place, "delta": _WORD, "logprobs": []})
        for number in range(count)
    ]
    return [*deltas, event("response.completed", count, {"response": response})]


def _messages(count: int) -> list[bytes]:
    def event(kind: str, more: dict[str, object]) -> bytes:
        return _data({"type": kind, **more}, kind)

    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    delta = {"index": 0, "delta": {"type": "text_delta", "text": _WORD}}
    return [
        event("message_start", {"message": message}),
        event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        *(event("content_block_delta", delta) for _ in range(count)),
        event("content_block_stop", {"index": 0}),
        event("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": count}}),
        event("message_stop", {}),
    ]


_ANSWERS = {"/v1/chat/completions": _chat, "/v1/responses": _responses, "/v1/messages": _messages}


async def _serve(count: int, burst: int) -> None:
    answers = {path: make(count) for path, make in _ANSWERS.items()}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(line for line in head.lower().splitlines() if line.startswith("content-length"))
                await reader.readexactly(int(length.partition(":")[2]))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                events = answers[head.split()[1]]
                for start in range(0, len(events), burst):
                    piece = b"".join(events[start : start + burst])
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _floor(client: httpx.AsyncClient, url: str) -> Read:
    async def read() -> None:
        count, rest = 0, b""
        async with client.stream("POST", url, content=b"{}") as response:
            async for chunk in response.aiter_raw():
                *events, rest = (rest + chunk).split(b"\n\n")
                count += len(events)

    return read


def _provider(provider: ModelProvider) -> Read:
    async def read() -> None:
        async with aclosing(provider.stream(ModelRequest(model="m", prompt="go", max_output_tokens=1000))) as events:
            async for event in events:
                if isinstance(event, Completed):
                    return
        raise SystemExit("the answer did not become complete")

    return read


async def _microseconds(read: Read, events: int) -> float:
    gc.collect()
    began = time.process_time()
    await read()
    return 1e6 * (time.process_time() - began) / events


async def _compare(port: int, events: int, rounds: int) -> None:
    url = f"http://127.0.0.1:{port}"
    providers: dict[str, ModelProvider] = {
        "/v1/chat/completions": OpenAIModelProvider(f"{url}/v1", "key", api="chat"),
        "/v1/responses": OpenAIModelProvider(f"{url}/v1", "key", api="responses"),
        "/v1/messages": AnthropicModelProvider(f"{url}/v1", "key"),
    }
    async with httpx.AsyncClient(timeout=60) as client:
        for path, provider in providers.items():
            readers = {"floor": _floor(client, url + path), "provider": _provider(provider)}
            costs: dict[str, list[float]] = {name: [] for name in readers}
            for _ in range(rounds + 1):
                for name, read in readers.items():
                    costs[name].append(await _microseconds(read, events))
            # The first round opens connections and loads what is loaded late.
            floor, own = costs["floor"][1:], costs["provider"][1:]
            ratio = statistics.median(mine / theirs for mine, theirs in zip(own, floor, strict=True))
            print(
                f"{path}: httpx and a split {statistics.median(floor):.1f}, provider {statistics.median(own):.1f} "
                f"microseconds per event; ratio {ratio:.2f} (goal 1.5)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--burst", type=int, default=1, help="events in each write of the service")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(_serve(asked.events, asked.burst))
        return
    arguments = ["--serve", "--events", str(asked.events), "--burst", str(asked.burst)]
    service = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.stream_events", *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert service.stdout is not None
        asyncio.run(_compare(int(service.stdout.readline()), asked.events, asked.rounds))
    finally:
        service.terminate()
        service.wait()


if __name__ == "__main__":
    main()
