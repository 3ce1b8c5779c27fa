// What NCCL finds: ncclProfiler_v4 to ncclProfiler_v7. It tries the newest first, so the oldest
// version here that it knows nothing newer than tells how old it is at least.
//
// No function returns an error, whatever happens: NCCL 2.27 takes one badly at unload, and none of
// our troubles is the job's.
#include <stdlib.h>
#include <string.h>

#include "events.h"
#include "nccl.h"
#include "op.h"
#include "session.h"

enum {
  // NCCL 2.26 and 2.27 report channels from a queue that can overflow (nccl issue 2039).
  FIRST_WITH_SAFE_KERNELS = 22800,
  FIRST_ABI_WITH_SAFE_KERNELS = 5,
  FIRST_ABI_WITH_COPY_ENGINES = 6,
};

#define PUBLIC __attribute__((visibility("default")))

static bool wants_kernels(int version, int abi, int level) {
  const char *choice = getenv("PACELINE_NCCL_KERNELS");
  if (choice && !strcmp(choice, "on")) return true;
  if ((choice && !strcmp(choice, "off")) || level < LEVEL_FULL) return false;
  return version ? version >= FIRST_WITH_SAFE_KERNELS : abi >= FIRST_ABI_WITH_SAFE_KERNELS;
}

static void open_communicator(void **context, int *mask, struct comm_facts *facts,
                              const void *caller, nccl_logger log) {
  if (!context) return;
  *context = NULL;
  session_begin();
  if (!session_alive() || !mask) return;
  session_counts_as_used();
  session_suggest_rank(facts->rank, facts->ranks);
  struct agent_settings settings;
  session_settings(&settings);
  struct nccl_facts nccl = {.abi = facts->abi};
  void *logger = NULL;
  memcpy(&logger, &log, sizeof logger);
  nccl.version = nccl_version(caller, logger);
  nccl.kernels =
      !nccl_is_amds(caller, logger) && wants_kernels(nccl.version, facts->abi, settings.level);
  session_describe_nccl(&nccl);
  facts->kernels = nccl.kernels;
  // NCCL's own translation from a newer version to 4 leaves the number of channels unset.
  facts->trusts_p2p = facts->abi > 4 || (nccl.version && nccl.version < FIRST_WITH_SAFE_KERNELS);
  facts->device = cuda_device();
  *context = comm_open(facts);
  int wanted = EVENT_COLL | EVENT_P2P;
  if (nccl.kernels) wanted |= EVENT_KERNEL_CHANNEL;
  if (facts->abi >= FIRST_ABI_WITH_COPY_ENGINES) wanted |= EVENT_CE_COLL;
  // One mask for the whole process, which other threads are reading.
  __atomic_fetch_or(mask, wanted, __ATOMIC_RELAXED);
}

static int open_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks,
                   int rank, nccl_logger log) {
  struct comm_facts facts = {
      .name = name, .hash = hash, .rank = rank, .ranks = ranks, .nodes = nodes, .abi = 4};
  open_communicator(context, mask, &facts, __builtin_return_address(0), log);
  return NCCL_SUCCESS;
}

#define OPEN_FROM_V5(abi_version)                                                          \
  static int open_v##abi_version(void **context, uint64_t id, int *mask, const char *name, \
                                 int nodes, int ranks, int rank, nccl_logger log) {        \
    struct comm_facts facts = {.name = name,                                               \
                               .hash = id,                                                 \
                               .rank = rank,                                               \
                               .ranks = ranks,                                             \
                               .nodes = nodes,                                             \
                               .abi = abi_version};                                        \
    open_communicator(context, mask, &facts, __builtin_return_address(0), log);            \
    return NCCL_SUCCESS;                                                                   \
  }
OPEN_FROM_V5(5)
OPEN_FROM_V5(6)
OPEN_FROM_V5(7)

static int start_v4(void *context, void **handle, void *event) {
  // One byte: what lies behind it in the word is whatever NCCL's stack held.
  event_starts(context, handle, event ? *(const uint8_t *)event : 0, event);
  return NCCL_SUCCESS;
}

static int start(void *context, void **handle, void *event) {
  event_starts(context, handle, event ? ((const struct event *)event)->type : 0, event);
  return NCCL_SUCCESS;
}

static int stop(void *handle) {
  event_stops(handle);
  return NCCL_SUCCESS;
}

static int change(void *handle, int state, void *args) {
  event_changes(handle, state, args);
  return NCCL_SUCCESS;
}

static int finalize(void *context) {
  if (!session_alive()) return NCCL_SUCCESS;
  struct comm *comm = comm_of(context);
  if (comm && comm_close(comm, handle_unpack(context).generation)) {
    op_end_all(comm);
    comm_release(comm);
  }
  return NCCL_SUCCESS;
}

#define NAME "Paceline"
PUBLIC const struct profiler_v4 ncclProfiler_v4 = {NAME,   open_v4,  start_v4, stop,
                                                   change, finalize, {NULL}};
PUBLIC const struct profiler_v5 ncclProfiler_v5 = {NAME,   open_v5,  start, stop,
                                                   change, finalize, {NULL}};
PUBLIC const struct profiler_v5 ncclProfiler_v6 = {NAME,   open_v6,  start, stop,
                                                   change, finalize, {NULL}};
PUBLIC const struct profiler_v5 ncclProfiler_v7 = {NAME,   open_v7,  start, stop,
                                                   change, finalize, {NULL}};
