// The communicators that NCCL has told us of, and the collectives of each that are under way.
//
// Everything lies in one arena of which only what is used takes memory. Nothing of it is ever given
// back, because NCCL up to 2.30 may call with what it was handed long ago. What NCCL is handed are
// numbers, never addresses: where a thing lies and which generation of it is meant. A place is used
// again under the next generation, so an old number finds nothing.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "clock.h"
#include "ring.h"

enum {
  MAX_COMMS = 4096,  // alive at once in one process
  OPS = 256,         // of one communicator, issued and not released; then the oldest is given up
  NEAR_PEERS = 256,  // peers whose counters need no memory of their own
  MAX_NAME_BYTES = 128,
};

// A collective from its enqueueing until its last channel has stopped on the GPU.
struct op {
  // generation * 2 + (1 while a thread holds it). An odd generation is under way. All that follows
  // is read and written by the thread that holds it.
  _Atomic uint64_t word;
  struct ring *ring;
  uint64_t order, issue_ns, payload_bytes, seq;
  uint64_t first_stamp, last_stamp;    // of the GPU; 0: none yet
  uint64_t started, stopped, stamped;  // channels, as bits; stamped: with a stop that can be right
  int32_t peer;
  uint16_t group;
  uint8_t code;
  uint8_t channels;  // how many there will be; 0: nobody knows
  int8_t entry;      // slot in the in-flight table, -1 none
  bool doubtful;     // a stamp was missing or cannot be right
};

struct comm {
  _Atomic uint32_t generation;  // odd while NCCL may use it
  uint32_t index;
  _Atomic uint64_t hash;
  _Atomic int rank, ranks, nodes, abi;
  _Atomic bool kernels;     // NCCL reports channels on the GPU
  _Atomic bool trusts_p2p;  // p2p.nChannels is set
  struct gpu_clock *_Atomic clock;
  _Atomic uint64_t described;    // number of the ring that explains it << 32 | its group there
  _Atomic uint64_t collectives;  // sequence number of the next one
  _Atomic uint64_t orders;       // ops begun, of both kinds; op n lies at n mod OPS
  _Atomic uint32_t untabled;     // ops under way that found the in-flight table full
  _Atomic uint64_t untabled_from;
  _Atomic uint32_t uncounted;     // ops under way of which nobody knows how many channels there are
  _Atomic uint32_t stale_stamps;  // in a row
  _Atomic uint32_t *_Atomic peers;  // p2p counters: peer * 2 + (1 for receive)
  uint32_t far_peers_room;
  _Atomic uint32_t *far_peers;
  char name[MAX_NAME_BYTES];
  _Atomic uint64_t done[NCCL_MAX_CHANNELS];  // start of the last op that stopped on the channel
  _Atomic uint32_t near_peers[NEAR_PEERS * 2];
  struct op ops[OPS];
};

// Handles and contexts.
enum handle_kind { HANDLE_NONE = 0, HANDLE_OP = 1, HANDLE_CHANNEL = 2, HANDLE_OTHER = 3 };
struct handle {
  enum handle_kind kind;
  unsigned channel, slot, comm;
  uint32_t generation;
};
void *handle_pack(enum handle_kind kind, const struct comm *comm, unsigned slot,
                  uint32_t generation, unsigned channel);
struct handle handle_unpack(const void *value);

struct comm_facts {
  const char *name;
  uint64_t hash;
  int rank, ranks, nodes, abi;
  bool kernels, trusts_p2p;
  int device;
};

// The context for NCCL; NULL when there is no room (counted).
void *comm_open(const struct comm_facts *facts);
// The communicator of a context, NULL if that is over (counted).
struct comm *comm_of(const void *context);
struct comm *comm_at(unsigned index);
// From now on its context finds nothing. False if it was over already.
bool comm_close(struct comm *comm, uint32_t generation);
// Its place may be used by another one.
void comm_release(struct comm *comm);

// The index that explains it in the ring's metadata, which is written at the first call; -1 when
// there are no numbers left.
int comm_group(struct comm *comm, struct ring *ring);

uint64_t comms_opened(void);
// Collectives and point-to-point operations seen, captured or not.
uint64_t comms_ops_seen(void);
