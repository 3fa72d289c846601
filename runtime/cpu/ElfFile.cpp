// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/cpu/ElfFile.h"

#include "runtime/Error.h"

#include <cstring>

namespace piper::runtime {
namespace {

std::string_view slice(std::string_view bytes, uint64_t offset, uint64_t size,
                       const char *what) {
  if (offset > bytes.size() || size > bytes.size() - offset)
    throw Error(std::string(what) + " lies outside the file");
  return bytes.substr(offset, size);
}

template <typename T>
std::vector<T> records(std::string_view bytes, const char *what) {
  if (bytes.size() % sizeof(T) != 0)
    throw Error(std::string(what) + " has a size of " +
                std::to_string(bytes.size()) + " bytes");
  std::vector<T> result(bytes.size() / sizeof(T));
  if (!result.empty())
    std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

std::string stringAt(std::string_view table, uint64_t offset) {
  size_t end = table.find('\0', offset);
  if (offset >= table.size() || end == std::string_view::npos)
    throw Error("a name lies outside the string table");
  return std::string(table.substr(offset, end - offset));
}

void checkHeader(const Elf64_Ehdr &header) {
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_ident[EI_VERSION] != EV_CURRENT)
    throw Error("expected a 64-bit little-endian ELF file");
  if (header.e_type != ET_REL || header.e_machine != EM_X86_64)
    throw Error("expected a relocatable x86-64 file, got type " +
                std::to_string(header.e_type) + " for machine " +
                std::to_string(header.e_machine));
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      header.e_shstrndx >= header.e_shnum)
    throw Error("expected a table of sections with names");
}

} // namespace

ElfFile ElfFile::read(std::string_view bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, slice(bytes, 0, sizeof(header), "header").data(),
              sizeof(header));
  checkHeader(header);
  ElfFile file;
  std::string_view table =
      slice(bytes, header.e_shoff,
            uint64_t(header.e_shnum) * sizeof(Elf64_Shdr), "section table");
  for (const Elf64_Shdr &section :
       records<Elf64_Shdr>(table, "section table")) {
    std::string_view contents;
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL)
      contents = slice(bytes, section.sh_offset, section.sh_size, "section");
    file.sections.push_back({section, "", contents});
  }
  std::string_view names = file.sections[header.e_shstrndx].contents;
  const ElfSection *symbolTable = nullptr;
  for (ElfSection &section : file.sections) {
    section.name = stringAt(names, section.header.sh_name);
    if (section.header.sh_type != SHT_SYMTAB)
      continue;
    if (symbolTable)
      throw Error("expected one symbol table");
    symbolTable = &section;
  }
  if (!symbolTable || symbolTable->header.sh_link >= file.sections.size())
    throw Error("expected a symbol table");
  std::string_view symbolNames =
      file.sections[symbolTable->header.sh_link].contents;
  for (const Elf64_Sym &symbol :
       records<Elf64_Sym>(symbolTable->contents, "symbol table"))
    file.symbols.push_back(
        {symbol, symbol.st_name ? stringAt(symbolNames, symbol.st_name) : ""});
  return file;
}

std::vector<Elf64_Rela> ElfFile::relocations(const ElfSection &section) {
  return records<Elf64_Rela>(section.contents, "relocation table");
}

} // namespace piper::runtime
