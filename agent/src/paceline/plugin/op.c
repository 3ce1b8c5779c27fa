#include "op.h"

#include <sched.h>

#include "session.h"

enum {
  SPINS = 64,
  YIELDS = 256,
  // NCCL calls us after it has launched the kernel, so a GPU that waits may have begun before, and
  // long before where the host lost its core in between. More than this is another collective's stamp.
  ENQUEUE_SLACK_NS = 20 * 1000 * 1000,
  // Kernels that were launched together may be reported out of order, by less than this.
  TOGETHER_NS = 2000,
  // As many works of a channel as NCCL remembers: what it has not reported by then never comes.
  NCCL_REMEMBERS = 64,
};
static const uint64_t GIVEN_UP_NS = UINT64_C(1000) * 1000 * 1000;

static uint32_t generation_of(uint64_t word) { return (uint32_t)(word >> 1); }

static void leave(struct op *op, uint32_t generation) {
  atomic_store_explicit(&op->word, (uint64_t)generation << 1, memory_order_release);
}

// Hold an op of this generation, for a moment. False: it is another generation, or another thread
// did not leave it for a long time (it was suspended; better an event lost than a job that waits).
static bool hold(struct op *op, uint32_t generation) {
  uint64_t wanted = (uint64_t)generation << 1;
  for (int tries = 0; tries < SPINS + YIELDS; ++tries) {
    uint64_t seen = wanted;
    if (atomic_compare_exchange_strong_explicit(&op->word, &seen, wanted | 1, memory_order_acquire,
                                                memory_order_relaxed)) {
      return true;
    }
    if (generation_of(seen) != generation) return false;
    if (tries >= SPINS) sched_yield();
  }
  count(COUNT_CONTENDED);
  return false;
}

static bool is_quiet(const struct op *op) { return op->started && op->started == op->stopped; }

static struct ring_entry entry_of(const struct op *op) {
  return (struct ring_entry){
      .start_ns = op->issue_ns,
      .payload_bytes = op->payload_bytes,
      .seq = op->seq,
      .peer = op->peer,
      .group = op->group,
      .op = op->code,
  };
}

static void leave_table(struct comm *comm, struct op *op) {
  if (op->entry >= 0) {
    ring_finish(op->ring, op->entry);
  } else if (op->entry == -1) {
    atomic_fetch_sub_explicit(&comm->untabled, 1, memory_order_relaxed);
  }
  op->entry = -2;  // neither in the table nor waiting for it
}

static void write_record(struct comm *comm, const struct op *op, uint32_t flags) {
  struct ring_record record = {
      .start_ns = op->issue_ns,
      .issue_ns = op->issue_ns,
      .payload_bytes = op->payload_bytes,
      .seq = op->seq,
      .peer = op->peer,
      .group = op->group,
      .kind = KIND_COLLECTIVE,
      .code = op->code,
      .flags = flags | (op->doubtful ? FLAG_PARTIAL : 0),
  };
  if (op->first_stamp) {
    uint64_t start_ns = clock_map(comm->clock, op->first_stamp);
    if (start_ns + ENQUEUE_SLACK_NS >= op->issue_ns) {
      record.start_ns = start_ns;
      record.flags |= FLAG_GPU_TIME;
      if (op->last_stamp && !(flags & FLAG_NOT_WAITED)) {
        record.end_ns = clock_map(comm->clock, op->last_stamp);
      }
    }
  }
  if (!(record.flags & FLAG_GPU_TIME)) {
    record.flags |= FLAG_PARTIAL;
    if (op->started) count(COUNT_LOST_TIMES);
  }
  if (record.flags & FLAG_PARTIAL) count(COUNT_PARTIAL);
  ring_write(op->ring, &record);
}

// The caller holds the op, and leaves it under the next generation.
static void conclude(struct comm *comm, struct op *op, uint32_t flags) {
  write_record(comm, op, flags);
  leave_table(comm, op);
  if (!op->channels) atomic_fetch_sub_explicit(&comm->uncounted, 1, memory_order_relaxed);
}

// The table holds 64 collectives of the process. When one leaves, the oldest that found no room
// comes in: a hang is diagnosed by the oldest one that is stuck, not by the newest.
static void let_in(struct comm *comm) {
  uint64_t end = atomic_load_explicit(&comm->orders, memory_order_relaxed);
  uint64_t order = atomic_load_explicit(&comm->untabled_from, memory_order_relaxed);
  if (end > OPS && order < end - OPS) order = end - OPS;
  for (; order < end; ++order) {
    struct op *op = &comm->ops[order % OPS];
    uint32_t generation = generation_of(atomic_load_explicit(&op->word, memory_order_relaxed));
    if (!(generation & 1) || !hold(op, generation)) continue;
    bool waits = op->entry == -1;
    if (waits) {
      struct ring_entry entry = entry_of(op);
      op->entry = (int8_t)ring_begin(op->ring, &entry);
      if (op->entry >= 0) atomic_fetch_sub_explicit(&comm->untabled, 1, memory_order_relaxed);
    }
    leave(op, generation);
    if (waits) break;
  }
  atomic_store_explicit(&comm->untabled_from, order, memory_order_relaxed);
}

static void after_one_left(struct comm *comm) {
  if (atomic_load_explicit(&comm->untabled, memory_order_relaxed)) let_in(comm);
}

// Take the op at a place if it is still that of `order`, and conclude it.
static void give_up(struct comm *comm, uint64_t order, uint64_t before_ns) {
  struct op *op = &comm->ops[order % OPS];
  uint32_t generation = generation_of(atomic_load_explicit(&op->word, memory_order_relaxed));
  if (!(generation & 1) || !hold(op, generation)) return;
  if (op->order == order && op->issue_ns < before_ns) {
    conclude(comm, op, FLAG_PARTIAL);
    ++generation;
  }
  leave(op, generation);
}

void op_record_enqueued(struct ring *ring, const struct op_facts *facts) {
  struct ring_record record = {
      .start_ns = facts->issue_ns,
      .issue_ns = facts->issue_ns,
      .payload_bytes = facts->payload_bytes,
      .seq = facts->seq,
      .peer = facts->peer,
      .group = facts->group,
      .kind = KIND_COLLECTIVE,
      .code = facts->code,
  };
  ring_write(ring, &record);
}

uint32_t op_begin(struct comm *comm, struct ring *ring, const struct op_facts *facts) {
  struct op *op = &comm->ops[facts->order % OPS];
  uint32_t generation = generation_of(atomic_load_explicit(&op->word, memory_order_relaxed));
  if (!hold(op, generation)) {
    op_record_enqueued(ring, facts);
    return 0;
  }
  if (generation & 1) {  // the one that began OPS ago: its channels have not all been seen
    conclude(comm, op, FLAG_PARTIAL);
    ++generation;
  }
  ++generation;
  op->ring = ring;
  op->order = facts->order;
  op->issue_ns = facts->issue_ns;
  op->payload_bytes = facts->payload_bytes;
  op->seq = facts->seq;
  op->peer = facts->peer;
  op->group = facts->group;
  op->code = facts->code;
  op->channels = facts->channels;
  op->first_stamp = op->last_stamp = 0;
  op->started = op->stopped = op->stamped = 0;
  op->doubtful = false;
  if (!facts->channels) atomic_fetch_add_explicit(&comm->uncounted, 1, memory_order_relaxed);
  struct ring_entry entry = entry_of(op);
  op->entry = (int8_t)ring_begin(ring, &entry);
  if (op->entry < 0 && !atomic_fetch_add_explicit(&comm->untabled, 1, memory_order_relaxed)) {
    atomic_store_explicit(&comm->untabled_from, facts->order, memory_order_relaxed);
  }
  leave(op, generation);
  return generation;
}

// Kernels of one communicator run one after the other. So when a later one has begun, an op whose
// channels were not counted is over once every channel that started has stopped.
static void settle_uncounted(struct comm *comm, uint64_t before_order, uint64_t stamp) {
  uint64_t order = before_order > OPS ? before_order - OPS : 0;
  for (; order < before_order; ++order) {
    struct op *op = &comm->ops[order % OPS];
    uint32_t generation = generation_of(atomic_load_explicit(&op->word, memory_order_relaxed));
    if (!(generation & 1) || !hold(op, generation)) continue;
    if (!op->channels && op->order < before_order && is_quiet(op)) {
      // Launched together with the later one, it may have had channels that begin only now.
      bool over = op->last_stamp && op->last_stamp <= stamp;
      conclude(comm, op, over ? 0 : FLAG_PARTIAL);
      ++generation;
    }
    leave(op, generation);
  }
}

// NCCL up to 2.30 may read a stamp before the GPU has written it, and finds the one of 64 works
// ago. That one began before the last work that is known to have stopped on this channel.
static bool is_leftover(struct comm *comm, unsigned channel, uint64_t stamp) {
  uint64_t done = atomic_load_explicit(&comm->done[channel], memory_order_relaxed);
  if (stamp + TOGETHER_NS >= done) {
    if (atomic_load_explicit(&comm->stale_stamps, memory_order_relaxed)) {
      atomic_store_explicit(&comm->stale_stamps, 0, memory_order_relaxed);
    }
    return false;
  }
  // Never only such: then it was the later stamp that was wrong, or the GPU's clock was set.
  if (atomic_fetch_add_explicit(&comm->stale_stamps, 1, memory_order_relaxed) >= NCCL_REMEMBERS) {
    atomic_store_explicit(&comm->done[channel], 0, memory_order_relaxed);
  }
  return true;
}

bool op_channel_starts(struct comm *comm, unsigned slot, uint32_t generation, unsigned channel,
                       uint64_t now_ns, uint64_t stamp) {
  struct op *op = &comm->ops[slot];
  uint64_t bit = UINT64_C(1) << channel;
  if (!hold(op, generation)) return false;
  bool known = !(op->started & bit);
  uint64_t order = op->order;
  bool first = !op->started;
  if (known) {
    op->started |= bit;
    if (!clock_sees(comm->clock, now_ns, stamp) || is_leftover(comm, channel, stamp)) {
      op->doubtful = true;
    } else if (!op->first_stamp || stamp < op->first_stamp) {
      if (!op->first_stamp && op->entry >= 0) {  // seen from outside: it did begin on the GPU
        struct ring_entry entry = entry_of(op);
        entry.start_ns = clock_map(comm->clock, stamp);
        entry.flags = FLAG_GPU_TIME;
        ring_replace(op->ring, op->entry, &entry);
      }
      op->first_stamp = stamp;
    }
  }
  leave(op, generation);
  if (known && first && atomic_load_explicit(&comm->uncounted, memory_order_relaxed)) {
    settle_uncounted(comm, order, stamp);
    after_one_left(comm);
  }
  return known;
}

void op_channel_stamp(struct comm *comm, unsigned slot, uint32_t generation, unsigned channel,
                      uint64_t now_ns, uint64_t stamp) {
  struct op *op = &comm->ops[slot];
  uint64_t bit = UINT64_C(1) << channel;
  if (!hold(op, generation)) {
    count(COUNT_STALE);
    return;
  }
  if ((op->started & bit) && !((op->stopped | op->stamped) & bit) &&
      clock_sees(comm->clock, now_ns, stamp) && op->first_stamp && stamp >= op->first_stamp) {
    op->stamped |= bit;
    if (stamp > op->last_stamp) op->last_stamp = stamp;
    atomic_store_explicit(&comm->done[channel], op->first_stamp, memory_order_relaxed);
  }
  leave(op, generation);
}

void op_channel_stops(struct comm *comm, unsigned slot, uint32_t generation, unsigned channel) {
  struct op *op = &comm->ops[slot];
  uint64_t bit = UINT64_C(1) << channel;
  if (!hold(op, generation)) {
    count(COUNT_STALE);
    return;
  }
  bool left = false;
  uint64_t order = op->order, issue_ns = op->issue_ns;
  if ((op->started & bit) && !(op->stopped & bit)) {
    op->stopped |= bit;
    if (!(op->stamped & bit)) op->doubtful = true;
    if (op->channels && __builtin_popcountll(op->stopped) >= op->channels) {
      conclude(comm, op, 0);
      ++generation;
      left = true;
    } else if (!op->channels && is_quiet(op)) {
      leave_table(comm, op);  // as far as anybody knows it is released
      left = true;
    }
  }
  leave(op, generation);
  if (left) after_one_left(comm);
  if (left && order >= NCCL_REMEMBERS && issue_ns > GIVEN_UP_NS) {
    give_up(comm, order - NCCL_REMEMBERS, issue_ns - GIVEN_UP_NS);
  }
}

void op_end_all(struct comm *comm) {
  for (unsigned slot = 0; slot < OPS; ++slot) {
    struct op *op = &comm->ops[slot];
    uint32_t generation = generation_of(atomic_load_explicit(&op->word, memory_order_relaxed));
    if (!(generation & 1) || !hold(op, generation)) continue;
    bool over = !op->channels && is_quiet(op);
    conclude(comm, op, over ? 0 : FLAG_PARTIAL | FLAG_NOT_WAITED);
    leave(op, generation + 1);
  }
}
