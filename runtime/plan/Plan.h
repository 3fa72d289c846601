// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plan: what the runtime executes. Plain data, no MLIR and no torch, shared
// by the exporter pass (which fills it) and by the runtime (which reads it).
//
// One plan describes the whole cluster. Ranks that do the same form a class;
// what differs between the ranks of a class is only their position in the
// communicators, which addresses may depend on.
#ifndef PIPER_RUNTIME_PLAN_PLAN_H
#define PIPER_RUNTIME_PLAN_PLAN_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace piper::plan {

/// Bumped whenever the meaning or the encoding of a record changes.
constexpr uint32_t kVersion = 2;

//===----------------------------------------------------------------------===//
// Element types
//===----------------------------------------------------------------------===//

/// Storage types. I1 is one byte per element with the value 0 or 1.
enum class DType : uint8_t { F32, F64, BF16, F16, I64, I32, I16, I8, I1 };
constexpr unsigned kNumDTypes = 9;

/// Bytes of one element.
size_t byteWidth(DType type);
/// "f32", "bf16", … as written in dumps and in Python.
const char *name(DType type);

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

enum class Space : uint8_t {
  /// Working memory of a rank, planned at compile time. Its contents survive
  /// between runs (a gradient stays until the next run writes there).
  Arena,
  /// Persistent memory of a rank: parameters, moments, buffers. Zero when a
  /// program is loaded; the host writes the initial values.
  State,
  /// A host tensor given to each run; `index` is the input's number. Only this
  /// rank's process sees it, so no communication reads or writes it.
  Input,
  /// A small area of a rank: scalars written by the host before a run and
  /// values the host reads after it.
  Scalar,
  /// Scratch of the stream that executes the action. A Launch hands it to its
  /// kernel, so nothing there outlives one action.
  Workspace,
};
constexpr unsigned kNumSpaces = 5;

/// Byte address = base(space, index) + offset + position(communicator) *
/// stride, where position is this rank's index inside its group of
/// `communicator` (no communicator: -1, and the stride must be 0). Input
/// offsets count from the start of the GLOBAL tensor: a host that holds only
/// its own rows passes (own pointer - own first row * row bytes).
struct Address {
  Space space = Space::Arena;
  uint32_t index = 0;
  uint64_t offset = 0;
  int32_t communicator = -1;
  uint64_t stride = 0;
};

//===----------------------------------------------------------------------===//
// Actions
//===----------------------------------------------------------------------===//

/// What each action reads from `addresses` and `imm`. Use the functions of
/// Actions.h to build them; they keep the order right.
enum class Opcode : uint8_t {
  /// addresses: the kernel's pointers in order (arguments, then results),
  /// without the workspace, which the runtime appends. imm: kernel number.
  Launch,
  /// addresses: dst, src. imm: bytes.
  Copy,
  /// addresses: dst. imm: bytes.
  FillZero,
  /// addresses: dst, src. imm: dtype, count, mode. dst = base + src, where base
  /// is 0 in mode kAccumulateWrite, dst in mode kAccumulateAdd, and otherwise
  /// mode is the number of a flag: 0 if that flag is set in this run, else dst.
  Accumulate,
  /// imm: event. Marks that everything before it in this stream is done. It
  /// marks even if its predicate does not hold (skipped work is done), so no
  /// Wait can hang on it. An event is recorded once per entry.
  Record,
  /// imm: event. Waits until the event of this rank is recorded in this run.
  Wait,
  /// addresses: src. imm: communicator, bytes. Posts a message and returns;
  /// never waits for the receiver. The communicator's groups are [from, to].
  /// src stays untouched until the message is acknowledged (Release). The end
  /// of an entry releases all messages of the rank.
  Send,
  /// addresses: dst. imm: communicator, bytes. Waits for the next message of
  /// the channel, copies it and acknowledges it.
  Recv,
  /// imm: communicator, k. Waits until the receiver acknowledged message k:
  /// the k-th Send (from 0) of this channel in this entry, as listed. If that
  /// Send was skipped by its predicate there is nothing to wait for.
  Release,
  /// The collectives. addresses: src, dst. imm: communicator, dtype, count,
  /// reduction, root. Every member of the group takes part, in one order.
  /// Reductions add in the order of positions 0, 1, 2, …, so every member and
  /// every run gets the same bits. bf16 and f16 are summed in f32.
  ///
  /// dst[0:count] = reduction over members of src[0:count]. dst may be src.
  AllReduce,
  /// src holds groupSize * count elements, dst count: member p gets the
  /// reduction of elements [p * count, (p + 1) * count). dst may be
  /// src + p * count elements.
  ReduceScatter,
  /// src holds count elements, dst groupSize * count, in the order of
  /// positions. src may be dst + p * count elements.
  AllGather,
  /// dst[0:count] of every member = src of the member at position `root`.
  /// src is read on the root only. dst may be src.
  Broadcast,
  /// src and dst hold groupSize * count elements: part q of member p's dst is
  /// part p of member q's src. dst and src are disjoint.
  AllToAll,
};
constexpr unsigned kNumOpcodes = 14;

/// "launch", "all_reduce", … as written in dumps and traces.
const char *name(Opcode opcode);
bool isCollective(Opcode opcode);

enum class Reduction : uint8_t { Sum, Max };
constexpr unsigned kNumReductions = 2;
const char *name(Reduction reduction);

/// Modes of Accumulate besides flag numbers.
constexpr uint64_t kAccumulateAdd = ~uint64_t(0);
constexpr uint64_t kAccumulateWrite = ~uint64_t(0) - 1;

/// A predicate is 0 (always), or 1 + number of the flag that must be set;
/// with kPredicateNegated, that must not be set.
constexpr uint32_t kPredicateNegated = uint32_t(1) << 31;

struct Action {
  Opcode opcode = Opcode::Launch;
  uint32_t predicate = 0;
  std::vector<Address> addresses;
  std::vector<uint64_t> imm;
  /// What people see in traces and errors.
  std::string label;
  /// Source location, "" if none.
  std::string where;
};

//===----------------------------------------------------------------------===//
// The cluster
//===----------------------------------------------------------------------===//

/// A compiled function `void name(void *const *args)`.
struct Kernel {
  std::string name;
  uint64_t workspaceBytes = 0;
  /// Bytes that the kernel may touch behind each pointer (arguments, results;
  /// without the workspace). Bounds every access and gives the arena's peak.
  std::vector<uint64_t> pointerBytes;
};

/// Disjoint groups of ranks. A rank's position is its index inside its group.
/// A channel (Send, Recv, Release) is a communicator whose groups are
/// [from, to]. One rank's collectives on one communicator all belong to one
/// stream of an entry, as do its Sends and its Recvs: concurrent use needs two
/// communicators, which may have equal groups.
struct Communicator {
  std::string name;
  std::vector<std::vector<uint32_t>> groups;
};

struct Stream {
  std::string name;
  uint64_t workspaceBytes = 0;
  /// Cores it may use, 0 = any.
  uint32_t cores = 0;
};

/// One planned buffer, for reports and pictures; the runtime does not read it.
struct BufferInfo {
  std::string label;
  /// "activation", "gradient", "communication", …: free text.
  std::string kind;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  /// First and last action of its lifetime, counted over the entry "step" of
  /// the class in the exporter's order.
  uint64_t firstAction = 0;
  uint64_t lastAction = 0;
  /// The same two by stream and place in the stream's list.
  uint32_t firstStream = 0, lastStream = 0;
  uint64_t firstIndex = 0, lastIndex = 0;
};

/// One list of actions per stream.
using StreamActions = std::vector<std::vector<Action>>;

struct RankClass {
  std::vector<uint32_t> ranks;
  uint64_t arenaBytes = 0;
  uint64_t stateBytes = 0;
  uint64_t scalarBytes = 0;
  /// Largest arena end that an entry touches, as planned.
  uint64_t peakBytes = 0;
  uint32_t numEvents = 0;
  std::vector<Stream> streams;
  /// By entry name ("step", "evaluate"). A class may lack an entry that
  /// concerns only others.
  std::map<std::string, StreamActions> entries;
  std::vector<BufferInfo> buffers;
};

enum class StateKind : uint8_t {
  Parameter,
  Buffer,
  Moment,
  Gradient,
  Constant
};
constexpr unsigned kNumStateKinds = 5;
const char *name(StateKind kind);

/// Where the ranks of one class hold a part of a state: `repeat` runs of
/// `count` elements, contiguous in memory from `byteOffset` of `space` (Arena
/// or State). Run r of the rank at position p starts at element
///   elementOffset + p * elementStride + r * repeatStride
/// of the flattened tensor; elements outside the tensor are padding. So a
/// replicated tensor is {offset 0, count numel}; shard p of a flat bucket in
/// which the tensor begins at element a is {-a, shard, communicator, shard};
/// columns of a matrix are `repeat` = rows.
struct StateSegment {
  uint32_t rankClass = 0;
  Space space = Space::State;
  uint64_t byteOffset = 0;
  int64_t elementOffset = 0;
  uint64_t count = 0;
  int32_t communicator = -1;
  uint64_t elementStride = 0;
  uint64_t repeat = 1;
  uint64_t repeatStride = 0;
};

/// A named tensor that the host may read and write. Of several ranks that hold
/// an element the lowest is read; writing writes all.
struct State {
  std::string name;
  StateKind kind = StateKind::Parameter;
  DType dtype = DType::F32;
  std::vector<uint64_t> shape;
  std::vector<StateSegment> segments;
};

/// A host tensor given to each run. One that is not divided by rows has rows=1.
struct Input {
  std::string name;
  DType dtype = DType::F32;
  uint64_t rowBytes = 0;
  /// Rows of the global tensor.
  uint64_t rows = 0;
};

/// A host value (F32, F64, I64 or I32) stored at `offset` of the Scalar space
/// of every rank before a run. Kept from run to run until given again;
/// initially 0.
struct Scalar {
  std::string name;
  DType dtype = DType::F32;
  uint64_t offset = 0;
};

/// A value that the host reads after a run: `count` elements at `address` on
/// the ranks of the class. Named outputs may have several entries, one per
/// class; a rank whose class has none returns none.
struct Output {
  std::string name;
  DType dtype = DType::F32;
  uint32_t rankClass = 0;
  Address address;
  std::vector<uint64_t> shape;
};

struct Plan {
  uint32_t worldSize = 0;
  /// Names of the flags that a run may set; at most 64.
  std::vector<std::string> flags;
  std::vector<Kernel> kernels;
  std::vector<Communicator> communicators;
  /// Every rank belongs to exactly one class.
  std::vector<RankClass> classes;
  std::vector<State> states;
  std::vector<Input> inputs;
  std::vector<Scalar> scalars;
  std::vector<Output> outputs;
};

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// The binary form: magic, version, length, checksum, little-endian records.
/// Equal plans give equal bytes.
std::string serialize(const Plan &plan);

/// Reads the binary form and validates it. On failure returns false, says why
/// in `error` and leaves `plan` unspecified. Never crashes, whatever the bytes.
bool parse(std::string_view bytes, Plan &plan, std::string &error);

/// Checks every index, offset, extent and count against what it refers to, that
/// members of a group issue matching collectives, and that sends meet receives.
bool validate(const Plan &plan, std::string &error);

/// Readable text, one line per record, for people and tests.
std::string dump(const Plan &plan);

//===----------------------------------------------------------------------===//
// Look-ups
//===----------------------------------------------------------------------===//

/// Number of the class of `rank`, or -1.
int64_t classOf(const Plan &plan, uint32_t rank);

/// Group of `rank` and its position there; false if the rank has none.
bool findPosition(const Communicator &communicator, uint32_t rank,
                  uint32_t &group, uint32_t &position);

/// Product of a shape's dimensions, saturating at the largest uint64_t.
uint64_t numElements(const std::vector<uint64_t> &shape);

} // namespace piper::plan

#endif // PIPER_RUNTIME_PLAN_PLAN_H
