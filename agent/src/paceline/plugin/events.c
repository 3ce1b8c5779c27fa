#include "events.h"

#include <string.h>

#include "op.h"
#include "session.h"

enum { ABI_WITH_COPY_ENGINES = 6 };

static const struct {
  const char *function;
  int op;
} OPERATIONS[] = {
    {"AllReduce", OP_ALL_REDUCE},
    {"AllGather", OP_ALL_GATHER},
    {"ReduceScatter", OP_REDUCE_SCATTER},
    {"Broadcast", OP_BROADCAST},
    {"Send", OP_SEND},
    {"Recv", OP_RECV},
    {"Reduce", OP_REDUCE},
    {"AlltoAll", OP_ALL_TO_ALL},
    {"Gather", OP_GATHER},
    {"Scatter", OP_SCATTER},
    {"AllGatherV", OP_ALL_GATHER},
};

int op_of_function(const char *function) {
  for (size_t at = 0; function && at < sizeof OPERATIONS / sizeof *OPERATIONS; ++at) {
    if (!strcmp(function, OPERATIONS[at].function)) return OPERATIONS[at].op;
  }
  return OP_UNKNOWN;
}

// Every name says its bits: ncclInt8, ncclFloat32, ncclBfloat16, ncclFloat8e4m3.
uint64_t bytes_of_datatype(const char *datatype) {
  if (!datatype) return 0;
  while (*datatype && (*datatype < '0' || *datatype > '9')) ++datatype;
  uint64_t bits = 0;
  for (; *datatype >= '0' && *datatype <= '9' && bits < 1000; ++datatype) {
    bits = bits * 10 + (uint64_t)(*datatype - '0');
  }
  return bits / 8;
}

uint64_t payload_of(int op, uint64_t count, uint64_t element_bytes, int ranks) {
  uint64_t bytes = count * element_bytes;  // AllGather and Broadcast come as so many ncclInt8
  switch (op) {
    case OP_ALL_GATHER:      // count is one rank's part of the output
    case OP_REDUCE_SCATTER:  // and here of the input
    case OP_ALL_TO_ALL:
    case OP_GATHER:
    case OP_SCATTER:
      return bytes * (uint64_t)ranks;
    default:
      return bytes;
  }
}

static bool has_root(int op) {
  return op == OP_BROADCAST || op == OP_REDUCE || op == OP_GATHER || op == OP_SCATTER;
}

// Both kinds: count it, and record or follow it. `facts` lacks what every kind has alike.
static void *op_enqueued(struct comm *comm, struct op_facts *facts, bool follow) {
  // Counted whether or not anything is captured: the numbers of all ranks must stay alike.
  facts->order = atomic_fetch_add_explicit(&comm->orders, 1, memory_order_relaxed);
  facts->issue_ns = mono_now_ns();
  struct ring *ring = session_ring(facts->issue_ns);
  if (!ring) {
    if (session_capturing()) count(COUNT_LOST_RECORDS);
    return NULL;
  }
  int group = comm_group(comm, ring);
  if (group < 0) {
    count(COUNT_LOST_RECORDS);
    return NULL;
  }
  facts->group = (uint16_t)group;
  if (!follow) {
    op_record_enqueued(ring, facts);
    return NULL;
  }
  uint32_t generation = op_begin(comm, ring, facts);
  if (!generation) return NULL;
  return handle_pack(HANDLE_OP, comm, (unsigned)(facts->order % OPS), generation, 0);
}

static void *coll_starts(struct comm *comm, const struct event *event, bool by_copy_engine) {
  int op = op_of_function(event->coll.function);
  uint64_t element_bytes = bytes_of_datatype(event->coll.datatype);
  struct op_facts facts = {
      .payload_bytes = payload_of(op, event->coll.count, element_bytes, comm->ranks),
      .seq = atomic_fetch_add_explicit(&comm->collectives, 1, memory_order_relaxed),
      .peer = has_root(op) ? event->coll.root : -1,
      .code = (uint8_t)op,
  };
  if (by_copy_engine) return op_enqueued(comm, &facts, false);  // no kernel, so no channels
  facts.channels = event->coll.channels <= NCCL_MAX_CHANNELS ? event->coll.channels : 0;
  return op_enqueued(comm, &facts, comm->kernels);
}

static void *p2p_starts(struct comm *comm, const struct event *event) {
  int op = op_of_function(event->p2p.function);
  int peer = event->p2p.peer;
  _Atomic uint32_t *peers = comm->peers;
  if (!peers || peer < 0 || peer >= comm->ranks) {
    count(COUNT_LOST_RECORDS);
    return NULL;
  }
  _Atomic uint32_t *counter = &peers[(size_t)peer * 2 + (op == OP_RECV)];
  struct op_facts facts = {
      .payload_bytes =
          payload_of(op, event->p2p.count, bytes_of_datatype(event->p2p.datatype), comm->ranks),
      .seq = atomic_fetch_add_explicit(counter, 1, memory_order_relaxed),
      .peer = peer,
      .code = (uint8_t)op,
  };
  if (peer == comm->rank) {
    // A copy within the GPU, as in every all-to-all: NCCL reports none of its channels. It would
    // seem to be under way for ever, and its all-to-all to have no times.
    atomic_fetch_add_explicit(&comm->orders, 1, memory_order_relaxed);
    return NULL;
  }
  if (comm->trusts_p2p && event->p2p.channels <= NCCL_MAX_CHANNELS) {
    facts.channels = event->p2p.channels;
  }
  return op_enqueued(comm, &facts, comm->kernels);
}

static void *channel_starts(struct comm *comm, const struct event *event) {
  struct handle parent = handle_unpack(event->parent);
  if (parent.kind != HANDLE_OP || parent.comm != comm->index) {
    if (event->parent) count(COUNT_FOREIGN);
    return NULL;
  }
  unsigned channel = event->channel.channel;
  if (channel >= NCCL_MAX_CHANNELS ||
      !op_channel_starts(comm, parent.slot, parent.generation, channel, mono_now_ns(),
                         event->channel.stamp)) {
    count(COUNT_STALE);
    return NULL;
  }
  return handle_pack(HANDLE_CHANNEL, comm, parent.slot, parent.generation, channel);
}

void event_starts(void *context, void **handle, uint64_t type, const struct event *event) {
  if (!handle) return;
  *handle = NULL;  // always: NCCL hands us whatever lies there as the parent of later events
  bool ours = type == EVENT_COLL || type == EVENT_P2P || type == EVENT_KERNEL_CHANNEL ||
              type == EVENT_GROUP || type == EVENT_CE_COLL;
  if (!ours || !event || !session_alive()) return;
  struct comm *comm = comm_of(context);
  if (!comm) return;
  switch (type) {
    case EVENT_COLL:
      *handle = coll_starts(comm, event, false);
      break;
    case EVENT_CE_COLL:
      if (comm->abi >= ABI_WITH_COPY_ENGINES) *handle = coll_starts(comm, event, true);
      break;
    case EVENT_P2P:
      *handle = p2p_starts(comm, event);
      break;
    case EVENT_KERNEL_CHANNEL:
      if (comm->kernels) *handle = channel_starts(comm, event);
      break;
    default:
      // NCCL 2.27 reports collectives only under a group that we have accepted.
      if (comm->abi == 4) *handle = handle_pack(HANDLE_OTHER, comm, 0, 0, 0);
  }
}

void event_stops(void *value) {
  struct handle handle = handle_unpack(value);
  // The stop of a collective means that it is enqueued: there is nothing to do.
  if (handle.kind != HANDLE_CHANNEL || !session_alive()) return;
  struct comm *comm = comm_at(handle.comm);
  if (comm) op_channel_stops(comm, handle.slot, handle.generation, handle.channel);
}

void event_changes(void *value, int state, const struct state_args *args) {
  struct handle handle = handle_unpack(value);
  if (state != STATE_KERNEL_CHANNEL_STOP || handle.kind != HANDLE_CHANNEL || !args ||
      !session_alive()) {
    return;
  }
  struct comm *comm = comm_at(handle.comm);
  if (comm) {
    op_channel_stamp(comm, handle.slot, handle.generation, handle.channel, mono_now_ns(),
                     args->stamp);
  }
}
