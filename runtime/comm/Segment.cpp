// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/Segment.h"

#include "runtime/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <new>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace piper::runtime {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLine = 64;

uint64_t roundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Most messages that one run of any entry sends on a channel, rounded up to a
/// power of two; 0 if it sends none.
uint32_t ringCapacity(const plan::RankClass &rankClass, uint32_t channel) {
  uint32_t most = 0;
  for (const auto &entry : rankClass.entries) {
    uint32_t sends = 0;
    for (const std::vector<plan::Action> &actions : entry.second)
      for (const plan::Action &action : actions)
        sends +=
            action.opcode == plan::Opcode::Send && action.imm[0] == channel;
    most = std::max(most, sends);
  }
  uint32_t capacity = most ? 1 : 0;
  while (capacity < most)
    capacity *= 2;
  return capacity;
}

[[noreturn]] void fail(uint32_t rank, const char *what) {
  throw Error("rank " + std::to_string(rank) + ": " + what + ": " +
              std::strerror(errno));
}

char *map(int fd, uint64_t bytes, uint32_t rank) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED)
    fail(rank, "cannot map the memory of a rank");
  // Children that the host forks (data loaders) must not keep the memory alive.
  madvise(memory, bytes, MADV_DONTFORK);
  return static_cast<char *>(memory);
}

} // namespace

SegmentLayout SegmentLayout::of(const plan::Plan &plan, uint32_t rank) {
  const plan::RankClass &rankClass = plan.classes[plan::classOf(plan, rank)];
  size_t numCommunicators = plan.communicators.size();
  SegmentLayout layout;
  layout.groups.resize(numCommunicators);
  layout.channels.resize(numCommunicators);
  layout.capacities.resize(numCommunicators);
  uint64_t end = roundUp(sizeof(RankHeader), kLine);
  layout.statuses = end;
  end += rankClass.streams.size() * sizeof(StreamStatus);
  for (uint32_t c = 0; c < numCommunicators; ++c) {
    uint32_t group = 0, position = 0;
    if (!plan::findPosition(plan.communicators[c], rank, group, position) ||
        position != 0)
      continue;
    uint64_t size = plan.communicators[c].groups[group].size();
    layout.groups[c] = end;
    end += sizeof(GroupState) + 2 * size * sizeof(MemberSlot);
    layout.capacities[c] = ringCapacity(rankClass, c);
    if (layout.capacities[c]) {
      layout.channels[c] = end;
      end += sizeof(ChannelState) +
             roundUp(layout.capacities[c] * sizeof(Message), kLine);
    }
  }
  layout.scalar = roundUp(end, kPage);
  layout.state = roundUp(layout.scalar + rankClass.scalarBytes, kPage);
  layout.arena = roundUp(layout.state + rankClass.stateBytes, kPage);
  layout.total = roundUp(layout.arena + rankClass.arenaBytes, kPage);
  return layout;
}

std::string SegmentHandle::encode() const {
  std::ostringstream out;
  out << rank << " " << pid << " " << fd << " " << startTime << " " << bytes;
  return out.str();
}

SegmentHandle SegmentHandle::decode(const std::string &text) {
  SegmentHandle handle;
  std::istringstream in(text);
  if (!(in >> handle.rank >> handle.pid >> handle.fd >> handle.startTime >>
        handle.bytes))
    throw Error("expected the handle of a segment, got '" + text + "'");
  return handle;
}

uint64_t processStartTime(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  // The command's name may hold anything; fields count from the last ')'.
  size_t end = text.rfind(')');
  if (end == std::string::npos)
    return 0;
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  for (int i = 3; i < 22 && fields; ++i)
    fields >> field;
  uint64_t startTime = 0;
  fields >> startTime;
  return startTime;
}

Segment Segment::create(uint32_t rank, const SegmentLayout &layout) {
  Segment segment;
  segment.offsets = layout;
  int fd = memfd_create("piper", MFD_CLOEXEC);
  if (fd < 0)
    fail(rank, "cannot create the memory of a rank");
  segment.file = {rank, getpid(), fd, processStartTime(getpid()), layout.total};
  if (ftruncate(fd, off_t(layout.total)) != 0)
    fail(rank, "cannot size the memory of a rank");
  segment.memory = map(fd, layout.total, rank);
  new (segment.memory) RankHeader();
  return segment;
}

Segment Segment::open(const SegmentHandle &handle,
                      const SegmentLayout &layout) {
  if (handle.bytes != layout.total)
    throw Error("rank " + std::to_string(handle.rank) +
                " runs another plan: expected a segment of " +
                std::to_string(layout.total) + " bytes, got " +
                std::to_string(handle.bytes));
  Segment segment;
  segment.offsets = layout;
  segment.file = handle;
  segment.file.fd = -1;
  std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" +
                     std::to_string(handle.fd);
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat info;
  if (fd < 0 || processStartTime(handle.pid) != handle.startTime ||
      fstat(fd, &info) != 0 || uint64_t(info.st_size) != layout.total) {
    int code = errno;
    if (fd >= 0)
      close(fd);
    throw RankLost("rank " + std::to_string(handle.rank) + " (process " +
                   std::to_string(handle.pid) +
                   ") went away while the ranks met: " + std::strerror(code));
  }
  segment.memory = map(fd, layout.total, handle.rank);
  close(fd);
  return segment;
}

Segment &Segment::operator=(Segment &&other) noexcept {
  std::swap(offsets, other.offsets);
  std::swap(file, other.file);
  std::swap(memory, other.memory);
  return *this;
}

Segment::~Segment() {
  if (memory)
    munmap(memory, offsets.total);
  if (file.fd >= 0)
    close(file.fd);
}

char *Segment::space(plan::Space space) const {
  switch (space) {
  case plan::Space::Arena:
    return memory + offsets.arena;
  case plan::Space::State:
    return memory + offsets.state;
  case plan::Space::Scalar:
    return memory + offsets.scalar;
  case plan::Space::Input:
  case plan::Space::Workspace:
    break;
  }
  return nullptr;
}

} // namespace piper::runtime
