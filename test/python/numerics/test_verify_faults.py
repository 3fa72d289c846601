# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`piper.verify` on random programs: those that are right, and those into which a fault is planted. verify_campaign.py does the same with many more."""

import pytest
import verify_faults
import verify_models

# Seeds of programs: a pipeline with momentum; ZeRO-1 and ZeRO-3 with AdamW; a pipeline in bf16 with Adam.
PROGRAMS = (0, 8, 9, 4)
DRAWS = 5


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request):
    case = verify_models.random_case(request.param)
    made = case.compile()
    yield request.param, case, made
    made.close()


@pytest.mark.filterwarnings("ignore::piper.CoupledRowsWarning")
def test_right_programs_are_equal_to_pytorch(program):
    seed, case, made = program
    for draw in range(DRAWS):
        case.redraw(1000 * seed + draw)
        report = verify_models.verified(case, verify_models.again(made, case.model), case.truths(draw))
        assert report.ok and report.coupling is None, f"{case.name} draw {draw}\n{report}"


@pytest.mark.filterwarnings("ignore::piper.CoupledRowsWarning")
def test_planted_faults_are_found(program):
    seed, case, made = program
    faults = list(verify_faults.planted(case, made, seed))
    # A third of them, other ones in each program.
    chosen = faults[PROGRAMS.index(seed) % 3 :: 3]
    assert len(chosen) >= 5
    missed = [fault.name for fault in chosen if fault.verify().ok]
    assert not missed, f"{case.name}: {missed}"
