// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Binary form of a plan:
//
//   magic "PIPRPLAN" | u32 version | u32 0 | u64 payload bytes | u64 checksum
//   payload: table of distinct strings, then the records in the order of the
//   structs. Integers little-endian, sequences and strings length-prefixed.
//
// One `visit` per struct describes both directions, so they cannot disagree.
#include "Plan.h"
#include "Utf8.h"

#include <cstring>
#include <unordered_map>

namespace piper::plan {
namespace {

constexpr char kMagic[8] = {'P', 'I', 'P', 'R', 'P', 'L', 'A', 'N'};
constexpr size_t kHeaderBytes = 32;
/// Strings stand in the file once and in memory wherever they are used, but no
/// plan makes more of it than this many times the file; real ones a fifth of
/// it.
constexpr uint64_t kMaxTextFactor = 64;

/// FNV-1a: each step is a bijection of the state, so any single changed byte
/// changes the sum.
uint64_t checksum(std::string_view bytes) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (unsigned char byte : bytes)
    sum = (sum ^ byte) * 0x100000001b3u;
  return sum;
}

template <typename T> void putInteger(std::string &out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out.push_back(char(uint64_t(value) >> (8 * i)));
}

template <typename T> T getInteger(const char *bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= uint64_t(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return T(value);
}

class Encoder {
public:
  template <typename T> void integer(T &value) { putInteger(body, value); }
  template <typename T> void enumeration(T &value, unsigned) {
    putInteger(body, uint8_t(value));
  }
  void string(std::string &value) {
    auto [it, isNew] = numbers.try_emplace(value, uint32_t(numbers.size()));
    if (isNew) {
      putInteger(table, uint32_t(value.size()));
      table += value;
    }
    putInteger(body, it->second);
  }
  template <typename T, typename Fn>
  void sequence(std::vector<T> &values, Fn each) {
    putInteger(body, uint64_t(values.size()));
    for (T &value : values)
      each(value);
  }
  template <typename T, typename Fn>
  void map(std::map<std::string, T> &values, Fn each) {
    putInteger(body, uint64_t(values.size()));
    for (auto &[key, value] : values) {
      std::string copy = key;
      string(copy);
      each(value);
    }
  }
  std::string payload() const {
    std::string out;
    putInteger(out, uint32_t(numbers.size()));
    return out + table + body;
  }

private:
  std::string body, table;
  std::unordered_map<std::string, uint32_t> numbers;
};

class Decoder {
public:
  explicit Decoder(std::string_view bytes)
      : rest(bytes), textLimit(kMaxTextFactor * bytes.size()) {
    uint32_t count = 0;
    integer(count);
    for (uint32_t i = 0; i < count && error.empty(); ++i) {
      uint32_t length = 0;
      integer(length);
      table.push_back(take(length));
      if (!isUtf8(table.back()))
        fail("string number " + std::to_string(i) + " is not UTF-8");
    }
  }
  template <typename T> void integer(T &value) {
    std::string_view bytes = take(sizeof(T));
    if (error.empty())
      value = getInteger<T>(bytes.data());
  }
  template <typename T> void enumeration(T &value, unsigned size) {
    uint8_t raw = 0;
    integer(raw);
    if (raw >= size)
      return fail("enumerator " + std::to_string(raw) + " out of range");
    value = T(raw);
  }
  void string(std::string &value) {
    uint32_t number = 0;
    integer(number);
    if (number >= table.size())
      return fail("string number " + std::to_string(number) + " out of range");
    // One long string may be referred to by every record.
    textBytes += table[number].size();
    if (textBytes > textLimit)
      return fail("strings of more than " + std::to_string(textLimit) +
                  " bytes");
    value = std::string(table[number]);
  }
  template <typename T, typename Fn>
  void sequence(std::vector<T> &values, Fn each) {
    uint64_t count = length();
    for (uint64_t i = 0; i < count && error.empty(); ++i)
      each(values.emplace_back());
  }
  template <typename T, typename Fn>
  void map(std::map<std::string, T> &values, Fn each) {
    uint64_t count = length();
    for (uint64_t i = 0; i < count && error.empty(); ++i) {
      std::string key;
      string(key);
      each(values[key]);
    }
    if (error.empty() && values.size() != count)
      fail("a key appears twice");
  }
  void finish() {
    if (error.empty() && !rest.empty())
      fail(std::to_string(rest.size()) + " bytes left over");
  }

  std::string error;

private:
  void fail(std::string message) {
    if (error.empty())
      error = std::move(message);
  }
  std::string_view take(uint64_t size) {
    if (!error.empty() || size > rest.size()) {
      fail("ends too early");
      return {};
    }
    std::string_view bytes = rest.substr(0, size);
    rest.remove_prefix(size);
    return bytes;
  }
  /// Every element takes at least one byte, so a length beyond the rest is
  /// wrong; elements are appended one by one, so none can ask for memory that
  /// the file does not back.
  uint64_t length() {
    uint64_t count = 0;
    integer(count);
    if (error.empty() && count > rest.size())
      fail("sequence of " + std::to_string(count) + " elements in " +
           std::to_string(rest.size()) + " bytes");
    return error.empty() ? count : 0;
  }

  std::string_view rest;
  std::vector<std::string_view> table;
  uint64_t textBytes = 0, textLimit;
};

template <typename Coder, typename T>
void integers(Coder &c, std::vector<T> &values) {
  c.sequence(values, [&](T &value) { c.integer(value); });
}

template <typename Coder> void visit(Coder &c, Address &a) {
  c.enumeration(a.space, kNumSpaces);
  c.integer(a.index);
  c.integer(a.offset);
  c.integer(a.communicator);
  c.integer(a.stride);
}

template <typename Coder> void visit(Coder &c, Action &a) {
  c.enumeration(a.opcode, kNumOpcodes);
  c.integer(a.predicate);
  c.sequence(a.addresses, [&](Address &address) { visit(c, address); });
  integers(c, a.imm);
  c.string(a.label);
  c.string(a.where);
}

template <typename Coder> void visit(Coder &c, Kernel &k) {
  c.string(k.name);
  c.integer(k.workspaceBytes);
  integers(c, k.pointerBytes);
}

template <typename Coder> void visit(Coder &c, Communicator &communicator) {
  c.string(communicator.name);
  c.sequence(communicator.groups,
             [&](std::vector<uint32_t> &group) { integers(c, group); });
}

template <typename Coder> void visit(Coder &c, Stream &s) {
  c.string(s.name);
  c.integer(s.workspaceBytes);
  c.integer(s.cores);
}

template <typename Coder> void visit(Coder &c, BufferInfo &b) {
  c.string(b.label);
  c.string(b.kind);
  c.integer(b.offset);
  c.integer(b.bytes);
  c.integer(b.firstAction);
  c.integer(b.lastAction);
  c.integer(b.firstStream);
  c.integer(b.lastStream);
  c.integer(b.firstIndex);
  c.integer(b.lastIndex);
}

template <typename Coder> void visit(Coder &c, RankClass &r) {
  integers(c, r.ranks);
  c.integer(r.arenaBytes);
  c.integer(r.stateBytes);
  c.integer(r.scalarBytes);
  c.integer(r.peakBytes);
  c.integer(r.numEvents);
  c.sequence(r.streams, [&](Stream &stream) { visit(c, stream); });
  c.map(r.entries, [&](StreamActions &streams) {
    c.sequence(streams, [&](std::vector<Action> &actions) {
      c.sequence(actions, [&](Action &action) { visit(c, action); });
    });
  });
  c.sequence(r.buffers, [&](BufferInfo &buffer) { visit(c, buffer); });
}

template <typename Coder> void visit(Coder &c, StateSegment &s) {
  c.integer(s.rankClass);
  c.enumeration(s.space, kNumSpaces);
  c.integer(s.byteOffset);
  c.integer(s.elementOffset);
  c.integer(s.count);
  c.integer(s.communicator);
  c.integer(s.elementStride);
  c.integer(s.repeat);
  c.integer(s.repeatStride);
}

template <typename Coder> void visit(Coder &c, State &s) {
  c.string(s.name);
  c.enumeration(s.kind, kNumStateKinds);
  c.enumeration(s.dtype, kNumDTypes);
  integers(c, s.shape);
  c.sequence(s.segments, [&](StateSegment &segment) { visit(c, segment); });
}

template <typename Coder> void visit(Coder &c, Input &i) {
  c.string(i.name);
  c.enumeration(i.dtype, kNumDTypes);
  c.integer(i.rowBytes);
  c.integer(i.rows);
}

template <typename Coder> void visit(Coder &c, Scalar &s) {
  c.string(s.name);
  c.enumeration(s.dtype, kNumDTypes);
  c.integer(s.offset);
}

template <typename Coder> void visit(Coder &c, Output &o) {
  c.string(o.name);
  c.enumeration(o.dtype, kNumDTypes);
  c.integer(o.rankClass);
  visit(c, o.address);
  integers(c, o.shape);
}

template <typename Coder> void visit(Coder &c, Plan &p) {
  c.integer(p.worldSize);
  c.sequence(p.flags, [&](std::string &flag) { c.string(flag); });
  c.sequence(p.kernels, [&](Kernel &kernel) { visit(c, kernel); });
  c.sequence(p.communicators,
             [&](Communicator &communicator) { visit(c, communicator); });
  c.sequence(p.classes, [&](RankClass &rankClass) { visit(c, rankClass); });
  c.sequence(p.states, [&](State &state) { visit(c, state); });
  c.sequence(p.inputs, [&](Input &input) { visit(c, input); });
  c.sequence(p.scalars, [&](Scalar &scalar) { visit(c, scalar); });
  c.sequence(p.outputs, [&](Output &output) { visit(c, output); });
}

} // namespace

std::string serialize(const Plan &plan) {
  Encoder encoder;
  // The encoder reads only; `visit` takes a mutable reference because the
  // decoder shares it.
  visit(encoder, const_cast<Plan &>(plan));
  std::string payload = encoder.payload();
  std::string out(kMagic, sizeof(kMagic));
  putInteger(out, kVersion);
  putInteger(out, uint32_t(0));
  putInteger(out, uint64_t(payload.size()));
  putInteger(out, checksum(payload));
  return out + payload;
}

bool parse(std::string_view bytes, Plan &plan, std::string &error) {
  if (bytes.size() < kHeaderBytes ||
      std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    error = "not a plan: expected a header that begins with PIPRPLAN";
    return false;
  }
  uint32_t version = getInteger<uint32_t>(bytes.data() + 8);
  if (version != kVersion) {
    error = "expected plan version " + std::to_string(kVersion) + ", got " +
            std::to_string(version);
    return false;
  }
  std::string_view payload = bytes.substr(kHeaderBytes);
  uint64_t length = getInteger<uint64_t>(bytes.data() + 16);
  if (getInteger<uint32_t>(bytes.data() + 12) != 0 ||
      length != payload.size()) {
    error = "plan is damaged: expected a payload of " + std::to_string(length) +
            " bytes, got " + std::to_string(payload.size());
    return false;
  }
  if (getInteger<uint64_t>(bytes.data() + 24) != checksum(payload)) {
    error = "plan is damaged: its checksum does not match";
    return false;
  }
  Decoder decoder(payload);
  plan = Plan();
  visit(decoder, plan);
  decoder.finish();
  if (!decoder.error.empty()) {
    error = "plan is damaged: " + decoder.error;
    return false;
  }
  return validate(plan, error);
}

} // namespace piper::plan
