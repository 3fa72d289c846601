# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import torch

# One thread: the truth must not depend on how many cores the machine has, and ranks use the cores themselves.
torch.set_num_threads(1)
