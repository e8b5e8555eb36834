"""A server that reviews again and again holds on to nothing; `tests/benchmarks/soak.py` is the long version."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.soak import Holdings, opened, review_again_and_again


def test_after_many_reviews_and_cancellations_memory_and_handles_are_what_they_were(tmp_path: Path) -> None:
    # As many reviews as it takes to tell a leak from what is kept on purpose.
    client, top = opened(tmp_path)
    try:
        review_again_and_again(client, top, 0, 10)
        before = Holdings.at_rest(client.process.pid)
        review_again_and_again(client, top, 10, 20)
        after = Holdings.at_rest(client.process.pid)
        client.close()
    finally:
        client.process.kill()
        client.process.wait()
        for pipe in (client.process.stdin, client.process.stdout):
            if pipe is not None:
                pipe.close()
    assert client.process.returncode == 0
    assert after.memory_mib < before.memory_mib + 20
    assert after.descriptors <= before.descriptors + 4
    assert after.threads <= before.threads + 4
    assert after.children <= before.children
