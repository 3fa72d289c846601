// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a libFuzzer entry point where there is no libFuzzer: replays a corpus
// and mutates it, blindly but always in the same way. Options are libFuzzer's:
//
//   PlanFuzzer [-runs=N] [-seed=N] [-max_total_time=SECONDS] FOLDER...
//   PlanFuzzer FILE
//
// The input that is being tried lies in ./fuzz-input until it is done.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

using Bytes = std::string;

/// Values at which sizes and counts go wrong.
constexpr uint64_t kInteresting[] = {
    0,          1,          2,          64,         65,
    0x7f,       0x80,       0xff,       256,        0x7fffffff,
    0x80000000, 0xfffffffe, 0xffffffff, 1ull << 32, 1ull << 46,
    1ull << 63, ~0ull >> 1, ~0ull - 1,  ~0ull};

class Mutator {
public:
  Mutator(std::vector<Bytes> corpus, uint64_t seed)
      : corpus(std::move(corpus)), random(seed) {}

  Bytes next() {
    Bytes bytes = pick();
    size_t changes = size_t(1) << below(5);
    for (size_t i = 0; i < changes; ++i)
      change(bytes);
    return bytes;
  }

private:
  size_t below(size_t limit) { return limit ? random() % limit : 0; }
  const Bytes &pick() { return corpus[below(corpus.size())]; }

  void change(Bytes &bytes) {
    size_t at = below(bytes.size());
    switch (below(7)) {
    case 0:
      flip(bytes, at);
      break;
    case 1:
      if (at < bytes.size())
        bytes[at] = char(random());
      break;
    case 2:
      write(bytes, at, kInteresting[below(std::size(kInteresting))]);
      break;
    case 3:
      write(bytes, at, below(64));
      break;
    case 4:
      bytes.erase(at, below(1 + below(64)));
      break;
    case 5:
      bytes.insert(at, part(bytes));
      break;
    case 6:
      splice(bytes, at);
      break;
    }
  }
  void flip(Bytes &bytes, size_t at) {
    if (at < bytes.size())
      bytes[at] = char(bytes[at] ^ (1 << below(8)));
  }
  /// 1, 2, 4 or 8 bytes, little-endian.
  void write(Bytes &bytes, size_t at, uint64_t value) {
    size_t width = size_t(1) << below(4);
    for (size_t i = 0; i < width && at + i < bytes.size(); ++i)
      bytes[at + i] = char(value >> (8 * i));
  }
  Bytes part(const Bytes &of) {
    size_t at = below(of.size());
    return of.substr(at, below(1 + below(128)));
  }
  /// Goes on as another input does, or takes a part of it over.
  void splice(Bytes &bytes, size_t at) {
    const Bytes &other = pick();
    if (below(4) == 0) {
      bytes.resize(at);
      bytes += other.substr(std::min(at, other.size()));
      return;
    }
    Bytes piece = part(other);
    bytes.replace(at, std::min(piece.size(), bytes.size() - at), piece);
  }

  std::vector<Bytes> corpus;
  std::mt19937_64 random;
};

Bytes read(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

/// The files of the folders in the order of their names.
std::vector<Bytes> readCorpus(const std::vector<std::string> &folders) {
  std::vector<std::filesystem::path> paths;
  for (const std::string &folder : folders)
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      if (entry.is_regular_file())
        paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const std::filesystem::path &path : paths)
    corpus.push_back(read(path));
  return corpus;
}

void tryInput(const Bytes &bytes) {
  std::ofstream("fuzz-input", std::ios::binary) << bytes;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()),
                         bytes.size());
}

bool option(const char *argument, const char *name, uint64_t &value) {
  size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0)
    return false;
  value = std::strtoull(argument + length, nullptr, 10);
  return true;
}

} // namespace

int main(int argc, char **argv) {
  uint64_t runs = ~uint64_t(0), seed = 1, seconds = ~uint64_t(0) >> 32;
  std::vector<std::string> folders;
  for (int i = 1; i < argc; ++i)
    if (!option(argv[i], "-runs=", runs) && !option(argv[i], "-seed=", seed) &&
        !option(argv[i], "-max_total_time=", seconds))
      folders.push_back(argv[i]);
  if (folders.size() == 1 && std::filesystem::is_regular_file(folders[0])) {
    Bytes bytes = read(folders[0]);
    return LLVMFuzzerTestOneInput(
        reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
  }
  std::vector<Bytes> corpus = readCorpus(folders);
  if (corpus.empty()) {
    std::fprintf(stderr, "expected a folder with at least one input\n");
    return 1;
  }
  for (const Bytes &bytes : corpus)
    tryInput(bytes);
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  Mutator mutator(corpus, seed);
  uint64_t done = 0;
  for (; done < runs && std::chrono::steady_clock::now() < end; ++done)
    tryInput(mutator.next());
  std::filesystem::remove("fuzz-input");
  std::printf("Done %llu runs over %zu inputs\n",
              static_cast<unsigned long long>(done), corpus.size());
}
