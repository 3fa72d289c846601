// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A checked view of an x86-64 ELF relocatable file (System V ABI, chapter 4,
// and its AMD64 supplement). Bytes may lie at any alignment.
#ifndef PIPER_RUNTIME_CPU_ELFFILE_H
#define PIPER_RUNTIME_CPU_ELFFILE_H

#include <elf.h>
#include <string>
#include <string_view>
#include <vector>

namespace piper::runtime {

struct ElfSection {
  Elf64_Shdr header;
  std::string name;
  /// Empty for sections without contents (.bss).
  std::string_view contents;
};

struct ElfSymbol {
  Elf64_Sym record;
  std::string name;
  unsigned char binding() const { return ELF64_ST_BIND(record.st_info); }
  unsigned char type() const { return ELF64_ST_TYPE(record.st_info); }
};

struct ElfFile {
  std::vector<ElfSection> sections;
  std::vector<ElfSymbol> symbols;

  /// Throws Error whose message does not name the file.
  static ElfFile read(std::string_view bytes);
  static std::vector<Elf64_Rela> relocations(const ElfSection &section);
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_ELFFILE_H
