"""A fast stand-in for a model service, for benchmarks: streamed Chat Completions, nothing else.

The model's name is the script: `steps-20` asks for one `read_file` in each of 20 steps and then says `done`;
`delegate-8` asks for eight `delegate` calls in its first step. Where an answer stands is read off the request (how many
tool results it holds), so runs may share the service. `POST /route` answers a plain decision,
`POST /v1/systemone` one in the form of System One. The argument, if any, is
how many milliseconds a model waits before it answers.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

_MODEL = re.compile(rb'"model"\s*:\s*"(steps|delegate)-(\d+)"')
_PACE_S = float(sys.argv[1]) / 1000 if len(sys.argv) > 1 else 0.0
_ROUTE = json.dumps({"model": "small"}).encode()
_DECISION = json.dumps(
    {
        "model": "router",
        "answers": {
            "route": {
                "type": "choice",
                "choice": "fast",
                "probabilities": {"fast": 0.95, "deep": 0.05},
                "confidence": 0.9,
            }
        },
        "usage": {"input_tokens": 12, "output_tokens": 3},
    }
).encode()


def _event(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return (
        b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


def _end(finish: str) -> bytes:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    tail = {"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": usage}
    return _event({}, finish) + b"data: " + json.dumps(tail).encode() + b"\n\ndata: [DONE]\n\n"


def _calls(name: str, arguments: list[str], first: int) -> bytes:
    body = _event({"role": "assistant", "content": "working"})
    for index, text in enumerate(arguments):
        call = {
            "index": index,
            "id": f"call_{first + index}",
            "type": "function",
            "function": {"name": name, "arguments": text},
        }
        body += _event({"tool_calls": [call]})
    return body + _end("tool_calls")


def _answer(body: bytes) -> bytes:
    found = _MODEL.search(body)
    kind, count = (found.group(1), int(found.group(2))) if found else (b"steps", 0)
    results = body.count(b'"role":"tool"') + body.count(b'"role": "tool"')
    if kind == b"steps" and results < count:
        return _calls("read_file", [json.dumps({"path": f"f{results % 16}.txt"})], results)
    if kind == b"delegate" and results == 0:
        return _calls("delegate", [json.dumps({"prompt": "look"})] * count, 0)
    return _event({"role": "assistant", "content": "done"}) + _end("stop")


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length:\s*(\d+)", head, re.IGNORECASE).group(1))  # type: ignore[union-attr]
            body = await reader.readexactly(length)
            if b" /route " in head.split(b"\r\n", 1)[0]:
                answer, kind = _ROUTE, b"application/json"
            elif b"/systemone " in head.split(b"\r\n", 1)[0]:
                answer, kind = _DECISION, b"application/json"
            else:
                answer, kind = _answer(body), b"text/event-stream"
                if _PACE_S:
                    await asyncio.sleep(_PACE_S)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(answer), answer)
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=1 << 26)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
