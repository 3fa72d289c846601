// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// piper._runtime: the executor as Python sees it. Memory crosses as addresses;
// python/piper/execution.py checks dtypes and shapes.
#include "runtime/BindingsKernel.h"
#include "runtime/BindingsSimulate.h"
#include "runtime/Executor.h"
#include "runtime/Fingerprint.h"
#include "runtime/StateAccess.h"
#include "runtime/cpu/CpuDevice.h"
#include "runtime/delay/DelayDevice.h"

#include <atomic>
#include <mutex>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace piper;
using namespace piper::runtime;

namespace {

/// The Python class to raise for RankLost, set by piper.execution.
PyObject *rankLostClass = nullptr;
/// Whether this process already raises it somewhere.
std::atomic<bool> lossRaised{false};

void raiseRankLost(const char *message) {
  lossRaised.store(true);
  PyObject *type = rankLostClass ? rankLostClass : PyExc_RuntimeError;
  PyObject *value = PyObject_CallFunction(type, "s", message);
  if (!value)
    return;
  PyErr_SetObject(type, value);
  Py_DECREF(value);
}

/// Runs in the main thread: interrupts whatever Python code is there.
int interruptMainThread(void *) {
  // Without a frame the interpreter is about to end, and would call the error
  // one of its own.
  if (lossRaised.load() || !PyEval_GetFrame())
    return 0;
  raiseRankLost("a rank was lost between runs");
  return -1;
}

struct ParsedPlan {
  std::shared_ptr<const plan::Plan> plan;
  uint64_t sum = 0;
};

ParsedPlan parsePlan(nb::bytes bytes) {
  auto plan = std::make_shared<plan::Plan>();
  std::string error;
  std::string_view view(bytes.c_str(), bytes.size());
  if (!plan::parse(view, *plan, error))
    throw nb::value_error(error.c_str());
  // The header's checksum of the payload identifies the plan.
  uint64_t sum = 0;
  for (size_t i = 0; i < 8; ++i)
    sum |= uint64_t(static_cast<unsigned char>(view[24 + i])) << (8 * i);
  return {plan, sum};
}

/// {name: {...}} descriptions that Python checks arguments against.
nb::dict describePlan(const plan::Plan &plan) {
  nb::dict result;
  result["world_size"] = plan.worldSize;
  nb::list flags, inputs, scalars, states, outputs, classes;
  for (const std::string &flag : plan.flags)
    flags.append(flag);
  for (const plan::Input &input : plan.inputs)
    inputs.append(nb::make_tuple(input.name, plan::name(input.dtype),
                                 input.rowBytes, input.rows));
  for (const plan::Scalar &scalar : plan.scalars)
    scalars.append(nb::make_tuple(scalar.name, plan::name(scalar.dtype)));
  for (const plan::State &state : plan.states) {
    nb::list shape;
    for (uint64_t dim : state.shape)
      shape.append(dim);
    states.append(nb::make_tuple(state.name, plan::name(state.kind),
                                 plan::name(state.dtype), nb::tuple(shape)));
  }
  for (const plan::Output &output : plan.outputs) {
    nb::list shape;
    for (uint64_t dim : output.shape)
      shape.append(dim);
    outputs.append(nb::make_tuple(output.name, plan::name(output.dtype),
                                  output.rankClass, nb::tuple(shape)));
  }
  std::map<std::string, bool> entries;
  for (const plan::RankClass &rankClass : plan.classes) {
    nb::dict info;
    nb::list ranks, buffers;
    for (uint32_t rank : rankClass.ranks)
      ranks.append(rank);
    for (const plan::BufferInfo &buffer : rankClass.buffers)
      buffers.append(nb::make_tuple(
          buffer.label, buffer.kind, buffer.offset, buffer.bytes,
          buffer.firstAction, buffer.lastAction, buffer.firstStream,
          buffer.firstIndex, buffer.lastStream, buffer.lastIndex));
    info["ranks"] = ranks;
    info["arena_bytes"] = rankClass.arenaBytes;
    info["peak_bytes"] = rankClass.peakBytes;
    info["state_bytes"] = rankClass.stateBytes;
    info["buffers"] = buffers;
    classes.append(info);
    for (const auto &entry : rankClass.entries)
      entries[entry.first] = true;
  }
  nb::list entryNames;
  for (const auto &entry : entries)
    entryNames.append(entry.first);
  result["flags"] = flags;
  result["inputs"] = inputs;
  result["scalars"] = scalars;
  result["states"] = states;
  result["outputs"] = outputs;
  result["classes"] = classes;
  result["entries"] = entryNames;
  return result;
}

/// Looks at Python's signals while C++ waits.
class SignalCheck {
public:
  bool operator()() {
    if (raised)
      return true;
    nb::gil_scoped_acquire acquire;
    raised = PyErr_CheckSignals() != 0;
    return raised;
  }
  bool raised = false;
};

class Program {
public:
  Program(const ParsedPlan &parsed,
          const std::vector<std::pair<std::string, nb::bytes>> &objects,
          std::vector<uint32_t> ranks, double timeout,
          const std::optional<DelayCosts> &costs) {
    std::shared_ptr<Device> device;
    if (costs)
      device = std::make_shared<DelayDevice>(*costs, *parsed.plan);
    else
      device = std::make_shared<CpuDevice>();
    for (const auto &[name, bytes] : objects)
      device->loadObject(name, {bytes.c_str(), bytes.size()});
    WorldOptions options;
    options.timeoutSeconds = timeout;
    options.onLoss = [] { Py_AddPendingCall(interruptMainThread, nullptr); };
    executor = std::make_unique<Executor>(parsed.plan, parsed.sum, device,
                                          std::move(ranks), options);
  }

  std::vector<std::string> handles() { return executor->world().handles(); }
  void connect(const std::vector<std::string> &handles) {
    nb::gil_scoped_release release;
    executor->connect(handles);
  }

  /// inputs: (address, bytes, first byte); scalars: (number, real, integer).
  void run(const std::string &entry, uint64_t flags,
           const std::vector<std::tuple<uintptr_t, uint64_t, uint64_t>> &inputs,
           const std::vector<std::tuple<uint32_t, double, int64_t>> &scalars,
           bool trace) {
    std::vector<HostTensor> tensors;
    for (const auto &[address, bytes, firstByte] : inputs)
      tensors.push_back({reinterpret_cast<char *>(address), bytes, firstByte});
    std::vector<ScalarValue> values;
    for (const auto &[number, real, integer] : scalars)
      values.push_back({number, real, integer});
    guarded([&](const Interrupt &interrupt) {
      executor->run(entry, flags, tensors, values, trace, interrupt);
    });
  }

  void barrier() {
    guarded([&](const Interrupt &interrupt) {
      executor->world().barrier(interrupt);
    });
  }

  /// What the hosts of all processes give, by rank; see World::exchange.
  nb::list exchange(nb::bytes mine) {
    std::string given(mine.c_str(), mine.size());
    return told([&](const Interrupt &interrupt) {
      return executor->world().exchange(given, interrupt);
    });
  }

  /// See World::offer, collect and stopDiffering.
  bool offer(nb::bytes mine) {
    return executor->world().offer(std::string(mine.c_str(), mine.size()));
  }
  nb::list collect() {
    return told([&](const Interrupt &interrupt) {
      return executor->world().collect(interrupt);
    });
  }
  void stopDiffering() { executor->world().stopDiffering(); }
  bool differs() { return executor->world().differs(); }

  /// The state as bytes of the whole tensor. All ranks must be between runs.
  void readState(const std::string &name, uintptr_t tensor) {
    uint32_t number = findState(executor->plan(), name);
    nb::gil_scoped_release release;
    runtime::readState(executor->world(), number,
                       reinterpret_cast<char *>(tensor));
  }
  /// The same from one rank; false if it does not hold all of the state.
  bool readCopy(const std::string &name, uint32_t rank, uintptr_t tensor) {
    uint32_t number = findState(executor->plan(), name);
    nb::gil_scoped_release release;
    return runtime::readCopy(executor->world(), rank, number,
                             reinterpret_cast<char *>(tensor));
  }
  void writeState(const std::string &name, uintptr_t tensor) {
    uint32_t number = findState(executor->plan(), name);
    nb::gil_scoped_release release;
    runtime::writeState(executor->world(), number,
                        reinterpret_cast<const char *>(tensor));
  }

  /// By the timelines of a device that keeps them, in seconds.
  double duration() const { return double(executor->durationNs()) * 1e-9; }

  nb::object output(const std::string &name, uint64_t bytes) {
    const char *data = executor->output(name);
    if (!data)
      return nb::none();
    return nb::bytes(data, bytes);
  }

  /// (rank, stream, action, opcode, label, where, begin, end, waited) of the
  /// last traced run.
  nb::list trace(const std::string &entry) {
    nb::list result;
    for (const std::unique_ptr<LocalRank> &rank : executor->ranks()) {
      const plan::RankClass &rankClass =
          executor->world().classOf(rank->rank());
      auto it = rankClass.entries.find(entry);
      if (it == rankClass.entries.end())
        continue;
      for (size_t s = 0; s < rank->numStreams(); ++s)
        for (const TraceEvent &event : rank->trace(s)) {
          const plan::Action &action = it->second[s][event.action];
          result.append(nb::make_tuple(rank->rank(), rank->streamName(s),
                                       event.action, plan::name(action.opcode),
                                       action.label, action.where, event.begin,
                                       event.end, event.waited));
        }
    }
    return result;
  }

  /// (rank, stream, actions, skipped, waited ns, arena end).
  nb::list stats() {
    nb::list result;
    for (const std::unique_ptr<LocalRank> &rank : executor->ranks())
      for (size_t s = 0; s < rank->numStreams(); ++s) {
        const StreamStats &stats = rank->stats(s);
        result.append(nb::make_tuple(rank->rank(), rank->streamName(s),
                                     stats.actions, stats.skipped,
                                     stats.waitedNs, stats.arenaEnd));
      }
    return result;
  }

  void fail(const std::string &message) {
    World &world = executor->world();
    world.abort(world.localRanks()[0], FailureKind::Failed, message);
  }

  /// Whether a rank of the job has failed: nothing runs any more.
  bool hasFailed() {
    return executor->world().failure() != nullptr ||
           executor->world().differs();
  }

  void close() {
    nb::gil_scoped_release release;
    std::unique_lock<std::mutex> lock(busy, std::try_to_lock);
    if (!lock.owns_lock()) {
      // Another thread is in a run: end that first.
      World &world = executor->world();
      world.abort(world.localRanks()[0], FailureKind::Interrupted,
                  "the program was closed during a run");
      lock.lock();
    }
    executor->close();
  }

private:
  /// Calls `work` without the interpreter lock, once at a time, and turns a
  /// signal that arrives meanwhile into its Python exception.
  template <typename Fn> void guarded(Fn work) {
    std::unique_lock<std::mutex> lock(busy, std::try_to_lock);
    if (!lock.owns_lock())
      throw Error("another thread runs this program");
    SignalCheck check;
    try {
      nb::gil_scoped_release release;
      work([&check] { return check(); });
    } catch (const Interrupted &) {
      if (check.raised)
        throw nb::python_error();
      throw;
    }
  }

  /// What `work` hears from the others, by rank.
  template <typename Fn> nb::list told(Fn work) {
    std::vector<std::string> texts;
    guarded([&](const Interrupt &interrupt) { texts = work(interrupt); });
    nb::list result;
    for (const std::string &text : texts)
      result.append(nb::bytes(text.data(), text.size()));
    return result;
  }

  std::mutex busy;
  std::unique_ptr<Executor> executor;
};

} // namespace

NB_MODULE(_runtime, m) {
  m.doc() = "Executes plans of Piper.";
  // A traceback that still holds a program when the interpreter ends is no leak
  // that a user could mend.
  nb::set_leak_warnings(false);
  nb::register_exception_translator(
      [](const std::exception_ptr &pointer, void *) {
        try {
          std::rethrow_exception(pointer);
        } catch (const RankLost &error) {
          raiseRankLost(error.what());
        }
      });
  nb::register_exception_translator(
      [](const std::exception_ptr &pointer, void *) {
        try {
          std::rethrow_exception(pointer);
        } catch (const Error &error) {
          PyErr_SetString(PyExc_RuntimeError, error.what());
        } catch (const Interrupted &error) {
          PyErr_SetString(PyExc_RuntimeError, error.what());
        }
      });
  bindKernel(m);
  m.attr("PLAN_VERSION") = plan::kVersion;
  m.def(
      "set_rank_lost",
      [](nb::object cls) { rankLostClass = cls.release().ptr(); },
      nb::arg("cls"),
      "Sets the exception class, called with a message, for a lost rank.");
  nb::class_<ParsedPlan>(m, "Plan", "A validated plan.")
      .def_static("parse", &parsePlan, nb::arg("bytes"))
      .def("describe",
           [](const ParsedPlan &parsed) { return describePlan(*parsed.plan); })
      .def("dump",
           [](const ParsedPlan &parsed) { return plan::dump(*parsed.plan); });
  m.def(
      "fingerprint",
      [](const std::vector<std::pair<uintptr_t, uint64_t>> &tensors,
         uint64_t limit) {
        nb::gil_scoped_release release;
        uint64_t hash = 0;
        for (const auto &[address, bytes] : tensors)
          hash = fingerprint(reinterpret_cast<const char *>(address), bytes,
                             limit, hash);
        return hash;
      },
      nb::arg("tensors"), nb::arg("limit"),
      "A hash of the bytes of tensors, (address, bytes) each, in this order; "
      "of "
      "one with more than `limit` bytes, of so many that lie all over it.");
  nb::class_<DelayCosts>(m, "DelayCosts",
                         "How long kernels, links and memory take.")
      .def(
          "__init__",
          [](DelayCosts *costs,
             const std::vector<std::pair<std::string, double>> &kernels,
             const std::vector<std::tuple<std::string, double, double>> &links,
             double memory, uint32_t cores) {
            new (costs) DelayCosts{{}, {}, memory, cores};
            for (const auto &[pattern, seconds] : kernels)
              costs->kernels.push_back({pattern, seconds});
            for (const auto &[pattern, latency, bandwidth] : links)
              costs->links.push_back({pattern, latency, bandwidth});
          },
          nb::arg("kernels"), nb::arg("links"), nb::arg("memory_bandwidth"),
          nb::arg("cores"));
  m.def(
      "simulate",
      [](const ParsedPlan &parsed, const DelayCosts &costs,
         const std::string &entry, uint64_t flags) {
        return simulatePlan(*parsed.plan, costs, entry, flags);
      },
      nb::arg("plan"), nb::arg("costs"), nb::arg("entry"), nb::arg("flags"),
      "What an entry does when, at stated costs.");
  nb::class_<Program>(m, "Program", "A plan and its kernels, loaded.")
      .def(nb::init<const ParsedPlan &,
                    const std::vector<std::pair<std::string, nb::bytes>> &,
                    std::vector<uint32_t>, double,
                    const std::optional<DelayCosts> &>(),
           nb::arg("plan"), nb::arg("objects"), nb::arg("ranks"),
           nb::arg("timeout"), nb::arg("delays") = nb::none())
      .def("handles", &Program::handles)
      .def("connect", &Program::connect, nb::arg("handles"))
      .def("run", &Program::run, nb::arg("entry"), nb::arg("flags"),
           nb::arg("inputs"), nb::arg("scalars"), nb::arg("trace"))
      .def("duration", &Program::duration)
      .def("barrier", &Program::barrier)
      .def("exchange", &Program::exchange, nb::arg("bytes"))
      .def("offer", &Program::offer, nb::arg("bytes"))
      .def("collect", &Program::collect)
      .def("stop_differing", &Program::stopDiffering)
      .def("differs", &Program::differs)
      .def("read_state", &Program::readState, nb::arg("name"),
           nb::arg("address"))
      .def("read_copy", &Program::readCopy, nb::arg("name"), nb::arg("rank"),
           nb::arg("address"))
      .def("write_state", &Program::writeState, nb::arg("name"),
           nb::arg("address"))
      .def("output", &Program::output, nb::arg("name"), nb::arg("bytes"))
      .def("trace", &Program::trace, nb::arg("entry"))
      .def("stats", &Program::stats)
      .def("fail", &Program::fail, nb::arg("message"))
      .def("has_failed", &Program::hasFailed)
      .def("close", &Program::close);
}
