// Collectives that were issued and whose record was not written yet; the twin of ../pending.py.
//
// One lock guards the table and the ring. Under it nothing of torch or Python is called: a
// Work of Python would want the interpreter's lock, whose holder may be waiting for ours.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ctime>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ring.h"

namespace paceline {

enum Flags : uint32_t {
  kReleasePolled = 1,
  kAsync = 2,
  kNotWaited = 16,
  kFailed = 32,
  kHostReturn = 64,
};
constexpr uint8_t kCountedOnly = 0;  // gets no record: see COUNTED_ONLY of ../pending.py
constexpr uint8_t kCollective = 1;
constexpr uint8_t kSend = 10;
constexpr uint8_t kRecv = 11;
constexpr int kMaxPending = 4096;
constexpr int kMadeRoom = 1024;
constexpr uint64_t kNotImmediateNs = 200000;
constexpr uint32_t kAbandonedSteps = 2;

inline uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// One process group; its counters are those that the Python hooks use too.
struct Group {
  uint16_t index = 0;
  int rank = 0;
  std::vector<int> ranks;
  uint64_t next_seq = 0;
  std::unordered_map<uint64_t, uint64_t> directed;

  // Global rank of a rank of the group; -1 where there is none.
  int global(int64_t rank_in_group) const {
    return rank_in_group >= 0 && rank_in_group < static_cast<int64_t>(ranks.size())
               ? ranks[rank_in_group]
               : -1;
  }

  uint64_t next_directed(int source, int destination) {
    const auto key = (static_cast<uint64_t>(static_cast<uint32_t>(source)) << 32) |
                     static_cast<uint32_t>(destination);
    return directed[key]++;
  }
};

using WorkRef = c10::intrusive_ptr<c10d::Work>;
using FutureRef = c10::intrusive_ptr<c10::ivalue::Future>;

struct Entry {
  Record record{};
  const void* key = nullptr;     // the Work, not kept alive: never looked into
  const void* output = nullptr;  // first output; wait_tensor is matched by it
  uint64_t returned_ns = 0;      // when the call returned, where it does not tell if it waits
  uint64_t released_ns = 0;      // when the Work's future was completed
  FutureRef future;              // until it is completed
  WorkRef held;                  // only of a Work without a future, to ask it
  std::shared_ptr<Group> any_source;
  int slot = -1;
  uint32_t generation = 0;
  bool used = false;
  bool waiting = false;  // somebody waits in Python, and owes the record
  int older = -1, newer = -1, same_bucket = -1;
};

// Says which entry, without keeping anything alive. `index` -1: none.
struct Token {
  int index = -1;
  uint32_t generation = 0;
};

// What must be let go outside the lock: tensors may need the interpreter's for that.
struct Remains {
  std::vector<WorkRef> works;
  std::vector<FutureRef> futures;
};

class Pending {
 public:
  std::mutex lock;
  Ring ring;

  Pending() : entries_(kMaxPending) {
    buckets_.fill(-1);
    free_.reserve(kMaxPending);
    for (int index = kMaxPending - 1; index >= 0; --index) free_.push_back(index);
  }

  int size() const { return kMaxPending - static_cast<int>(free_.size()); }
  bool is_full() const { return free_.empty(); }
  // Of all that were issued, also when its record is written already.
  bool is_newest(int index) const {
    return index == issued_last_.index && entries_[index].generation == issued_last_.generation;
  }
  uint64_t newest_start_ns() const { return newest_start_ns_; }
  int oldest() const { return oldest_; }
  Entry& at(int index) { return entries_[index]; }

  Entry* find(Token token) {
    if (token.index < 0) return nullptr;
    Entry& entry = entries_[token.index];
    return entry.used && entry.generation == token.generation ? &entry : nullptr;
  }

  // Keeps what was issued. A key that is there already is a Work's that is gone: its address
  // was given away again.
  Token add(Entry&& issued, Remains& remains) {
    const Token gone = find_key(issued.key);
    if (gone.index >= 0) let_go(gone.index, remains);
    const int index = free_.back();
    free_.pop_back();
    Entry& entry = entries_[index];
    const uint32_t generation = entry.generation;
    entry = std::move(issued);
    entry.generation = generation;
    entry.used = true;
    int& bucket = buckets_[bucket_of(entry.key)];
    entry.same_bucket = bucket;
    bucket = index;
    entry.older = newest_;
    entry.newer = -1;
    (newest_ >= 0 ? entries_[newest_].newer : oldest_) = index;
    newest_ = index;
    newest_start_ns_ = entry.record.start_ns;
    return issued_last_ = {index, generation};
  }

  Token find_key(const void* key) const {
    int index = buckets_[bucket_of(key)];
    while (index >= 0 && entries_[index].key != key) index = entries_[index].same_bucket;
    return index < 0 ? Token{} : Token{index, entries_[index].generation};
  }

  Token find_output(const void* output) const {
    int index = oldest_;
    while (index >= 0 && entries_[index].output != output) index = entries_[index].newer;
    return index < 0 ? Token{} : Token{index, entries_[index].generation};
  }

  void released(Token token, uint64_t time_ns, uint32_t flags, Remains& remains) {
    Entry* entry = find(token);
    if (!entry || entry->released_ns) return;
    entry->released_ns = time_ns;
    entry->record.flags |= flags;
    if (entry->future) remains.futures.push_back(std::move(entry->future));
    finish(*entry);
  }

  void write(int index, uint64_t end_ns, uint64_t join_ns, uint32_t flags, Remains& remains) {
    Entry& entry = entries_[index];
    finish(entry);
    entry.record.end_ns = end_ns;
    entry.record.join_ns = join_ns;
    entry.record.flags = flags;
    if (entry.record.kind != kCountedOnly) ring.record(entry.record);
    remove(index, remains);
  }

  // Nobody is to wait for it any more, as far as anybody knows.
  void let_go(int index, Remains& remains) {
    Entry& entry = entries_[index];
    const uint32_t flags = entry.record.flags | kAsync | (entry.released_ns ? 0u : kNotWaited);
    write(index, entry.released_ns, 0, flags, remains);
  }

 private:
  static size_t bucket_of(const void* key) {
    return (reinterpret_cast<uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15u >> 52;
  }

  void finish(Entry& entry) {
    ring.finish(entry.slot);
    entry.slot = -1;
  }

  void remove(int index, Remains& remains) {
    Entry& entry = entries_[index];
    int* link = &buckets_[bucket_of(entry.key)];
    while (*link != index) link = &entries_[*link].same_bucket;
    *link = entry.same_bucket;
    (entry.older >= 0 ? entries_[entry.older].newer : oldest_) = entry.newer;
    (entry.newer >= 0 ? entries_[entry.newer].older : newest_) = entry.older;
    if (entry.held) remains.works.push_back(std::move(entry.held));
    if (entry.future) remains.futures.push_back(std::move(entry.future));
    entry.any_source.reset();
    entry.used = false;
    ++entry.generation;
    free_.push_back(index);
  }

  std::vector<Entry> entries_;
  std::vector<int> free_;
  std::array<int, kMaxPending> buckets_;
  int oldest_ = -1, newest_ = -1;  // of those in the table
  Token issued_last_;
  uint64_t newest_start_ns_ = 0;
};

}  // namespace paceline
