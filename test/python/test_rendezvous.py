# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The meeting of processes, where it goes wrong at the end of one."""

import subprocess
import sys

ENDS_MEANWHILE = """
import time
from datetime import timedelta
import torch.distributed as dist
from piper import rendezvous

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=0.3))

def ask():
    try:
        store.get("a key that nobody sets")
    except Exception:
        pass

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(1.5)

slow = Slow()
rendezvous._in_background(ask)
raise SystemExit(3)
"""


def test_a_store_that_answers_while_the_process_ends():
    result = subprocess.run([sys.executable, "-c", ENDS_MEANWHILE], capture_output=True, text=True, timeout=60)
    assert result.returncode == 3, result.stderr
    assert "terminate called" not in result.stderr
