// The life of a collective: enqueued, started on its channels, stopped on them, recorded.
//
// Every function may be called with numbers of something that is long over, from any thread, in any
// order. None of them waits for longer than it takes another thread to leave the same collective.
#pragma once

#include "comm.h"

struct op_facts {
  uint64_t order, issue_ns, payload_bytes, seq;
  int32_t peer;
  uint16_t group;
  uint8_t code, channels;
};

// Record at once, for there will be no channels to see.
void op_record_enqueued(struct ring *ring, const struct op_facts *facts);

// Begin; returns its generation, 0 if another thread held its place (it is recorded at once then).
uint32_t op_begin(struct comm *comm, struct ring *ring, const struct op_facts *facts);

// A channel starts on the GPU; false if this op knows of no such channel.
bool op_channel_starts(struct comm *comm, unsigned slot, uint32_t generation, unsigned channel,
                       uint64_t now_ns, uint64_t stamp);
// The stamp of its stop.
void op_channel_stamp(struct comm *comm, unsigned slot, uint32_t generation, unsigned channel,
                      uint64_t now_ns, uint64_t stamp);
// The channel has stopped. When all have, the op is recorded.
void op_channel_stops(struct comm *comm, unsigned slot, uint32_t generation, unsigned channel);

// The communicator is over: what is still under way is recorded as far as it was seen.
void op_end_all(struct comm *comm);
