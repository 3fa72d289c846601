# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import sys
from pathlib import Path

import pytest
import torch

# The executor of imported programs stands with the importer's tests.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "importer")]
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(20)
