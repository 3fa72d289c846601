// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All sections that are loaded lie in one mapping, ordered by what may be done
// with them:
//
//   code and stubs (read, execute) | constants and address table (read) |
//   data (read, write)
//
// An external function may be farther away than 32-bit displacements reach, so
// calls go through a stub (`jmp *[address]`) and loads through the table.
#include "runtime/cpu/ObjectLoader.h"

#include "runtime/Error.h"
#include "runtime/cpu/ElfFile.h"
#include "runtime/cpu/ExternalSymbols.h"

#include <cstring>
#include <sys/mman.h>

#ifndef SHT_X86_64_UNWIND
#define SHT_X86_64_UNWIND 0x70000001
#endif

namespace piper::runtime {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kStubBytes = 16;
constexpr uint64_t kMaxBytes = uint64_t(1) << 30;

uint64_t roundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

enum Protection { Code, Constants, Data, NumProtections };

} // namespace

class ObjectLinker {
public:
  explicit ObjectLinker(std::string_view bytes) : file(ElfFile::read(bytes)) {}

  std::unique_ptr<LoadedObject> link() {
    placeSections();
    placeSymbols();
    map();
    for (const ElfSection &section : file.sections)
      if (section.header.sh_type == SHT_RELA)
        relocate(section);
      else if (section.header.sh_type == SHT_REL)
        throw Error("relocations without addends are not supported");
    protect();
    collectExports();
    return std::move(object);
  }

private:
  struct Placement {
    bool isLoaded = false;
    uint64_t offset = 0;
  };

  static bool isLoaded(const ElfSection &section) {
    const Elf64_Shdr &header = section.header;
    // Unwind tables and notes are of no use here.
    return (header.sh_flags & SHF_ALLOC) && header.sh_type != SHT_NOTE &&
           header.sh_type != SHT_X86_64_UNWIND && section.name != ".eh_frame";
  }

  static Protection protectionOf(const ElfSection &section) {
    bool isCode = section.header.sh_flags & SHF_EXECINSTR;
    bool isData = section.header.sh_flags & SHF_WRITE;
    if (isCode && isData)
      throw Error("section '" + section.name +
                  "' is both writable and executable");
    return isCode ? Code : isData ? Data : Constants;
  }

  void checkSection(const ElfSection &section) {
    const Elf64_Shdr &header = section.header;
    if (header.sh_flags & SHF_TLS)
      throw Error("section '" + section.name + "' is thread-local");
    if (header.sh_type == SHT_INIT_ARRAY || header.sh_type == SHT_FINI_ARRAY ||
        header.sh_type == SHT_PREINIT_ARRAY)
      throw Error("section '" + section.name + "' runs code when it is loaded");
    if (header.sh_type != SHT_PROGBITS && header.sh_type != SHT_NOBITS)
      throw Error("section '" + section.name + "' has unknown type " +
                  std::to_string(header.sh_type));
    uint64_t align = header.sh_addralign;
    if (align > kPage || (align & (align - 1)) != 0)
      throw Error("section '" + section.name + "' has alignment " +
                  std::to_string(align));
  }

  void placeSections() {
    placements.resize(file.sections.size());
    uint64_t end = 0;
    for (int protection = Code; protection < NumProtections; ++protection) {
      for (size_t i = 0; i < file.sections.size(); ++i) {
        const ElfSection &section = file.sections[i];
        if (!isLoaded(section) || protectionOf(section) != protection)
          continue;
        checkSection(section);
        uint64_t align = std::max<uint64_t>(section.header.sh_addralign, 1);
        placements[i] = {true, roundUp(end, align)};
        if (section.header.sh_size > kMaxBytes)
          throw Error("section '" + section.name + "' is too large");
        end = placements[i].offset + section.header.sh_size;
        if (end > kMaxBytes)
          throw Error("the sections are too large");
      }
      if (protection == Code) {
        stubs = end = roundUp(end, kStubBytes);
        end += file.symbols.size() * kStubBytes;
      } else if (protection == Constants) {
        table = end = roundUp(end, sizeof(uint64_t));
        end += file.symbols.size() * sizeof(uint64_t);
      }
      end = roundUp(end, kPage);
      ends[protection] = end;
    }
  }

  /// Checks every symbol; addresses follow once the memory is known.
  void placeSymbols() {
    externals.assign(file.symbols.size(), nullptr);
    for (size_t i = 1; i < file.symbols.size(); ++i) {
      const ElfSymbol &symbol = file.symbols[i];
      uint16_t section = symbol.record.st_shndx;
      if (section == SHN_UNDEF) {
        externals[i] = findExternalSymbol(symbol.name);
        // The assembler names the table even where nothing uses it.
        if (!externals[i] && symbol.name != "_GLOBAL_OFFSET_TABLE_")
          throw Error("refers to '" + symbol.name +
                      "', which kernels may not use");
      } else if (section == SHN_COMMON || symbol.type() == STT_TLS ||
                 symbol.type() == STT_GNU_IFUNC) {
        throw Error("symbol '" + symbol.name + "' is of an unsupported kind");
      } else if (section < SHN_LORESERVE) {
        if (section >= file.sections.size() ||
            symbol.record.st_value > file.sections[section].header.sh_size)
          throw Error("symbol '" + symbol.name + "' lies outside its section");
      }
    }
  }

  void map() {
    object.reset(new LoadedObject());
    object->bytes = std::max(ends[Data], kPage);
    void *memory = mmap(nullptr, object->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw Error("no memory to load it");
    object->memory = static_cast<char *>(memory);
    for (size_t i = 0; i < file.sections.size(); ++i)
      if (placements[i].isLoaded && !file.sections[i].contents.empty())
        std::memcpy(object->memory + placements[i].offset,
                    file.sections[i].contents.data(),
                    file.sections[i].contents.size());
    for (size_t i = 0; i < externals.size(); ++i)
      if (externals[i])
        writeStub(i);
  }

  void writeStub(size_t symbol) {
    // jmp *2(%rip); two bytes of padding; the address.
    static constexpr unsigned char code[8] = {0xff, 0x25, 2,    0,
                                              0,    0,    0x90, 0x90};
    char *stub = object->memory + stubs + symbol * kStubBytes;
    std::memcpy(stub, code, sizeof(code));
    std::memcpy(stub + 8, &externals[symbol], 8);
  }

  /// `nearby` asks for an address that 32-bit displacements reach.
  uint64_t addressOf(uint32_t index, bool nearby) {
    const ElfSymbol &symbol = file.symbols[index];
    uint16_t section = symbol.record.st_shndx;
    if (section == SHN_UNDEF) {
      if (!externals[index])
        throw Error("relocation against '" + symbol.name + "'");
      return nearby ? reinterpret_cast<uint64_t>(object->memory) + stubs +
                          index * kStubBytes
                    : reinterpret_cast<uint64_t>(externals[index]);
    }
    if (section == SHN_ABS)
      return symbol.record.st_value;
    if (section >= SHN_LORESERVE || !placements[section].isLoaded)
      throw Error("relocation against '" + symbol.name +
                  "', which is not loaded");
    return reinterpret_cast<uint64_t>(object->memory) +
           placements[section].offset + symbol.record.st_value;
  }

  uint64_t tableEntry(uint32_t index) {
    char *entry = object->memory + table + index * sizeof(uint64_t);
    uint64_t address = addressOf(index, false);
    std::memcpy(entry, &address, sizeof(address));
    return reinterpret_cast<uint64_t>(entry);
  }

  void relocate(const ElfSection &section) {
    uint32_t target = section.header.sh_info;
    if (target >= file.sections.size())
      throw Error("relocations of section " + std::to_string(target) +
                  ", which does not exist");
    if (!placements[target].isLoaded)
      return;
    for (const Elf64_Rela &relocation : ElfFile::relocations(section))
      apply(relocation, target);
  }

  void apply(const Elf64_Rela &relocation, uint32_t target) {
    uint32_t index = ELF64_R_SYM(relocation.r_info);
    uint32_t type = ELF64_R_TYPE(relocation.r_info);
    if (index >= file.symbols.size())
      throw Error("relocation against symbol " + std::to_string(index) +
                  ", which does not exist");
    bool isWide = type == R_X86_64_64 || type == R_X86_64_PC64;
    uint64_t bytes = isWide ? 8 : 4;
    uint64_t size = file.sections[target].header.sh_size;
    if (relocation.r_offset > size || size - relocation.r_offset < bytes)
      throw Error("relocation outside section '" + file.sections[target].name +
                  "'");
    char *place =
        object->memory + placements[target].offset + relocation.r_offset;
    uint64_t addend = uint64_t(relocation.r_addend);
    uint64_t here = reinterpret_cast<uint64_t>(place);
    uint64_t value = 0;
    switch (type) {
    case R_X86_64_NONE:
      return;
    case R_X86_64_64:
      value = addressOf(index, false) + addend;
      break;
    case R_X86_64_PC64:
      value = addressOf(index, false) + addend - here;
      break;
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
      value = addressOf(index, true) + addend - here;
      break;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      value = tableEntry(index) + addend - here;
      break;
    case R_X86_64_32:
    case R_X86_64_32S:
      value = addressOf(index, true) + addend;
      if (type == R_X86_64_32 && value >> 32)
        throw Error("a 32-bit address does not reach '" +
                    file.symbols[index].name +
                    "'; compile position-independent code");
      break;
    default:
      throw Error("unknown relocation type " + std::to_string(type));
    }
    if (!isWide && type != R_X86_64_32 &&
        value != uint64_t(int64_t(int32_t(value))))
      throw Error("a 32-bit displacement does not reach '" +
                  file.symbols[index].name + "'");
    std::memcpy(place, &value, bytes);
  }

  void protect() {
    uint64_t begin = 0;
    static constexpr int flags[NumProtections] = {
        PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
    for (int protection = Code; protection < NumProtections; ++protection) {
      uint64_t size = ends[protection] - begin;
      if (size && mprotect(object->memory + begin, size, flags[protection]))
        throw Error("cannot protect its memory");
      begin = ends[protection];
    }
  }

  void collectExports() {
    for (size_t i = 1; i < file.symbols.size(); ++i) {
      const ElfSymbol &symbol = file.symbols[i];
      uint16_t section = symbol.record.st_shndx;
      if (symbol.binding() != STB_GLOBAL || symbol.type() != STT_FUNC ||
          section == SHN_UNDEF || section >= SHN_LORESERVE ||
          !placements[section].isLoaded ||
          !(file.sections[section].header.sh_flags & SHF_EXECINSTR))
        continue;
      object->exported.emplace_back(
          symbol.name,
          reinterpret_cast<const void *>(addressOf(uint32_t(i), true)));
    }
  }

  ElfFile file;
  std::unique_ptr<LoadedObject> object;
  std::vector<Placement> placements;
  std::vector<const void *> externals;
  uint64_t stubs = 0, table = 0;
  uint64_t ends[NumProtections] = {};
};

std::unique_ptr<LoadedObject> LoadedObject::load(const std::string &name,
                                                 std::string_view bytes) {
  try {
    return ObjectLinker(bytes).link();
  } catch (const Error &error) {
    throw Error("object '" + name + "': " + error.what());
  }
}

LoadedObject::~LoadedObject() {
  if (memory)
    munmap(memory, bytes);
}

} // namespace piper::runtime
