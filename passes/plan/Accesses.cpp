// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Accesses.cpp - what memory an action touches -----------------------===//

#include "passes/plan/Accesses.h"
#include "passes/plan/Sizes.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace piper;

PlanTables::PlanTables(ModuleOp module) {
  for (auto kernel : module.getOps<KernelOp>())
    kernels[kernel.getNameAttr()] = kernel;
  for (auto communicator : module.getOps<CommunicatorOp>())
    communicators[communicator.getSymNameAttr()] = communicator;
}

namespace {
class Collector {
public:
  Collector(const PlanTables &tables) : tables(tables) {}

  void add(AddressAttr address, unsigned operand, int64_t bytes, char access) {
    if (address.getSpace() == AddressSpace::input ||
        address.getSpace() == AddressSpace::workspace || bytes == 0)
      return;
    // Over all ranks of the class: up to the last position.
    int64_t end = address.getOffset() + bytes;
    if (address.getCommunicator()) {
      CommunicatorOp communicator =
          tables.lookupCommunicator(address.getCommunicator());
      int64_t members = communicator ? communicator.getMaxGroupSize() : 1;
      end += (members - 1) * address.getStride();
    }
    Access result{address.getSpace(),
                  address.getIndex(),
                  address.getOffset(),
                  end,
                  false,
                  operand};
    if (access != 'w')
      accesses.push_back(result);
    result.writes = true;
    if (access != 'r')
      accesses.push_back(result);
  }

  SmallVector<Access> accesses;

private:
  const PlanTables &tables;
};
} // namespace

/// `whole` of source and destination hold a part for each member.
template <typename OpT>
static void addCollective(Collector &collector, OpT op, int64_t sourceParts,
                          int64_t targetParts) {
  int64_t bytes = op.getCount() * getElementBytes(op.getType());
  collector.add(op.getSrc(), 0, bytes * sourceParts, 'r');
  collector.add(op.getDst(), 1, bytes * targetParts, 'w');
}

SmallVector<Access> PlanTables::getAccesses(ActionOpInterface action) const {
  Collector collector(*this);
  auto getMembers = [&](auto op) {
    CommunicatorOp found = lookupCommunicator(op.getCommunicatorAttr());
    return found ? found.getMaxGroupSize() : int64_t(1);
  };
  llvm::TypeSwitch<Operation *>(action.getOperation())
      .Case([&](LaunchOp op) {
        KernelOp kernel = lookupKernel(op.getKernelAttr());
        if (!kernel)
          return;
        ArrayRef<int64_t> bytes = kernel.getPointerBytes();
        StringRef access = kernel.getAccess();
        for (auto [i, pointer] : llvm::enumerate(op.getAddresses()))
          if (i < bytes.size())
            collector.add(pointer, i, bytes[i],
                          i < access.size() ? access[i] : 'x');
      })
      .Case([&](CopyOp op) {
        collector.add(op.getDst(), 0, op.getBytes(), 'w');
        collector.add(op.getSrc(), 1, op.getBytes(), 'r');
      })
      .Case([&](FillZeroOp op) {
        collector.add(op.getDst(), 0, op.getBytes(), 'w');
      })
      .Case([&](PlanAccumulateOp op) {
        int64_t bytes = op.getCount() * getElementBytes(op.getType());
        collector.add(op.getDst(), 0, bytes,
                      op.getMode() == "write" ? 'w' : 'x');
        collector.add(op.getSrc(), 1, bytes, 'r');
      })
      .Case([&](PlanSendOp op) {
        collector.add(op.getSrc(), 0, op.getBytes(), 'r');
      })
      .Case([&](PlanRecvOp op) {
        collector.add(op.getDst(), 0, op.getBytes(), 'w');
      })
      .Case([&](PlanAllReduceOp op) { addCollective(collector, op, 1, 1); })
      .Case([&](PlanReduceScatterOp op) {
        addCollective(collector, op, getMembers(op), 1);
      })
      .Case([&](PlanAllGatherOp op) {
        addCollective(collector, op, 1, getMembers(op));
      })
      .Case([&](PlanBroadcastOp op) {
        // Only the root reads; elsewhere the source may be anything.
        int64_t bytes = op.getCount() * getElementBytes(op.getType());
        if (op.getSrc() != op.getDst())
          collector.add(op.getSrc(), 0, bytes, 'r');
        collector.add(op.getDst(), 1, bytes, 'w');
      })
      .Case([&](PlanAllToAllOp op) {
        addCollective(collector, op, getMembers(op), getMembers(op));
      });
  return std::move(collector.accesses);
}
