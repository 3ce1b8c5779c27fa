// Ordinary work: several threads, each with communicators of its own; and jobs that make and destroy
// thousands of them.
#include <stdlib.h>

#include "host.h"

static const char *const FUNCS[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"};
static const uint64_t MIXED_HASH = 0x9ace000000000000u;

static void run_one(struct comm *comm, int number) {
  struct op *ops[64];
  int count = 0, ranks = comm->ranks;
  if (options.ce && abi >= 6 && comm->mask & EVENT_CE_COLL && number % options.ce == 0) {
    ops[count++] = op_new(comm, CE, "AllGather", -1, options.bytes);
  } else if (options.p2p && number % options.p2p == 0) {
    int peer = (comm->rank + 1 + (int)random_below(&comm->random, (uint64_t)ranks - 1)) % ranks;
    ops[count++] = op_new(comm, P2P, "Send", peer, options.bytes);
    ops[count++] = op_new(comm, P2P, "Recv", peer, options.bytes);
  } else {
    for (int at = 0; at < options.group; at++)
      ops[count++] = op_new(comm, COLL, FUNCS[(number + at) % 5], number % ranks, options.bytes);
  }
  comm_launch(comm, ops, count);
}

static void *play_thread(void *argument) {
  int thread = (int)(intptr_t)argument;
  struct comm *comms = calloc((size_t)options.comms, sizeof *comms);
  if (!comms) abort();
  for (int at = 0; at < options.comms; at++) {
    int index = thread * options.comms + at;
    char name[32];
    snprintf(name, sizeof name, "group \"%d\"\\", index);  // NCCL takes any text
    comm_open(&comms[at], index, MIXED_HASH + (uint64_t)index, index % 3 ? name : NULL, 8, index % 8);
  }
  for (int number = 0; number < options.collectives; number++)
    run_one(&comms[number % options.comms], number);
  for (int at = 0; at < options.comms; at++) comm_drain(&comms[at]);
  sleep_ms(options.linger_s * 1e3);
  for (int at = 0; at < options.comms; at++) comm_close(&comms[at]);
  return comms;
}

void mode_play(void) {
  pthread_t threads[64];
  struct comm *comms[64];
  for (int at = 0; at < options.threads; at++)
    if (pthread_create(&threads[at], NULL, play_thread, (void *)(intptr_t)at)) abort();
  for (int at = 0; at < options.threads; at++) pthread_join(threads[at], (void **)&comms[at]);
  for (int at = 0; at < options.threads; at++) {
    for (int one = 0; one < options.comms; one++) {
      truth_comm(&comms[at][one]);
      truth_ops(&comms[at][one]);
      comm_free(&comms[at][one]);
    }
    free(comms[at]);
  }
}

// Communicators come and go; handles of those that are gone are used on.
void mode_churn(void) {
  options.late = 2;  // everything on one thread
  struct op *one[1];
  void *stale = NULL;
  for (int at = 0; at < options.comms; at++) {
    struct comm comm;
    comm_open(&comm, at, MIXED_HASH + (uint64_t)at, at % 2 ? "dp" : NULL, 4, at % 4);
    for (int number = 0; number < options.collectives; number++) {
      one[0] = op_new(&comm, COLL, FUNCS[number % 5], 0, options.bytes);
      comm_launch(&comm, one, 1);
      if (!stale) continue;
      uint64_t gpu_ns = gpu_ns_at(mono_ns());
      event_record(stale, STATE_KERNEL_CH_STOP, &gpu_ns);
      event_stop(stale);
      void *late = kernel_start(comm.context, stale, 0, gpu_ns);
      if (late) event_stop(late);
    }
    stale = one[0]->handle;
    comm_close(&comm);
    truth_comm(&comm);
    truth_ops(&comm);
    comm_free(&comm);
  }
}
