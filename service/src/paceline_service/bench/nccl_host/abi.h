// NCCL's profiler interface, ABI v4 to v7, written down from its public headers as far as a caller
// needs it. One descriptor serves all: each version only adds behind what the one before had.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  EVENT_GROUP = 1 << 0,
  EVENT_COLL = 1 << 1,
  EVENT_P2P = 1 << 2,
  EVENT_PROXY_OP = 1 << 3,
  EVENT_PROXY_STEP = 1 << 4,
  EVENT_PROXY_CTRL = 1 << 5,
  EVENT_KERNEL_CH = 1 << 6,
  EVENT_NET = 1 << 7,
  EVENT_GROUP_API = 1 << 8,
  EVENT_COLL_API = 1 << 9,
  EVENT_P2P_API = 1 << 10,
  EVENT_LAUNCH = 1 << 11,
  EVENT_CE_COLL = 1 << 12,
};

enum { STATE_KERNEL_CH_STOP = 22, STATE_GROUP_STARTED = 23, STATE_GROUP_ENDING = 24 };

struct event {
  uint64_t type;  // v4: one byte, the other seven are padding
  void *parent;
  int rank;
  union {
    struct {
      uint64_t seq;
      const char *func;
      const void *send;
      void *receive;
      size_t count;
      int root;
      const char *datatype;
      uint8_t channels, warps;
      const char *algo, *proto;
      void *group;          // v5
      const char *variant;  // v7
      bool symmetric;
      uint64_t tag;
    } coll;
    struct {
      const char *func;
      void *buffer;
      const char *datatype;
      size_t count;
      int peer;
      uint8_t channels;  // v4: left as it was by NCCL 2.28 and later
      void *group;       // v5
      uint64_t tag;      // v7
    } p2p;
    struct {
      int pid;
      uint8_t channel;
      int peer, steps, chunk_bytes, is_send;
    } proxy_op;
    struct {
      uint8_t channel;
      uint64_t gpu_ns;
    } kernel;
    struct {
      uint64_t seq;
      const char *func;
      const void *send;
      void *receive;
      size_t count;
      int root;
      const char *datatype, *sync;
      bool intra_batch;
      uint32_t batch_size, batches, ce_seq;
      void *stream;
      uint64_t tag;  // v7
    } ce;
  };
};

_Static_assert(offsetof(struct event, parent) == 8, "parent");
_Static_assert(offsetof(struct event, coll) == 24, "union");
_Static_assert(offsetof(struct event, coll.channels) == 80, "coll");
_Static_assert(offsetof(struct event, coll.proto) == 96, "coll");
_Static_assert(offsetof(struct event, p2p.channels) == 60, "p2p");
_Static_assert(offsetof(struct event, kernel.gpu_ns) == 32, "kernel");
_Static_assert(offsetof(struct event, ce.stream) == 104, "ce");
_Static_assert(sizeof(struct event) == 136, "v7");

union state {
  uint64_t gpu_ns;
  size_t sent_bytes;
  int appended;
  void *data;
};

typedef void logger(int level, unsigned long flags, const char *file, int line, const char *, ...);
typedef int init_v4(
    void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank,
    logger *log);
typedef int init_v5(
    void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, int rank,
    logger *log);

struct profiler {
  const char *name;
  union {
    init_v4 *v4;
    init_v5 *v5;
  } init;
  int (*start)(void *context, void **handle, struct event *event);
  int (*stop)(void *handle);
  int (*record)(void *handle, int state, union state *arguments);
  int (*finalize)(void *context);
};

