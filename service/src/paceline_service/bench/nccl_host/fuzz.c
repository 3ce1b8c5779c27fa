// Callbacks in an order that no NCCL would make, from several threads, with handles of each other.
#include <stdlib.h>

#include "host.h"

enum { POOL = 512, CONTEXTS = 8 };

static _Atomic(void *) handles[POOL], contexts[CONTEXTS];
static const uint64_t TYPES[] = {EVENT_COLL, EVENT_COLL,  EVENT_P2P,    EVENT_KERNEL_CH,
                                 EVENT_KERNEL_CH, EVENT_KERNEL_CH, EVENT_CE_COLL, EVENT_PROXY_OP,
                                 EVENT_GROUP, EVENT_COLL_API, EVENT_NET, 0};
static const char *const FUNCS[] = {"AllReduce", "AllGather", "Send", "Recv", "Reduce", "", NULL};
static const char *const DATATYPES[] = {"ncclInt8", "ncclFloat32", "ncclBfloat16", "?", NULL};

static void *any_handle(uint64_t *random) {
  if (random_below(random, 50) == 0) return (void *)(uintptr_t)next_random(random);
  return atomic_load(&handles[random_below(random, POOL)]);
}

static void *any_context(uint64_t *random) {
  return atomic_load(&contexts[random_below(random, CONTEXTS)]);
}

static uint64_t any_time(uint64_t *random) {
  if (random_below(random, 20) == 0) return next_random(random);
  return gpu_ns_at(mono_ns()) - random_below(random, 100000);
}

static void start_any(uint64_t *random) {
  uint64_t type = TYPES[random_below(random, sizeof TYPES / sizeof *TYPES)];
  struct event *event = event_new(type, any_handle(random), (int)random_below(random, 8));
  // v4's descriptor ends behind coll.proto: nothing newer may be touched.
  if (type == EVENT_COLL || (type == EVENT_CE_COLL && abi > 4)) {
    event->coll.seq = next_random(random);
    event->coll.func = FUNCS[random_below(random, 7)];
    event->coll.count = random_below(random, 3) ? random_below(random, 1 << 20) : SIZE_MAX;
    event->coll.root = (int)random_below(random, 9) - 1;
    event->coll.datatype = DATATYPES[random_below(random, 5)];
    if (type == EVENT_COLL) event->coll.channels = (uint8_t)random_below(random, 66);
  } else if (type == EVENT_P2P) {
    event->p2p.func = FUNCS[random_below(random, 7)];
    event->p2p.datatype = DATATYPES[random_below(random, 5)];
    event->p2p.count = next_random(random);
    event->p2p.peer = (int)random_below(random, 70) - 2;
  } else if (type == EVENT_KERNEL_CH) {
    event->kernel.channel = (uint8_t)random_below(random, random_below(random, 4) ? 16 : 256);
    event->kernel.gpu_ns = any_time(random);
  } else if (type == EVENT_PROXY_OP) {
    event->proxy_op.pid = (int)random_below(random, 1 << 20);
    event->proxy_op.channel = (uint8_t)random_below(random, 256);
  }
  void *handle = event_start(any_context(random), event);
  atomic_store(&handles[random_below(random, POOL)], handle);
}

static void renew_context(uint64_t *random) {
  int mask = 0;
  void *fresh = NULL;
  plugin_init(&fresh, random_below(random, 16), &mask, "fuzz", 1, 8, 0);
  void *old = atomic_exchange(&contexts[random_below(random, CONTEXTS)], fresh);
  if (old) plugin_finalize(old);
}

static void *fuzz_thread(void *argument) {
  uint64_t random = options.seed * 31 + (uint64_t)(intptr_t)argument + 1;
  for (uint64_t done = 0; done < options.events; done++) {
    uint64_t roll = random_below(&random, 1000), time = any_time(&random);
    if (roll < 450)
      start_any(&random);
    else if (roll < 700)
      event_stop(any_handle(&random));
    else if (roll < 940)
      event_record(any_handle(&random), STATE_KERNEL_CH_STOP, &time);
    else if (roll < 998)
      event_record(any_handle(&random), (int)random_below(&random, 34), NULL);
    else
      renew_context(&random);
  }
  return NULL;
}

void mode_fuzz(void) {
  uint64_t random = options.seed;
  for (int at = 0; at < 4 * CONTEXTS; at++) renew_context(&random);
  pthread_t threads[64];
  for (int at = 0; at < options.threads; at++)
    if (pthread_create(&threads[at], NULL, fuzz_thread, (void *)(intptr_t)at)) abort();
  for (int at = 0; at < options.threads; at++) pthread_join(threads[at], NULL);
  for (int at = 0; at < CONTEXTS; at++)
    if (atomic_load(&contexts[at])) plugin_finalize(atomic_load(&contexts[at]));
}
