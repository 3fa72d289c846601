// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/cpu/CpuStream.h"

#include "runtime/Error.h"
#include "runtime/comm/Reduce.h"
#include "runtime/cpu/KernelFailure.h"

#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

// Present if a library that the runtime links (oneDNN) uses OpenMP.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace piper::runtime {
namespace {

/// A stream is one thread: libraries that it calls must not start more.
void useOneOpenMPThread() {
  auto set = &omp_set_num_threads;
  if (!set)
    set = reinterpret_cast<void (*)(int)>(
        dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set)
    set(1);
}

void restrictTo(const std::vector<int> &cores) {
  if (cores.empty())
    return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores)
    CPU_SET(core, &set);
  // Only speed depends on it, so a refusal is no failure.
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

} // namespace

CpuStream::CpuStream(const StreamOptions &options)
    : scratchBytes(options.workspaceBytes) {
  if (scratchBytes) {
    void *memory = mmap(nullptr, scratchBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      throw Error("stream '" + options.name +
                  "': no memory for a workspace of " +
                  std::to_string(scratchBytes) + " bytes");
    scratch = static_cast<char *>(memory);
  }
  thread =
      std::make_unique<StreamThread>(options.name, [cores = options.cores] {
        restrictTo(cores);
        useOneOpenMPThread();
      });
}

CpuStream::~CpuStream() {
  thread.reset();
  if (scratch)
    munmap(scratch, scratchBytes);
}

void CpuStream::enqueue(std::function<void()> work) {
  thread->enqueue(std::move(work));
}

void CpuStream::launch(const void *kernel, void *const *args) {
  reinterpret_cast<void (*)(void *const *)>(const_cast<void *>(kernel))(args);
  if (const char *message = takeKernelFailure())
    throw Error(message);
}

void CpuStream::copy(void *dst, const void *src, uint64_t bytes) {
  std::memmove(dst, src, bytes);
}

void CpuStream::fillZero(void *dst, uint64_t bytes) {
  std::memset(dst, 0, bytes);
}

void CpuStream::accumulate(plan::DType dtype, bool add, void *dst,
                           const void *src, uint64_t count) {
  accumulateElements(dtype, add, static_cast<char *>(dst),
                     static_cast<const char *>(src), count);
}

} // namespace piper::runtime
