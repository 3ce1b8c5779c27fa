// A program that plays NCCL for a profiler plugin: communicators, their threads, a simulated GPU.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "abi.h"

#define MAX_CHANNELS 64

struct options {
  const char *mode, *plugin, *path;
  int abi;
  int threads, comms, collectives, channels, group, p2p, ce, burst;
  int late, reorder, lose_every, lie, graph;
  int rank, world, steps, per_step, host_bound, hooks;
  double compute_ms, slow_ms, kernel_us, linger_s, stall_ms, preempt_ms;
  int slow_rank;
  uint64_t bytes, seed, events;
  int64_t gpu_offset_ns;
  uint64_t gpu_tick_ns;
  double gpu_drift_ppm;
  const char *job;
};
extern struct options options;

// plugin.c: the library under test. Every call is checked: it returns 0 and writes the handle.
extern int abi;
extern atomic_long violations;
extern const struct profiler *profiler;
void plugin_load(void);
void *plugin_symbol(const char *name);
void plugin_unload(void);
int plugin_init(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks,
                int rank);
void plugin_finalize(void *context);
struct event *event_new(uint64_t type, void *parent, int rank);
void *event_start(void *context, struct event *event);  // frees it
void *plain_start(void *context, uint64_t type, void *parent, int rank);
void *kernel_start(void *context, void *parent, int channel, uint64_t gpu_ns);
void event_stop(void *handle);
void event_record(void *handle, int state, const uint64_t *value);  // NULL: no arguments
void violation(const char *format, ...);

// clock.c
uint64_t mono_ns(void);
uint64_t gpu_ns_at(uint64_t mono);
void sleep_until(uint64_t mono);
void sleep_ms(double ms);
void clock_begin(void);
uint64_t next_random(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t limit);

// comm.c
enum kind { COLL, P2P, CE };

struct op {
  struct op *next;
  enum kind kind;
  const char *func;
  int peer, channels, direction;
  uint64_t seq, bytes;
  uint64_t called_ns, enqueued_ns;  // before and after startEvent, monotonic
  uint64_t start_ns[MAX_CHANNELS];  // of the kernel, monotonic: what truly happened
  uint64_t stop_ns[MAX_CHANNELS];
  uint64_t lost, unpaired, begun, ended;  // a bit a channel
  atomic_int stopped;                     // stop_ns can be read
  atomic_int reported;                    // channels whose beginning the plugin was told
  int pending;                            // never gets all its times
  void *handle;
  void *kernel[MAX_CHANNELS];
};

struct comm {
  void *context;
  uint64_t hash;
  char name[32];
  int index, rank, ranks, nodes, mask;
  uint64_t seq, random, gpu_free_ns, launches;
  uint64_t order;  // random numbers of the reporting thread
  uint64_t sent[64], received[64];
  void *stale;  // a handle of an event that is long over
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct posted *queue, **queue_end;  // waiting for the reporting thread
  struct op *all, **all_end;

  int undelivered, closing, has_thread;
};

void comm_open(struct comm *comm, int index, uint64_t hash, const char *name, int ranks, int rank);
struct op *op_new(struct comm *comm, enum kind kind, const char *func, int peer, uint64_t bytes);
void comm_launch(struct comm *comm, struct op **ops, int count);   // a simulated kernel runs them
void comm_enqueue(struct comm *comm, struct op **ops, int count);  // the caller posts them later
void comm_post(struct comm *comm, struct op *op);
void comm_deliver(struct comm *comm, struct op *op);  // all its kernel events, from this thread
void comm_drain(struct comm *comm);
void comm_close(struct comm *comm);
void comm_free(struct comm *comm);
int expects_kernels(const struct comm *comm);

// truth.c: what was done, one JSON object a line
void truth_comm(const struct comm *comm);
void truth_ops(const struct comm *comm);
void truth_end(void);

// modes
void mode_play(void);
void mode_churn(void);
void mode_faults(void);
void mode_fuzz(void);
void mode_fork(void);
void mode_kill(void);
void mode_hang(void);
void mode_bench(void);
void mode_ranks(void);

