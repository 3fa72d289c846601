// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads x86-64 ELF relocatable objects from memory. Everything in the file is
// checked before it is used, and no page is ever writable and executable at
// once. Objects may refer to the functions of ExternalSymbols.h and to nothing
// else. Constructors, thread-local data and common symbols are refused.
#ifndef PIPER_RUNTIME_CPU_OBJECTLOADER_H
#define PIPER_RUNTIME_CPU_OBJECTLOADER_H

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace piper::runtime {

class LoadedObject {
public:
  /// Throws Error that names the object and what is wrong with it.
  static std::unique_ptr<LoadedObject> load(const std::string &name,
                                            std::string_view bytes);
  ~LoadedObject();
  LoadedObject(const LoadedObject &) = delete;

  /// Global functions that the object defines.
  const std::vector<std::pair<std::string, const void *>> &symbols() const {
    return exported;
  }

private:
  friend class ObjectLinker;
  LoadedObject() = default;

  char *memory = nullptr;
  size_t bytes = 0;
  std::vector<std::pair<std::string, const void *>> exported;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_OBJECTLOADER_H
