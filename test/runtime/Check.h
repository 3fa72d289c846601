// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_TEST_RUNTIME_CHECK_H
#define PIPER_TEST_RUNTIME_CHECK_H

#include <cstdio>
#include <cstdlib>

/// Ends the test at the first thing that is not as expected.
#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      std::fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__,         \
                   #condition);                                                \
      std::exit(1);                                                            \
    }                                                                          \
  } while (false)

/// CHECK that `text` contains `part`, showing the text if not.
#define CHECK_CONTAINS(text, part)                                             \
  do {                                                                         \
    if (std::string(text).find(part) == std::string::npos) {                   \
      std::fprintf(stderr, "%s:%d: expected '%s' in: %s\n", __FILE__,          \
                   __LINE__, std::string(part).c_str(),                        \
                   std::string(text).c_str());                                 \
      std::exit(1);                                                            \
    }                                                                          \
  } while (false)

#endif // PIPER_TEST_RUNTIME_CHECK_H
