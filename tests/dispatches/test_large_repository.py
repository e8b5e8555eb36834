"""REL-15, on less than a tenth of the size that the rule names: `tests/benchmarks/large_repository.py` measures the whole of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_REL_15_a_large_repository_has_one_copy_little_memory_and_leaves_the_event_loop_to_others() -> None:
    program = [sys.executable, "-m", "tests.benchmarks.large_repository", "--files", "8000", "--mib", "50"]
    done = subprocess.run(program, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["ready_s"] < 60
    assert found["peak_mib"] < 300
    # By the processor's clock, since the machine may be busy with other things.
    assert found["loop_processor_ms"] < 100
    assert found["copies_when_ready"] < 0.01
    assert found["copies"] < 1.1
