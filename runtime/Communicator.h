// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_COMMUNICATOR_H
#define PIPER_RUNTIME_COMMUNICATOR_H

#include "runtime/plan/Plan.h"

namespace piper::runtime {

class Waiter;

struct Collective {
  plan::Opcode opcode;
  plan::DType dtype;
  plan::Reduction reduction;
  uint64_t count;
  uint32_t root;
  void *src;
  void *dst;
};

/// One rank's end of one communicator. Pointers lie in the rank's own segment.
/// All calls that change it come from one stream at a time; release and
/// releaseAll may come from any. plan::Opcode says what each does.
class Communicator {
public:
  virtual ~Communicator() = default;

  /// A new run begins: message numbers count from 0 again.
  virtual void beginRun(uint32_t run, uint64_t flags) = 0;
  virtual void send(Waiter &waiter, const void *src, uint64_t bytes) = 0;
  virtual void recv(Waiter &waiter, void *dst, uint64_t bytes) = 0;
  /// Waits until this run's first `messages` messages are acknowledged.
  virtual void release(Waiter &waiter, uint64_t messages) = 0;
  /// Waits until every message of this run is acknowledged.
  virtual void releaseAll(Waiter &waiter) = 0;
  virtual void collective(Waiter &waiter, const Collective &operation) = 0;

  virtual uint32_t position() const = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMMUNICATOR_H
