// Ring v1: where every byte lies (docs/ring.md; twin of paceline/ring/layout.py), and the numbers
// of paceline/vocabulary.py. Nothing here may change without a new version of the ring.
#pragma once

#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a ring is little-endian; this machine is not"
#endif

#define RING_MAGIC "PACERING"
#define RING_SUFFIX ".ring"

enum {
  RING_VERSION = 1,
  RING_BYTE_ORDER_MARK = 0x0A0B0C0D,
  RING_MAX_FILE_BYTES = 4 * 1024 * 1024,
  RING_HEADER_BYTES = 4096,
  RING_STATIC_BYTES = 512,
  RING_STATIC_CRC_OFFSET = 508,

  RING_HEAD_OFFSET = 512,
  RING_META_HEAD_OFFSET = 520,
  RING_STATE_OFFSET = 528,
  RING_HEARTBEAT_OFFSET = 536,
  RING_STEP_OFFSET = 544,
  RING_DROPPED_INFLIGHT_OFFSET = 552,
  RING_HOOK_ERRORS_OFFSET = 560,
  RING_DROPPED_META_OFFSET = 568,
  RING_ANCHOR_COUNT_OFFSET = 576,
  RING_ANCHOR_SLOTS_OFFSET = 584,
  RING_CONTROL_OFFSET = 640,
  RING_CONTROL_CRC_OFFSET = 664,
  RING_APPLIED_GENERATION_OFFSET = 680,
  RING_APPLIED_STEP_OFFSET = 688,
  RING_PLUGIN_COUNTERS_OFFSET = 704,  // enum counter in session.h numbers them

  RING_STATE_RUNNING = 1,
  RING_STATE_CLOSED = 2,

  RING_INFLIGHT_SLOTS = 64,
  RING_INFLIGHT_BYTES = 64,
  RING_META_OFFSET = RING_HEADER_BYTES + RING_INFLIGHT_SLOTS * RING_INFLIGHT_BYTES,
  RING_META_BYTES = 128 * 1024,
  RING_META_ENTRY_BYTES = 8,
  RING_RECORDS_OFFSET = RING_META_OFFSET + RING_META_BYTES,
  RING_RECORD_BYTES = 80,
  RING_RECORD_CRC_OFFSET = 64,
  RING_RECORD_COMMIT_OFFSET = 72,
  RING_DEFAULT_CAPACITY = 16384,
};

enum { KIND_COLLECTIVE = 1, KIND_PHASE = 2, KIND_STEP = 3 };

enum {
  OP_UNKNOWN = 0,
  OP_ALL_REDUCE = 1,
  OP_ALL_GATHER = 2,
  OP_REDUCE_SCATTER = 3,
  OP_ALL_TO_ALL = 4,
  OP_BARRIER = 5,
  OP_BROADCAST = 6,
  OP_REDUCE = 7,
  OP_GATHER = 8,
  OP_SCATTER = 9,
  OP_SEND = 10,
  OP_RECV = 11,
};

enum { FLAG_GPU_TIME = 4, FLAG_PARTIAL = 8, FLAG_NOT_WAITED = 16 };

// Indexes into paceline.settings.LEVELS; each brings what those before it bring.
enum { LEVEL_OFF = 0, LEVEL_STEPS = 1, LEVEL_COLLECTIVES = 2, LEVEL_FULL = 3 };

// What the static header says, in its order; everything is written once.
struct ring_static {
  char magic[8];
  uint16_t version, flags;
  uint32_t byte_order_mark;
  uint32_t record_bytes, capacity, inflight_offset, inflight_slots;
  uint32_t meta_offset, meta_bytes, records_offset;
  int32_t rank, local_rank;
  uint32_t world_size, attempt, pid;
  uint64_t created_wall_ns, created_mono_ns;
  uint8_t incarnation[16];
  char node[64], job[128], run_id[64], boot_id[40];
  uint64_t time_namespace;
  char producer[16];
  uint8_t zeros[92];
  uint32_t crc;
};
_Static_assert(sizeof(struct ring_static) == RING_STATIC_BYTES, "the static header has no holes");

// The part of a record that its checksum covers.
struct ring_record {
  uint64_t start_ns, end_ns, join_ns, issue_ns, payload_bytes, seq;
  uint32_t step;
  int32_t peer;
  uint16_t group;
  uint8_t kind, code;
  uint32_t flags;
};
_Static_assert(sizeof(struct ring_record) == RING_RECORD_CRC_OFFSET, "a record has no holes");

// An entry of the in-flight table.
struct ring_entry {
  uint64_t commit, start_ns, payload_bytes, seq;
  uint32_t step;
  int32_t peer;
  uint16_t group;
  uint8_t op, zero;
  uint32_t flags;
  uint32_t zeros[4];
};
_Static_assert(sizeof(struct ring_entry) == RING_INFLIGHT_BYTES, "an entry has no holes");
