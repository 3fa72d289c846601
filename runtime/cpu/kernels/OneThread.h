// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_CPU_KERNELS_ONETHREAD_H
#define PIPER_RUNTIME_CPU_KERNELS_ONETHREAD_H

#include <omp.h>

namespace piper::runtime {

/// oneDNN takes as many OpenMP threads as the caller may use; a stream is one
/// thread. The setting belongs to the calling thread and is put back.
class OneThread {
public:
  OneThread() : before(omp_get_max_threads()) {
    if (before != 1)
      omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before != 1)
      omp_set_num_threads(before);
  }

private:
  int before;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_KERNELS_ONETHREAD_H
