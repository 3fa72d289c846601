// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_PLAN_UTF8_H
#define PIPER_RUNTIME_PLAN_UTF8_H

#include <string_view>

namespace piper::plan {

/// Whether the text is well-formed by RFC 3629: shortest forms only, no
/// surrogates, nothing beyond U+10FFFF.
bool isUtf8(std::string_view text);

} // namespace piper::plan

#endif // PIPER_RUNTIME_PLAN_UTF8_H
