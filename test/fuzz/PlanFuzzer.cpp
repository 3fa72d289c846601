// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reader of plan files on arbitrary bytes: it refuses them with a message,
// or gives a plan that everything else may rely on.
#include "runtime/plan/Plan.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace piper::plan;

namespace {

constexpr size_t kHeaderBytes = 32;

[[noreturn]] void fail(const char *what) {
  std::fprintf(stderr, "PlanFuzzer: %s\n", what);
  std::abort();
}

void put(std::string &bytes, size_t offset, uint64_t value) {
  for (size_t i = 0; i < 8; ++i)
    bytes[offset + i] = char(value >> (8 * i));
}

/// The same payload under a header that says so: a mutation would hardly ever
/// get past the checksum.
std::string sealed(std::string bytes) {
  static const std::string header =
      serialize(Plan()).substr(0, kHeaderBytes - 16);
  bytes.replace(0, header.size(), header);
  uint64_t sum = 0xcbf29ce484222325u;
  for (size_t i = kHeaderBytes; i < bytes.size(); ++i)
    sum = (sum ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3u;
  put(bytes, 16, bytes.size() - kHeaderBytes);
  put(bytes, 24, sum);
  return bytes;
}

void check(const std::string &bytes) {
  Plan plan, again;
  std::string error;
  if (!parse(bytes, plan, error)) {
    if (error.empty())
      fail("refused without a message");
    return;
  }
  if (!validate(plan, error))
    fail("read, but not valid");
  if (!parse(serialize(plan), again, error))
    fail("written, but not read again");
  std::string text = dump(plan);
  if (text.empty() || dump(again) != text)
    fail("differs from what was read again");
  for (uint32_t rank = 0; rank < plan.worldSize; ++rank)
    if (classOf(plan, rank) < 0)
      fail("a rank without a class");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string bytes(reinterpret_cast<const char *>(data), size);
  check(bytes);
  if (size >= kHeaderBytes)
    check(sealed(std::move(bytes)));
  return 0;
}
