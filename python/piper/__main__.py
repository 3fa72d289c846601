# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`python -m piper`: the command line where the script `piper` is not on the path."""

from .cli import main

main()
