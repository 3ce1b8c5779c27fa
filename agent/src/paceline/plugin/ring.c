#include "ring.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "crc32.h"

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t mono_now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
uint64_t wall_now_ns(void) { return clock_ns(CLOCK_REALTIME); }

static _Atomic uint64_t *word(struct ring *ring, size_t offset) {
  return (_Atomic uint64_t *)(ring->base + offset);
}

static void store(struct ring *ring, size_t offset, uint64_t value) {
  atomic_store_explicit(word(ring, offset), value, memory_order_relaxed);
}

// Word by word: a reader in another process, or a thread that comes round to the same slot, may be
// looking. What it makes of a half-changed record is decided by checksum and commit word. Released,
// so that nobody sees new bytes under the commit word of the old ones.
static void store_words(struct ring *ring, size_t offset, const void *from, size_t size) {
  for (size_t at = 0; at < size; at += 8) {
    uint64_t value;
    memcpy(&value, (const char *)from + at, 8);
    atomic_store_explicit(word(ring, offset + at), value, memory_order_release);
  }
}

void ring_write(struct ring *ring, const struct ring_record *record) {
  uint64_t index = atomic_fetch_add_explicit(&ring->next, 1, memory_order_relaxed);
  size_t offset = RING_RECORDS_OFFSET + index % ring->capacity * RING_RECORD_BYTES;
  store(ring, offset + RING_RECORD_COMMIT_OFFSET, 0);
  store_words(ring, offset, record, sizeof *record);
  store(ring, offset + RING_RECORD_CRC_OFFSET, crc32_of(record, sizeof *record));
  atomic_store_explicit(word(ring, offset + RING_RECORD_COMMIT_OFFSET), index + 1,
                        memory_order_release);
  // Never backwards, or a reader would wait for records that it could have.
  _Atomic uint64_t *head = word(ring, RING_HEAD_OFFSET);
  uint64_t seen = atomic_load_explicit(head, memory_order_relaxed);
  while (seen <= index && !atomic_compare_exchange_weak_explicit(
                              head, &seen, index + 1, memory_order_release, memory_order_relaxed)) {
  }
}

void ring_replace(struct ring *ring, int slot, const struct ring_entry *entry) {
  size_t offset = RING_HEADER_BYTES + (size_t)slot * RING_INFLIGHT_BYTES;
  store(ring, offset, 0);
  store_words(ring, offset + 8, (const char *)entry + 8, sizeof *entry - 8);
  atomic_store_explicit(word(ring, offset), 1, memory_order_release);
}

int ring_begin(struct ring *ring, const struct ring_entry *entry) {
  uint64_t free_slots = atomic_load_explicit(&ring->free_slots, memory_order_relaxed);
  int slot;
  do {
    if (!free_slots) {
      ring_add(ring, RING_DROPPED_INFLIGHT_OFFSET, 1);
      return -1;
    }
    slot = 63 - __builtin_clzll(free_slots);  // the last one first, as the Python writer does
  } while (!atomic_compare_exchange_weak_explicit(&ring->free_slots, &free_slots,
                                                  free_slots & ~(UINT64_C(1) << slot),
                                                  memory_order_acquire, memory_order_relaxed));
  ring_replace(ring, slot, entry);
  return slot;
}

void ring_finish(struct ring *ring, int slot) {
  if (slot < 0) return;
  store(ring, RING_HEADER_BYTES + (size_t)slot * RING_INFLIGHT_BYTES, 0);
  atomic_fetch_or_explicit(&ring->free_slots, UINT64_C(1) << slot, memory_order_release);
}

bool ring_meta(struct ring *ring, const char *text, size_t length) {
  size_t size = (RING_META_ENTRY_BYTES + length + 7) & ~(size_t)7;
  bool fits = false;
  pthread_mutex_lock(&ring->rare);
  uint64_t used = atomic_load_explicit(word(ring, RING_META_HEAD_OFFSET), memory_order_relaxed);
  if (length <= RING_META_BYTES && used + size <= RING_META_BYTES) {
    uint32_t entry[2] = {(uint32_t)length, crc32_of(text, length)};
    memcpy(ring->base + RING_META_OFFSET + used, entry, sizeof entry);
    memcpy(ring->base + RING_META_OFFSET + used + sizeof entry, text, length);
    atomic_store_explicit(word(ring, RING_META_HEAD_OFFSET), used + size, memory_order_release);
    fits = true;
  }
  pthread_mutex_unlock(&ring->rare);
  if (!fits) ring_add(ring, RING_DROPPED_META_OFFSET, 1);
  return fits;
}

void ring_heartbeat(struct ring *ring, uint64_t step, uint64_t now_ns) {
  store(ring, RING_STEP_OFFSET, step);
  store(ring, RING_HEARTBEAT_OFFSET, now_ns);
}

void ring_anchor(struct ring *ring) {
  // Whoever finds it taken may go on: another thread is taking the anchor.
  if (pthread_mutex_trylock(&ring->rare)) return;
  uint64_t before_ns = mono_now_ns();
  uint64_t wall_ns = wall_now_ns();
  uint64_t mono_ns = before_ns + (mono_now_ns() - before_ns) / 2;
  uint64_t count = atomic_load_explicit(word(ring, RING_ANCHOR_COUNT_OFFSET), memory_order_relaxed);
  size_t slot = RING_ANCHOR_SLOTS_OFFSET + count % 2 * 16;
  store(ring, slot, mono_ns);
  store(ring, slot + 8, wall_ns);
  atomic_store_explicit(word(ring, RING_ANCHOR_COUNT_OFFSET), count + 1, memory_order_release);
  pthread_mutex_unlock(&ring->rare);
}

void ring_add(struct ring *ring, size_t offset, uint64_t times) {
  atomic_fetch_add_explicit(word(ring, offset), times, memory_order_relaxed);
}

void ring_say_closed(struct ring *ring) { store(ring, RING_STATE_OFFSET, RING_STATE_CLOSED); }

void ring_close(struct ring *ring) {
  if (!ring->base) return;
  ring_say_closed(ring);
  munmap(ring->base, ring->size_bytes);
  close(ring->fd);
  pthread_mutex_destroy(&ring->rare);
  ring->base = NULL;
}

bool ring_control(struct ring *ring, struct ring_control *control) {
  // Its writer stores the generation last, so it is read first; the checksum covers the rest.
  uint64_t words[3];
  words[0] = atomic_load_explicit(word(ring, RING_CONTROL_OFFSET), memory_order_acquire);
  if (!words[0]) return false;
  for (size_t at = 1; at < 3; ++at) {
    words[at] =
        atomic_load_explicit(word(ring, RING_CONTROL_OFFSET + at * 8), memory_order_relaxed);
  }
  uint64_t crc = atomic_load_explicit(word(ring, RING_CONTROL_CRC_OFFSET), memory_order_relaxed);
  if ((uint32_t)crc != crc32_of(words, sizeof words)) return false;
  if ((uint32_t)words[2] > LEVEL_FULL) return false;  // of a newer sidecar
  _Static_assert(sizeof *control == sizeof words, "the control block has no holes");
  memcpy(control, words, sizeof words);
  return true;
}

void ring_applied(struct ring *ring, const struct ring_control *control) {
  store(ring, RING_APPLIED_STEP_OFFSET, control->effective_step);
  atomic_store_explicit(word(ring, RING_APPLIED_GENERATION_OFFSET), control->generation,
                        memory_order_release);
}
