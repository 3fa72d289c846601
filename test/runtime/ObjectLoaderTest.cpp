// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Objects made by the compiler run; anything else is refused with a reason and
// without harm. Arguments: the paths of the objects.
#include "runtime/cpu/ObjectLoader.h"
#include "Check.h"
#include "runtime/Error.h"

#include <cmath>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <map>

using namespace piper::runtime;

namespace {

std::map<std::string, std::string> objects;

const void *find(const LoadedObject &object, const std::string &name) {
  for (const auto &[symbol, address] : object.symbols())
    if (symbol == name)
      return address;
  return nullptr;
}

void call(const void *function, void *const *args) {
  reinterpret_cast<void (*)(void *const *)>(const_cast<void *>(function))(args);
}

std::string refusal(const std::string &bytes) {
  try {
    LoadedObject::load("k.o", bytes);
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

void runs() {
  // Two copies have their own data.
  auto first = LoadedObject::load("first", objects["Sample"]);
  auto second = LoadedObject::load("second", objects["Sample"]);
  CHECK(first->symbols().size() == 2);
  float x[16], y[16];
  for (int i = 0; i < 16; ++i)
    x[i] = float(i) / 4;
  void *args[] = {x, y};
  call(find(*first, "weighted"), args);
  float weights[4] = {1, 10, 100, 1000};
  for (int i = 0; i < 16; ++i)
    CHECK(y[i] == expf(x[i]) * weights[i % 4]);
  int number = 0;
  void *counts[] = {&number, y};
  call(find(*first, "count"), counts);
  call(find(*first, "count"), counts);
  CHECK(number == 42 && y[0] == 10);
  call(find(*second, "count"), counts);
  CHECK(number == 41);
}

/// No page of the process is writable and executable.
void keepsCodeReadOnly() {
  auto object = LoadedObject::load("sample", objects["Sample"]);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    CHECK(line.find("rwx") == std::string::npos);
}

void refuses() {
  CHECK_CONTAINS(refusal(objects["Constructor"]), "object 'k.o': section '");
  CHECK_CONTAINS(refusal(objects["Constructor"]),
                 "runs code when it is loaded");
  CHECK_CONTAINS(refusal(objects["ThreadLocal"]), "is thread-local");
  CHECK_CONTAINS(refusal(objects["Unknown"]),
                 "refers to 'system', which kernels may not use");
  CHECK_CONTAINS(refusal("not an object"), "header lies outside the file");
  std::string bytes = objects["Sample"];
  auto *header = reinterpret_cast<Elf64_Ehdr *>(&bytes[0]);
  header->e_machine = EM_AARCH64;
  CHECK_CONTAINS(refusal(bytes), "expected a relocatable x86-64 file");
  header->e_machine = EM_X86_64;
  header->e_type = ET_DYN;
  CHECK_CONTAINS(refusal(bytes),
                 "expected a relocatable x86-64 file, got type");
}

/// Whatever is damaged, loading ends in an object or in an Error, never in a
/// crash. (What is loaded here is not called.)
void survivesDamage() {
  const std::string &bytes = objects["Sample"];
  size_t refused = 0;
  for (size_t length = 0; length < bytes.size(); length += 7)
    refused += !refusal(bytes.substr(0, length)).empty();
  CHECK(refused > bytes.size() / 7 / 2);
  refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    for (unsigned char flip : {0x01, 0xff}) {
      std::string damaged = bytes;
      damaged[i] = char(damaged[i] ^ flip);
      refused += !refusal(damaged).empty();
    }
  CHECK(refused > 100);
}

} // namespace

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    std::string path = argv[i];
    std::ifstream file(path, std::ios::binary);
    std::string name = path.substr(path.rfind('/') + 1);
    objects[name.substr(0, name.find('.'))] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  for (const char *name : {"Sample", "Constructor", "ThreadLocal", "Unknown"})
    CHECK(!objects[name].empty());
  runs();
  keepsCodeReadOnly();
  refuses();
  survivesDamage();
}
