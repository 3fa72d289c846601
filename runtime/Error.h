// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_ERROR_H
#define PIPER_RUNTIME_ERROR_H

#include <stdexcept>
#include <string>

namespace piper::runtime {

/// Wrong use or a failure of this process's own ranks.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Another process's rank died, failed, left or stands still. This process is
/// to end with exit code 3.
struct RankLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The host asked to stop the run (a signal).
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Unwinds a stream after somebody posted an abort record; says nothing itself.
struct Stopped {};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_ERROR_H
