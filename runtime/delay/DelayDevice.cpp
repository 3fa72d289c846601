// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/delay/DelayDevice.h"

#include "runtime/Error.h"
#include "runtime/delay/DelayStream.h"

#include <cmath>
#include <fnmatch.h>
#include <set>

namespace piper::runtime {
namespace {

constexpr uint64_t kNoTime = 0;
constexpr Link kNoLink;

bool matches(const std::string &pattern, const std::string &text) {
  return fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE) == 0;
}

uint64_t nanoseconds(double seconds, const std::string &what) {
  // A century; keeps sums of times far from overflow.
  if (!(seconds >= 0 && seconds <= 3e9))
    throw Error(what + ": expected a number of seconds, got " +
                std::to_string(seconds));
  return uint64_t(std::llround(seconds * 1e9));
}

double nanosecondsPerByte(double bytesPerSecond, const std::string &what) {
  if (!(bytesPerSecond > 0))
    throw Error(what + ": expected bytes per second above 0, got " +
                std::to_string(bytesPerSecond));
  return 1e9 / bytesPerSecond;
}

[[noreturn]] void matchesNothing(const std::string &pattern,
                                 const std::string &what,
                                 const std::set<std::string> &names) {
  std::string text = "pattern '" + pattern + "' matches none of the plan's " +
                     what + ": these are";
  size_t shown = 0;
  for (const std::string &name : names) {
    if (++shown > 8) {
      text += ", …";
      break;
    }
    text += (shown == 1 ? " '" : ", '") + name + "'";
  }
  throw Error(names.empty() ? "pattern '" + pattern +
                                  "' matches nothing: the plan has no " + what
                            : text);
}

} // namespace

DelayDevice::DelayDevice(const DelayCosts &costs, const plan::Plan &plan) {
  for (const DelayCosts::KernelCost &cost : costs.kernels)
    kernels.push_back(
        {cost.pattern,
         nanoseconds(cost.seconds, "kernels '" + cost.pattern + "'")});
  for (const DelayCosts::LinkCost &cost : costs.links) {
    std::string what = "links '" + cost.pattern + "'";
    links.push_back({cost.pattern,
                     {nanoseconds(cost.latencySeconds, what + ", latency"),
                      nanosecondsPerByte(cost.bytesPerSecond, what)}});
  }
  memoryNsPerByte =
      nanosecondsPerByte(costs.memoryBytesPerSecond, "memory bandwidth");
  cores = costs.cores;
  checkPatterns(plan);
  checkBudgets(plan);
}

void DelayDevice::checkBudgets(const plan::Plan &plan) const {
  for (const plan::RankClass &rankClass : plan.classes) {
    uint64_t budgets = 0;
    for (const plan::Stream &stream : rankClass.streams)
      budgets += stream.cores;
    if (cores != 0 && budgets > cores)
      throw Error("rank " + std::to_string(rankClass.ranks.front()) +
                  ": expected budgets of at most " + std::to_string(cores) +
                  " cores, got streams with " + std::to_string(budgets) +
                  " together");
  }
}

uint64_t DelayDevice::launchTime(const void *kernel, uint32_t budget) const {
  uint64_t time = *static_cast<const uint64_t *>(kernel);
  if (cores == 0 || budget == 0)
    return time;
  return uint64_t(std::llround(double(time) * cores / budget));
}

void DelayDevice::checkPatterns(const plan::Plan &plan) const {
  std::set<std::string> labels, names;
  std::set<const void *> used;
  for (const plan::RankClass &rankClass : plan.classes)
    for (const auto &entry : rankClass.entries)
      for (const std::vector<plan::Action> &actions : entry.second)
        for (const plan::Action &action : actions)
          if (action.opcode == plan::Opcode::Launch) {
            const std::string &symbol = plan.kernels[action.imm[0]].name;
            labels.insert(action.label.empty() ? symbol : action.label);
            // One that only the patterns before it hide is no mistake.
            for (const KernelTime &time : kernels)
              if (matches(time.pattern, action.label) ||
                  matches(time.pattern, symbol))
                used.insert(&time);
          }
  for (const plan::Communicator &communicator : plan.communicators) {
    names.insert(communicator.name);
    for (const NamedLink &link : links)
      if (matches(link.pattern, communicator.name))
        used.insert(&link);
  }
  for (const KernelTime &time : kernels)
    if (!used.count(&time))
      matchesNothing(time.pattern, "launches", labels);
  for (const NamedLink &link : links)
    // A default may stand where there is nothing to be a default of.
    if (!used.count(&link) && link.pattern != "*")
      matchesNothing(link.pattern, "communicators", names);
}

void DelayDevice::loadObject(const std::string &, std::string_view) {}

const void *DelayDevice::findKernel(const std::string &symbol,
                                    const std::string &label) const {
  for (const KernelTime &time : kernels)
    if (matches(time.pattern, label) || matches(time.pattern, symbol))
      return &time.nanoseconds;
  return &kNoTime;
}

const Link *DelayDevice::link(const std::string &communicator) const {
  for (const NamedLink &named : links)
    if (matches(named.pattern, communicator))
      return &named.link;
  return &kNoLink;
}

std::unique_ptr<DeviceStream>
DelayDevice::createStream(const StreamOptions &options) {
  return std::make_unique<DelayStream>(*this, options);
}

} // namespace piper::runtime
