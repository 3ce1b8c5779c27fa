// NCCL's profiler interface, versions 4 to 7, as far as we use it: our own declarations of what
// NCCL documents (docs/plugin.md). Where a field lies is the same in all four versions.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Types of events; a plugin asks for them as bits of its activation mask.
enum {
  EVENT_GROUP = 1 << 0,
  EVENT_COLL = 1 << 1,
  EVENT_P2P = 1 << 2,
  EVENT_KERNEL_CHANNEL = 1 << 6,
  EVENT_CE_COLL = 1 << 12,  // from version 6 on
};

enum { STATE_KERNEL_CHANNEL_STOP = 22 };
enum { NCCL_SUCCESS = 0 };
enum { NCCL_MAX_CHANNELS = 64 };

// A collective; one by the copy engines (CeColl) begins with the same fields, up to datatype.
struct coll_event {
  uint64_t sequence;  // counts per function, and differently by version: not used
  const char *function;
  const void *send_buffer, *receive_buffer;
  size_t count;
  int root;
  const char *datatype;
  uint8_t channels, warps;
};

struct p2p_event {
  const char *function;
  void *buffer;
  const char *datatype;
  size_t count;
  int peer;
  uint8_t channels;
};

struct channel_event {
  uint8_t channel;
  uint64_t stamp;  // of the GPU's global timer
};

struct event {
  uint64_t type;  // in version 4 one byte; the seven behind it are never set
  void *parent;
  int rank;
  union {
    struct coll_event coll;
    struct p2p_event p2p;
    struct channel_event channel;
  };
};

struct state_args {
  uint64_t stamp;  // first in the union of arguments
};

_Static_assert(offsetof(struct event, parent) == 8, "profiler ABI");
_Static_assert(offsetof(struct event, rank) == 16, "profiler ABI");
_Static_assert(offsetof(struct event, coll) == 24, "profiler ABI");
_Static_assert(offsetof(struct event, coll.function) == 32, "profiler ABI");
_Static_assert(offsetof(struct event, coll.count) == 56, "profiler ABI");
_Static_assert(offsetof(struct event, coll.root) == 64, "profiler ABI");
_Static_assert(offsetof(struct event, coll.datatype) == 72, "profiler ABI");
_Static_assert(offsetof(struct event, coll.channels) == 80, "profiler ABI");
_Static_assert(offsetof(struct event, p2p.datatype) == 40, "profiler ABI");
_Static_assert(offsetof(struct event, p2p.count) == 48, "profiler ABI");
_Static_assert(offsetof(struct event, p2p.peer) == 56, "profiler ABI");
_Static_assert(offsetof(struct event, p2p.channels) == 60, "profiler ABI");
_Static_assert(offsetof(struct event, channel.channel) == 24, "profiler ABI");
_Static_assert(offsetof(struct event, channel.stamp) == 32, "profiler ABI");

typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line,
                            const char *format, ...);

// What NCCL looks up by name. The spare words are zero: forks of NCCL have put functions there.
struct profiler_v4 {
  const char *name;
  int (*init)(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks,
              int rank, nccl_logger log);
  int (*start_event)(void *context, void **handle, void *event);
  int (*stop_event)(void *handle);
  int (*record_state)(void *handle, int state, void *args);
  int (*finalize)(void *context);
  void *spare[8];
};

struct profiler_v5 {  // and 6, and 7
  const char *name;
  int (*init)(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks,
              int rank, nccl_logger log);
  int (*start_event)(void *context, void **handle, void *event);
  int (*stop_event)(void *handle);
  int (*record_state)(void *handle, int state, void *args);
  int (*finalize)(void *context);
  void *spare[8];
};
