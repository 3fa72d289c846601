// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Executes plans with hashes in place of numbers, in interleavings drawn by
// chance. Reads plans from stdin as plan_oracle.py writes them; answers a line
// for each: "sound" and a digest for each choice of flags, or what went wrong.
//
// Priorities are drawn as in Burckhardt et al., "A Randomized Scheduler with
// Probabilistic Guarantees of Finding Bugs", 2010: of the streams that can go
// on the first one does, and at a few moments it becomes the last one.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using Hash = uint64_t;

Hash mix(Hash a, Hash b) {
  Hash x = a * 0x9E3779B97F4A7C15u ^ (b + 0xD1B54A32D192ED03u);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr Hash kZero = 0;

/// Floating-point addition: commutes, zero is neutral, not associative.
Hash add(Hash a, Hash b) {
  if (a == kZero || b == kZero)
    return a == kZero ? b : a;
  return mix(mix(0xADD, std::min(a, b)), std::max(a, b));
}

enum Opcode {
  Launch,
  Copy,
  FillZero,
  Accumulate,
  Record,
  Wait,
  Send,
  Recv,
  Release,
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  AllToAll
};

enum Space { Arena, State, Scalar, Workspace, Input };

struct Operand {
  int space;
  int64_t first, words;
  char access;
};

struct Action {
  int opcode, stream, when;
  std::vector<int64_t> numbers;
  std::vector<Operand> operands;
  /// Of a send: its number on its channel.
  int64_t message = 0;
};

struct Rank {
  int number = 0;
  int64_t sizes[3] = {};
  int64_t bases[3] = {};
  int64_t words = 0;
  std::vector<Action> actions;
  std::vector<std::vector<int>> streams;
  int numEvents = 0;
};

struct Cluster {
  std::vector<std::vector<int>> groups;
  std::vector<Rank> ranks;
  /// Index of each rank.
  std::vector<int> places;
};

bool read(std::istream &in, Cluster &cluster) {
  size_t numGroups, numRanks;
  if (!(in >> numGroups >> numRanks))
    return false;
  cluster.groups.resize(numGroups);
  for (auto &group : cluster.groups) {
    size_t size;
    in >> size;
    group.resize(size);
    for (int &member : group)
      in >> member;
  }
  cluster.ranks.resize(numRanks);
  cluster.places.resize(numRanks);
  for (size_t r = 0; r < numRanks; ++r) {
    Rank &rank = cluster.ranks[r];
    size_t numStreams, numActions;
    in >> rank.number;
    for (int space = 0; space < 3; ++space) {
      in >> rank.sizes[space];
      rank.bases[space] = rank.words;
      rank.words += rank.sizes[space];
    }
    in >> numStreams >> numActions;
    cluster.places[rank.number] = int(r);
    rank.streams.resize(numStreams);
    rank.actions.resize(numActions);
    std::map<int64_t, int64_t> sent;
    for (size_t i = 0; i < numActions; ++i) {
      Action &action = rank.actions[i];
      size_t count;
      in >> action.opcode >> action.stream >> action.when >> count;
      action.numbers.resize(count);
      for (int64_t &number : action.numbers)
        in >> number;
      in >> count;
      action.operands.resize(count);
      for (Operand &operand : action.operands)
        in >> operand.space >> operand.first >> operand.words >> operand.access;
      rank.streams[action.stream].push_back(int(i));
      if (action.opcode == Record || action.opcode == Wait)
        rank.numEvents = std::max(rank.numEvents, int(action.numbers[0]) + 1);
      if (action.opcode == Send)
        action.message = sent[action.numbers[0]]++;
    }
  }
  return bool(in);
}

/// What an action read in the first interleaving with some flags.
using Seen = std::vector<std::vector<Hash>>;

class Run {
public:
  Run(const Cluster &cluster, unsigned flags, bool sendsWait,
      std::mt19937_64 &random, Seen &seen)
      : cluster(cluster), flags(flags), sendsWait(sendsWait), random(random),
        seen(seen), channels(cluster.groups.size()) {
    for (size_t r = 0; r < cluster.ranks.size(); ++r) {
      const Rank &rank = cluster.ranks[r];
      memory.emplace_back(rank.words);
      writers.emplace_back(rank.words, 0);
      for (int64_t i = 0; i < rank.words; ++i)
        memory[r][i] = getInitial(rank, i);
      recorded.emplace_back(rank.numEvents, false);
      heads.emplace_back(rank.streams.size(), 0);
      for (size_t s = 0; s < rank.streams.size(); ++s)
        order.push_back({int(r), int(s)});
    }
  }

  /// What goes wrong, empty if nothing does.
  std::string execute();
  Hash getDigest() const;
  /// Of who wrote what last, in all memory.
  Hash getLastWriters() const {
    Hash result = 9;
    for (const std::vector<int> &ofRank : writers)
      for (int writer : ofRank)
        result = mix(result, writer);
    return result;
  }

private:
  struct Message {
    const Action *send;
    int rank;
    bool acknowledged = false;
  };
  struct Channel {
    std::vector<Message> messages;
    /// By the number of the send in the text.
    std::map<int64_t, size_t> places;
    size_t received = 0;
  };
  enum class Result { Blocked, Done, Fault };

  /// No two words begin alike.
  static Hash getInitial(const Rank &rank, int64_t word) {
    for (int space = 2; space >= 0; --space)
      if (word >= rank.bases[space])
        return mix(mix(0x1417 + space, rank.number), word - rank.bases[space]);
    return 0;
  }
  const Action *getHead(int r, int s) const {
    const Rank &rank = cluster.ranks[r];
    size_t at = heads[r][s];
    return at < rank.streams[s].size() ? &rank.actions[rank.streams[s][at]]
                                       : nullptr;
  }
  bool isOn(const Action &action) const {
    if (action.when == 0)
      return true;
    bool isSet = flags >> (std::abs(action.when) - 1) & 1;
    return isSet == (action.when > 0);
  }
  Hash load(int r, const Operand &operand, int64_t i) const {
    if (operand.space == Workspace)
      return 1;
    if (operand.space >= Input)
      return mix(mix(0x1999, operand.space), operand.first + i);
    const Rank &rank = cluster.ranks[r];
    int64_t at = operand.first + i;
    return at < rank.sizes[operand.space]
               ? memory[r][rank.bases[operand.space] + at]
               : 2;
  }
  void store(int r, const Action &action, const Operand &operand, int64_t i,
             Hash value) {
    const Rank &rank = cluster.ranks[r];
    int64_t at = operand.first + i;
    if (operand.space >= Workspace || at >= rank.sizes[operand.space])
      return;
    memory[r][rank.bases[operand.space] + at] = value;
    writers[r][rank.bases[operand.space] + at] = getNumber(r, action);
  }
  /// Which action wrote a word last, from 1; 0: none did.
  Hash getWriter(int r, const Operand &operand, int64_t i) const {
    const Rank &rank = cluster.ranks[r];
    int64_t at = operand.first + i;
    return operand.space < Workspace && at < rank.sizes[operand.space]
               ? writers[r][rank.bases[operand.space] + at]
               : 0;
  }
  int getNumber(int r, const Action &action) const {
    return int(&action - cluster.ranks[r].actions.data()) + 1;
  }
  /// Notes what an action read; false if it was something else before.
  bool look(int r, const Action &action, Hash value) {
    Hash &before = seen[r][getNumber(r, action) - 1];
    if (before == 0)
      before = value;
    return before == value;
  }
  Hash hash(int r, const Operand &operand) const {
    Hash result = operand.words;
    for (int64_t i = 0; i < operand.words; ++i)
      result = mix(result, load(r, operand, i));
    return result;
  }
  /// Who wrote it. Equal values of another writer are a race all the same.
  Hash hashWriters(int r, const Operand &operand, int64_t words) const {
    Hash result = 7;
    for (int64_t i = 0; i < words; ++i)
      result = mix(result, getWriter(r, operand, i));
    return result;
  }

  Result advance(int r, int s);
  Result launch(int r, const Action &action);
  Result move(int r, const Action &action);
  Result receive(int r, const Action &action);
  Result meet(int r, const Action &action);
  Result combine(const std::vector<std::pair<int, const Action *>> &members);

  const Cluster &cluster;
  unsigned flags;
  bool sendsWait;
  std::mt19937_64 &random;
  Seen &seen;
  std::vector<Channel> channels;
  std::vector<std::vector<Hash>> memory;
  std::vector<std::vector<int>> writers;
  std::vector<std::vector<bool>> recorded;
  std::vector<std::vector<size_t>> heads;
  /// Streams, the most urgent one first.
  std::vector<std::pair<int, int>> order;
};

/// A kernel reads and writes in any order, so what it writes is nothing else
/// that it is given.
bool hasOverlap(const Action &action) {
  for (const Operand &a : action.operands)
    for (const Operand &b : action.operands)
      if (&a != &b && a.access != 'r' && a.space == b.space &&
          a.space < Workspace && a.first < b.first + b.words &&
          b.first < a.first + a.words)
        return true;
  return false;
}

Run::Result Run::launch(int r, const Action &action) {
  if (hasOverlap(action))
    return Result::Fault;
  Hash read = action.numbers[0], from = 0;
  for (const Operand &operand : action.operands)
    if (operand.access != 'w') {
      read = mix(read, hash(r, operand));
      from = mix(from, hashWriters(r, operand, operand.words));
    }
  if (!look(r, action, mix(read, from)))
    return Result::Fault;
  for (size_t p = 0; p < action.operands.size(); ++p)
    if (action.operands[p].access != 'r')
      for (int64_t i = 0; i < action.operands[p].words; ++i)
        store(r, action, action.operands[p], i, mix(mix(read, p), i));
  return Result::Done;
}

Run::Result Run::move(int r, const Action &action) {
  const Operand &target = action.operands[0];
  std::vector<Hash> values(target.words, kZero);
  if (action.opcode != FillZero)
    for (int64_t i = 0; i < target.words; ++i)
      values[i] = load(r, action.operands[1], i);
  if (action.opcode == Accumulate) {
    int64_t mode = action.numbers[0];
    bool isFresh = mode < 0 || (mode > 0 && (flags >> (mode - 1) & 1));
    if (!isFresh)
      for (int64_t i = 0; i < target.words; ++i)
        values[i] = add(values[i], load(r, target, i));
  }
  Hash read = 1;
  for (Hash value : values)
    read = mix(read, value);
  if (action.opcode != FillZero)
    read = mix(read, hashWriters(r, action.operands[1], target.words));
  if (!look(r, action, read))
    return Result::Fault;
  for (int64_t i = 0; i < target.words; ++i)
    store(r, action, target, i, values[i]);
  return Result::Done;
}

Run::Result Run::receive(int r, const Action &action) {
  Channel &channel = channels[action.numbers[0]];
  int sender = cluster.places[cluster.groups[action.numbers[0]][0]];
  Message message{nullptr, sender};
  if (channel.received < channel.messages.size()) {
    message = channel.messages[channel.received];
  } else {
    // The send is posted, or waits for this.
    if (!sendsWait)
      return Result::Blocked;
    for (size_t s = 0; s < heads[sender].size() && !message.send; ++s) {
      const Action *head = getHead(sender, int(s));
      if (head && head->opcode == Send && isOn(*head) &&
          head->numbers[0] == action.numbers[0]) {
        message.send = head;
        channel.places[head->message] = channel.messages.size();
        channel.messages.push_back(message);
        ++heads[sender][s];
      }
    }
    if (!message.send)
      return Result::Blocked;
  }
  const Operand &source = message.send->operands[0];
  const Operand &target = action.operands[0];
  if (source.words != target.words)
    return Result::Fault;
  // What lies between the members of a bundle travels too, and may be anything.
  if (!look(r, action, hashWriters(sender, source, 1)))
    return Result::Fault;
  for (int64_t i = 0; i < target.words; ++i)
    store(r, action, target, i, load(sender, source, i));
  channel.messages[channel.received++].acknowledged = true;
  return Result::Done;
}

Run::Result
Run::combine(const std::vector<std::pair<int, const Action *>> &members) {
  const Action &first = *members.front().second;
  int64_t words = first.operands[0].words, size = int64_t(members.size());
  std::vector<std::vector<Hash>> results(members.size());
  for (int64_t p = 0; p < size; ++p) {
    auto [r, action] = members[p];
    if (action->opcode != first.opcode || action->operands[0].words != words)
      return Result::Fault;
    int64_t parts =
        first.opcode == AllGather || first.opcode == AllToAll ? size : 1;
    for (int64_t q = 0; q < parts; ++q)
      for (int64_t i = 0; i < words; ++i) {
        auto get = [&](int64_t member, int64_t word) {
          auto [other, its] = members[member];
          return load(other, its->operands[0], word);
        };
        if (first.opcode == AllGather) {
          results[p].push_back(get(q, i));
        } else if (first.opcode == AllToAll) {
          results[p].push_back(get(q, p * words + i));
        } else if (first.opcode == Broadcast) {
          results[p].push_back(get(0, i));
        } else {
          Hash sum = kZero;
          int64_t begin = first.opcode == ReduceScatter ? p * words : 0;
          for (int64_t m = 0; m < size; ++m)
            sum = add(sum, get(m, begin + i));
          // Who looks too early is found also where the others bring zeros.
          results[p].push_back(mix(sum, 0x5A));
        }
      }
  }
  for (int64_t p = 0; p < size; ++p) {
    auto [r, action] = members[p];
    Hash read = 3;
    for (Hash value : results[p])
      read = mix(read, value);
    read = mix(read, hashWriters(r, action->operands[0], words));
    if (!look(r, *action, read))
      return Result::Fault;
    for (size_t i = 0; i < results[p].size(); ++i)
      store(r, *action, action->operands[1], int64_t(i), results[p][i]);
  }
  return Result::Done;
}

Run::Result Run::meet(int r, const Action &action) {
  std::vector<std::pair<int, const Action *>> members;
  std::vector<size_t *> positions;
  for (int member : cluster.groups[action.numbers[0]]) {
    int place = cluster.places[member];
    for (size_t s = 0; s < heads[place].size(); ++s) {
      const Action *head = getHead(place, int(s));
      if (!head || head->opcode < AllReduce || !isOn(*head) ||
          head->numbers[0] != action.numbers[0])
        continue;
      members.push_back({place, head});
      positions.push_back(&heads[place][s]);
      break;
    }
  }
  if (members.size() < cluster.groups[action.numbers[0]].size())
    return Result::Blocked;
  Result result = combine(members);
  for (size_t *position : positions)
    ++*position;
  return result;
}

Run::Result Run::advance(int r, int s) {
  const Action &action = *getHead(r, s);
  Result result = Result::Done;
  if (action.opcode == Record) {
    recorded[r][action.numbers[0]] = true;
  } else if (action.opcode == Wait) {
    if (!recorded[r][action.numbers[0]])
      return Result::Blocked;
  } else if (isOn(action)) {
    switch (action.opcode) {
    case Launch:
      result = launch(r, action);
      break;
    case Copy:
    case FillZero:
    case Accumulate:
      result = move(r, action);
      break;
    case Send: {
      if (sendsWait)
        return Result::Blocked; // its receive takes it along
      Channel &channel = channels[action.numbers[0]];
      channel.places[action.message] = channel.messages.size();
      channel.messages.push_back({&action, r});
      break;
    }
    case Recv:
      result = receive(r, action);
      break;
    case Release: {
      Channel &channel = channels[action.numbers[0]];
      const Action *send = nullptr;
      for (const Action &other : cluster.ranks[r].actions)
        if (other.opcode == Send && other.numbers[0] == action.numbers[0] &&
            other.message == action.numbers[1])
          send = &other;
      if (!send)
        return Result::Fault;
      auto found = channel.places.find(action.numbers[1]);
      if (isOn(*send) && (found == channel.places.end() ||
                          !channel.messages[found->second].acknowledged))
        return Result::Blocked;
      break;
    }
    default:
      return meet(r, action);
    }
  }
  if (result == Result::Done)
    ++heads[r][s];
  return result;
}

std::string Run::execute() {
  std::shuffle(order.begin(), order.end(), random);
  size_t total = 0;
  for (const Rank &rank : cluster.ranks)
    total += rank.actions.size();
  // Where the stream that runs is put last.
  std::vector<size_t> changes(random() % 4);
  for (size_t &change : changes)
    change = random() % total;
  bool isUniform = random() % 4 == 0;
  for (size_t step = 0;; ++step) {
    if (isUniform)
      std::shuffle(order.begin(), order.end(), random);
    size_t ran = order.size();
    bool isOver = true;
    for (size_t i = 0; i < order.size() && ran == order.size(); ++i) {
      auto [r, s] = order[i];
      if (!getHead(r, s))
        continue;
      isOver = false;
      Result result = advance(r, s);
      if (result == Result::Fault)
        return "values differ at rank " +
               std::to_string(cluster.ranks[r].number);
      if (result == Result::Done)
        ran = i;
    }
    if (isOver)
      break;
    if (ran == order.size())
      return sendsWait ? "stuck if sends wait" : "stuck";
    if (std::find(changes.begin(), changes.end(), step) != changes.end())
      std::rotate(order.begin() + ran, order.begin() + ran + 1, order.end());
  }
  for (const Channel &channel : channels)
    if (channel.received < channel.messages.size())
      return "a message is left";
  return "";
}

Hash Run::getDigest() const {
  Hash result = 5;
  for (size_t r = 0; r < memory.size(); ++r)
    for (int64_t i = cluster.ranks[r].bases[State]; i < cluster.ranks[r].words;
         ++i)
      result = mix(result, memory[r][i]);
  return result;
}

std::string judge(const Cluster &cluster, int interleavings,
                  const Hash (&expected)[4]) {
  // Numbers of flags: fresh, reduce, update, buffers. A whole step, and the
  // first, a middle and the last part of one that is taken in parts.
  const unsigned choices[] = {15, 1, 0, 14};
  std::mt19937_64 random(1);
  Hash digests[4];
  std::copy(expected, expected + 4, digests);
  Hash last[4] = {};
  std::vector<Seen> seen(4);
  for (Seen &one : seen)
    for (const Rank &rank : cluster.ranks)
      one.emplace_back(rank.actions.size(), 0);
  for (int n = 0; n < interleavings; ++n) {
    int choice = n % 8 < 5 ? 0 : n % 8 - 4;
    Run run(cluster, choices[choice], n % 3 == 2, random, seen[choice]);
    std::string fault = run.execute();
    if (!fault.empty())
      return fault;
    Hash digest = run.getDigest();
    if (digests[choice] != 0 && digests[choice] != digest)
      return "results differ";
    digests[choice] = digest;
    Hash lastWriters = run.getLastWriters();
    if (last[choice] != 0 && last[choice] != lastWriters)
      return "last writers differ";
    last[choice] = lastWriters;
  }
  std::string answer = "sound";
  for (Hash digest : digests)
    answer += " " + std::to_string(digest);
  return answer;
}

} // namespace

int main() {
  int interleavings;
  // Digests that the plan should have; 0 where they are not known.
  Hash expected[4];
  while (std::cin >> interleavings >> expected[0] >> expected[1] >>
         expected[2] >> expected[3]) {
    Cluster cluster;
    if (!read(std::cin, cluster))
      return 1;
    std::cout << judge(cluster, interleavings, expected) << std::endl;
  }
  return 0;
}
