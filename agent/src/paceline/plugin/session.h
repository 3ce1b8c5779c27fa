// The state of the process: its one ring, whether anything is captured, and what was lost.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "identity.h"
#include "ring.h"

// What did not go as it should. Counted here, and in the ring from RING_PLUGIN_COUNTERS_OFFSET on
// (docs/ring.md); only ever added to. Nothing that happens often is counted here.
enum counter {
  COUNT_ERRORS,              // a ring that could not be made
  COUNT_LOST_RECORDS,        // collectives that were not recorded: no ring, or no group number left
  COUNT_LOST_TIMES,          // collectives whose device times were not plausible
  COUNT_PARTIAL,             // collectives of which some channels were not seen
  COUNT_STALE,               // events of something that is over
  COUNT_FOREIGN,             // events whose parent is not of this communicator
  COUNT_CONTENDED,           // events given up because another thread held their collective
  COUNT_LOST_COMMUNICATORS,  // beyond what there is room for
  COUNTERS,
};

void count(enum counter counter);
uint64_t counted(enum counter counter);

// What is true of the NCCL that loaded us; goes into the ring's metadata.
struct nccl_facts {
  int version, abi;
  bool kernels;
};

// Read the environment, once.
void session_begin(void);
void session_settings(struct agent_settings *settings);
// Tell who this process is, instead of the environment. A ring of somebody else ends.
void session_identify(const struct agent_settings *settings);
// For who was not told the rank by anybody: the first communicator's is better than none.
void session_suggest_rank(int rank, int nranks);
void session_describe_nccl(const struct nccl_facts *facts);
// Whether the newest communicator was told to report its kernels.
bool session_times_kernels(void);

// The ring, made at the first call. NULL while nothing is captured, or when it cannot be made.
struct ring *session_ring(uint64_t now_ns);
// Tells one ring of this process from the next.
uint32_t session_ring_number(const struct ring *ring);

void session_capture(bool on);
bool session_capturing(void);
// False in a forked child, when disabled, and once the process is ending: touch nothing.
bool session_alive(void);
void session_counts_as_used(void);
