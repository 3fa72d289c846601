# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`piper.verify` on many random programs that are right, and on many into which a fault is planted: outside of the tests, for it takes an hour.

python verify_campaign.py right 0 60 --draws 9     # seeds of programs, verifications of each
python verify_campaign.py faults 0 40
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch
import verify_faults
import verify_models


def right(seed: int, draws: int) -> tuple[int, int]:
    """Verifications of one program with other parameters and batches, and how many of them say that it is wrong."""
    case = verify_models.random_case(seed)
    program = case.compile()
    alarms = 0
    for draw in range(draws):
        case.redraw(1000 * seed + draw)
        report = verify_models.verified(case, verify_models.again(program, case.model), case.truths(draw))
        if not report.ok:
            alarms += 1
            print(f"FALSE ALARM {case.name} draw {draw}\n{report}", flush=True)
    program.close()
    print(f"{case.name}: {draws - alarms} of {draws}", flush=True)
    return draws, alarms


def faults(seed: int, _: int) -> tuple[int, int]:
    """Faults planted into one program, and how many are missed."""
    case = verify_models.random_case(seed)
    program = case.compile()
    planted = missed = 0
    for fault in verify_faults.planted(case, program, seed):
        planted += 1
        try:
            report = fault.verify()
        except RuntimeError as error:
            if "invalid plan" not in str(error):
                raise
            # No program comes of it.
            print(f"refused {fault.name} in {case.name}", flush=True)
            continue
        missed += report.ok
        print(f"{'MISSED' if report.ok else 'found'} {fault.name} in {case.name}", flush=True)
        if report.ok:
            print(report, flush=True)
    program.close()
    return planted, missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["right", "faults"])
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--draws", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    run = right if options.what == "right" else faults
    total = wrong = refused = 0
    start = time.monotonic()
    for seed in range(options.first, options.end):
        try:
            done, bad = run(seed, options.draws)
        except Exception as error:
            refused += 1
            print(f"NOT COMPILED {seed}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        total, wrong = total + done, wrong + bad
    said = "false alarms" if options.what == "right" else "faults missed"
    print(f"{wrong} {said} in {total}, {refused} programs not compiled, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
