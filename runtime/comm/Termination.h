// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launchers end the survivors of a job with SIGTERM a moment after a death. A
// process that is about to report the lost rank and end with code 3 must not be
// overtaken by that signal, even if it has not noticed the death yet.
#ifndef PIPER_RUNTIME_COMM_TERMINATION_H
#define PIPER_RUNTIME_COMM_TERMINATION_H

#include "runtime/comm/RankHeader.h"

namespace piper::runtime {

/// From now on SIGTERM is ignored while the process behind `pidfd` is dead
/// without having left in order, or while `own` names `rank` as failed.
/// Otherwise it does what it did before.
void guardTermination(int pidfd, uint32_t rank, const RankHeader &peer,
                      const RankHeader &own);
void unguardTermination(int pidfd);

/// Puts the guard back where the host installed a handler of its own since;
/// that one is called where the guard does not hold the signal back.
void renewTerminationGuard();

/// From now on SIGTERM is ignored: this process ends by itself.
void announceLoss();

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_TERMINATION_H
