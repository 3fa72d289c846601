// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/Blocks.h"

#include "runtime/comm/Reduce.h"

#include <algorithm>
#include <cstring>

namespace piper::runtime {
namespace {

constexpr uint64_t kBlockBytes = 64 << 10;
/// Slices begin on cache lines, so that no two members write one line.
constexpr uint64_t kSliceElements = 64;

} // namespace

Blocks::Blocks(const Collective &operation, std::vector<char *> sources,
               std::vector<char *> destinations)
    : operation(operation), sources(std::move(sources)),
      destinations(std::move(destinations)), size(this->sources.size()),
      width(plan::byteWidth(operation.dtype)),
      blockElements(kBlockBytes / width) {
  if (operation.opcode == plan::Opcode::AllGather ||
      operation.opcode == plan::Opcode::AllToAll)
    pieces = size;
}

uint64_t Blocks::volume(const Collective &operation, uint64_t size) {
  uint64_t bytes = operation.count * plan::byteWidth(operation.dtype) * size;
  bool wholeGroup = operation.opcode == plan::Opcode::AllGather ||
                    operation.opcode == plan::Opcode::AllToAll;
  return wholeGroup ? bytes * size : bytes;
}

uint64_t Blocks::sliceBegin(uint32_t member) const {
  if (member >= size)
    return operation.count;
  uint64_t lines = (operation.count + kSliceElements - 1) / kSliceElements;
  uint64_t line = lines / size * member + lines % size * member / size;
  return std::min(line * kSliceElements, operation.count);
}

uint32_t Blocks::ofMember(uint32_t member) const {
  uint64_t count = operation.count;
  if (operation.opcode == plan::Opcode::AllReduce)
    count = sliceBegin(member + 1) - sliceBegin(member);
  return uint32_t((count + blockElements - 1) / blockElements * pieces);
}

uint32_t Blocks::total() const {
  uint32_t sum = 0;
  for (uint32_t member = 0; member < size; ++member)
    sum += ofMember(member);
  return sum;
}

void Blocks::execute(uint32_t member, uint32_t block) const {
  uint64_t count = operation.count;
  uint64_t perPiece = (count + blockElements - 1) / blockElements;
  uint64_t piece = pieces == 1 ? 0 : block / perPiece;
  uint64_t begin = (pieces == 1 ? block : block % perPiece) * blockElements;
  uint64_t end = std::min(begin + blockElements, count);
  char *dst = destinations[member];
  switch (operation.opcode) {
  case plan::Opcode::AllReduce:
    begin += sliceBegin(member);
    end = std::min(begin + blockElements, sliceBegin(member + 1));
    return reduce(begin, end - begin, destinations.data(), size, begin);
  case plan::Opcode::ReduceScatter:
    return reduce(member * count + begin, end - begin, &destinations[member], 1,
                  begin);
  case plan::Opcode::AllGather:
    return copy(dst + (piece * count + begin) * width,
                sources[piece] + begin * width, end - begin);
  case plan::Opcode::Broadcast:
    return copy(dst + begin * width, sources[operation.root] + begin * width,
                end - begin);
  case plan::Opcode::AllToAll:
    return copy(dst + (piece * count + begin) * width,
                sources[piece] + (member * count + begin) * width, end - begin);
  default:
    return;
  }
}

void Blocks::reduce(uint64_t srcElement, uint64_t count, char *const *targets,
                    size_t numTargets, uint64_t dstElement) const {
  reduceElements(operation.dtype, operation.reduction, sources.data(), size,
                 srcElement, count, targets, numTargets, dstElement);
}

void Blocks::copy(char *dst, const char *src, uint64_t elements) const {
  if (dst != src)
    std::memcpy(dst, src, elements * width);
}

} // namespace piper::runtime
