// Writes records into the mapping of a ring that the Python writer made (docs/ring.md).
//
// While it is attached, every record of the process goes through it, also those of phases and
// steps, so that there is one counter of records and one list of free in-flight slots. It has
// no lock of its own: the caller holds `lock` of pending.h.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace paceline {

constexpr size_t kHeadOffset = 512;
constexpr size_t kDroppedInFlightOffset = 552;
constexpr size_t kHookErrorsOffset = 560;
constexpr size_t kInFlightOffset = 4096;
constexpr size_t kInFlightBytes = 64;
constexpr int kInFlightSlots = 64;
constexpr size_t kRecordsOffset = 139264;
constexpr size_t kRecordBytes = 80;
constexpr size_t kCrcOffset = 64;
constexpr size_t kCommitOffset = 72;

struct Record {
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t join_ns;
  uint64_t issue_ns;
  uint64_t payload_bytes;
  uint64_t seq;
  uint32_t step;
  int32_t peer;
  uint16_t group;
  uint8_t kind;
  uint8_t code;
  uint32_t flags;
};
static_assert(sizeof(Record) == kCrcOffset, "the record of ring v1");

// CRC-32 as in zlib, eight bytes at a time.
class Crc32 {
 public:
  Crc32() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t value = byte;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xEDB88320u : 0);
      tables_[0][byte] = value;
    }
    for (uint32_t byte = 0; byte < 256; ++byte)
      for (int table = 1; table < 8; ++table)
        tables_[table][byte] =
            (tables_[table - 1][byte] >> 8) ^ tables_[0][tables_[table - 1][byte] & 0xFF];
  }

  // `size` is a multiple of 8.
  uint32_t of(const void* data, size_t size) const {
    const auto* at = static_cast<const unsigned char*>(data);
    uint32_t crc = 0xFFFFFFFFu;
    for (; size; size -= 8, at += 8) {
      uint32_t low, high;
      std::memcpy(&low, at, 4);
      std::memcpy(&high, at + 4, 4);
      low ^= crc;
      crc = tables_[7][low & 0xFF] ^ tables_[6][(low >> 8) & 0xFF] ^
            tables_[5][(low >> 16) & 0xFF] ^ tables_[4][low >> 24] ^ tables_[3][high & 0xFF] ^
            tables_[2][(high >> 8) & 0xFF] ^ tables_[1][(high >> 16) & 0xFF] ^
            tables_[0][high >> 24];
    }
    return ~crc;
  }

 private:
  std::array<std::array<uint32_t, 256>, 8> tables_;
};

class Ring {
 public:
  // Maps `file` a second time, through the Python writer's own descriptor: opening and closing
  // another one would give up the lock by which a reader knows that the writer lives.
  bool open(int file, size_t size_bytes, uint32_t capacity) {
    if (kRecordsOffset + static_cast<size_t>(capacity) * kRecordBytes > size_bytes || !capacity)
      return false;
    void* map = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) return false;
    base_ = static_cast<unsigned char*>(map);
    size_bytes_ = size_bytes;
    capacity_ = capacity;
    next_ = load(kHeadOffset);
    free_slots_ = 0;
    for (int slot = 0; slot < kInFlightSlots; ++slot)
      if (!load(in_flight(slot))) free_[free_slots_++] = static_cast<int8_t>(slot);
    return true;
  }

  void close() {
    if (base_) munmap(base_, size_bytes_);
    base_ = nullptr;
  }

  bool is_open() const { return base_ != nullptr; }

  void record(const Record& record) {
    if (!base_) return;
    const uint64_t index = next_++;
    unsigned char* at = base_ + kRecordsOffset + index % capacity_ * kRecordBytes;
    auto* commit = reinterpret_cast<uint64_t*>(at + kCommitOffset);
    __atomic_store_n(commit, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    std::memcpy(at, &record, sizeof(record));
    const uint64_t crc = crc_.of(&record, sizeof(record));
    std::memcpy(at + kCrcOffset, &crc, sizeof(crc));
    __atomic_store_n(commit, index + 1, __ATOMIC_RELEASE);
    store(kHeadOffset, index + 1);
  }

  // Enters a collective that has arrived; -1 when the table is full, which is counted.
  int begin(const Record& record) {
    if (!base_) return -1;
    if (!free_slots_) {
      count(kDroppedInFlightOffset);
      return -1;
    }
    const int slot = free_[--free_slots_];
    struct {
      uint64_t start_ns, payload_bytes, seq;
      uint32_t step;
      int32_t peer;
      uint16_t group;
      uint8_t op, zero;
      uint32_t flags, zeros[4];
    } entry = {record.start_ns, record.payload_bytes, record.seq,   record.step, record.peer,
               record.group,    record.code,          0,            record.flags, {}};
    static_assert(sizeof(entry) == kInFlightBytes - 8, "the in-flight entry of ring v1");
    std::memcpy(base_ + in_flight(slot) + 8, &entry, sizeof(entry));
    store(in_flight(slot), 1);
    return slot;
  }

  void finish(int slot) {
    if (!base_ || slot < 0 || slot >= kInFlightSlots || !load(in_flight(slot))) return;
    store(in_flight(slot), 0);
    free_[free_slots_++] = static_cast<int8_t>(slot);
  }

  void count(size_t offset) {
    if (base_) store(offset, load(offset) + 1);
  }

 private:
  static size_t in_flight(int slot) { return kInFlightOffset + slot * kInFlightBytes; }

  uint64_t load(size_t offset) const {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(base_ + offset), __ATOMIC_RELAXED);
  }

  void store(size_t offset, uint64_t value) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(base_ + offset), value, __ATOMIC_RELEASE);
  }

  Crc32 crc_;
  unsigned char* base_ = nullptr;
  size_t size_bytes_ = 0;
  uint32_t capacity_ = 0;
  uint64_t next_ = 0;
  int free_slots_ = 0;
  std::array<int8_t, kInFlightSlots> free_{};
};

}  // namespace paceline
