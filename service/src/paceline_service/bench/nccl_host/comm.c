// A communicator as NCCL drives it: the application's thread enqueues, a thread of the communicator
// polls the simulated GPU and reports when each channel began and ended.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host.h"

enum { WINDOW = 16, LAUNCH_NS = 1500 };

static const char *datatype_of(const char *func, int *size) {
  *size = 1;
  if (!strcmp(func, "AllGather") || !strcmp(func, "Broadcast")) return "ncclInt8";
  if (!strcmp(func, "ReduceScatter")) return *size = 2, "ncclBfloat16";
  return *size = 4, "ncclFloat32";
}

int expects_kernels(const struct comm *comm) { return comm->mask & EVENT_KERNEL_CH; }

static int is_rooted(const char *func) { return !strcmp(func, "Broadcast") || !strcmp(func, "Reduce"); }

struct op *op_new(struct comm *comm, enum kind kind, const char *func, int peer, uint64_t bytes) {
  struct op *op = calloc(1, sizeof *op);
  if (!op) abort();
  op->kind = kind;
  op->func = func;
  op->peer = kind == P2P || is_rooted(func) ? peer : -1;
  op->channels = options.channels;
  op->direction = !strcmp(func, "Recv");
  uint64_t *peers = op->direction ? comm->received : comm->sent;
  op->seq = kind == P2P ? peers[peer % 64]++ : comm->seq++;
  op->bytes = bytes;
  *comm->all_end = op;
  comm->all_end = &op->next;
  return op;
}

static struct event *describe(struct comm *comm, struct op *op, void *group, void *api) {
  int size, declared = op->channels;
  const char *datatype = datatype_of(op->func, &size);
  if (options.lie) declared += (int)random_below(&comm->random, 3) - 1;
  uint64_t type = op->kind == COLL ? EVENT_COLL : op->kind == P2P ? EVENT_P2P : EVENT_CE_COLL;
  struct event *event = event_new(type, abi == 4 ? group : api, comm->rank);
  switch (op->kind) {
    case COLL:
      event->coll.seq = op->seq;
      event->coll.func = op->func;
      event->coll.send = event->coll.receive = op;
      event->coll.count = op->bytes / (size_t)size;
      event->coll.root = op->peer < 0 ? 0 : op->peer;
      event->coll.datatype = datatype;
      event->coll.channels = (uint8_t)declared;
      event->coll.warps = 16;
      event->coll.algo = "RING";
      event->coll.proto = "SIMPLE";
      if (abi > 4) event->coll.group = group;
      break;
    case P2P:
      event->p2p.func = op->func;
      event->p2p.buffer = op;
      event->p2p.datatype = datatype;
      event->p2p.count = op->bytes / (size_t)size;
      event->p2p.peer = op->peer;
      if (abi > 4)
        event->p2p.channels = (uint8_t)declared, event->p2p.group = group;
      else if (random_below(&comm->random, 2))  // else: really uninitialised, for memcheck
        event->p2p.channels = (uint8_t)next_random(&comm->random);
      break;
    case CE:
      event->ce.seq = op->seq;
      event->ce.func = op->func;
      event->ce.count = op->bytes / (size_t)size;
      event->ce.datatype = datatype;
      event->ce.sync = "UC";
  }
  return event;
}

// The events around those that a plugin subscribes to: NCCL sends them for their children's sake.
void comm_enqueue(struct comm *comm, struct op **ops, int count) {
  void *group_api = NULL, *api[64] = {0};
  if (abi > 4 && !options.graph) {
    group_api = plain_start(comm->context, EVENT_GROUP_API, NULL, comm->rank);
    if (group_api) event_record(group_api, STATE_GROUP_STARTED, NULL);
    for (int at = 0; at < count; at++) {
      uint64_t type = ops[at]->kind == P2P ? EVENT_P2P_API : EVENT_COLL_API;
      api[at] = plain_start(comm->context, type, group_api, comm->rank);
      if (api[at]) event_stop(api[at]);
    }
    if (group_api) event_record(group_api, STATE_GROUP_ENDING, NULL);
  }
  void *group = plain_start(comm->context, EVENT_GROUP, NULL, comm->rank);
  for (int at = 0; at < count; at++) {
    struct op *op = ops[at];
    void *parent = options.graph ? comm->stale : api[at];
    struct event *event = describe(comm, op, group, parent);
    if (comm->launches % 8 == 0) sleep_ms(options.preempt_ms);
    op->called_ns = mono_ns();
    op->handle = event_start(comm->context, event);
    op->enqueued_ns = mono_ns();
    if (options.late != 1 && op->kind == CE && op->handle) event_stop(op->handle);
  }
  if (options.late == 2)
    for (int at = 0; at < count; at++) comm_deliver(comm, ops[at]);
  for (int at = 0; at < count; at++)
    if (ops[at]->handle && ops[at]->kind != CE) event_stop(ops[at]->handle);
  if (group) event_stop(group);
  if (group_api) event_stop(group_api);
}

// All of a launch share the times of one kernel, channel by channel.
static void run_kernel(struct comm *comm, struct op **ops, int count) {
  uint64_t now = mono_ns();
  uint64_t start = (now > comm->gpu_free_ns ? now : comm->gpu_free_ns) + LAUNCH_NS;
  uint64_t run = (uint64_t)(options.kernel_us * 1e3);
  uint64_t stop = start + run + random_below(&comm->random, run / 2 + 1);
  uint64_t launch = comm->launches++;
  for (int channel = 0; channel < options.channels; channel++) {
    uint64_t begun = start + random_below(&comm->random, 2000);
    uint64_t ended = stop - random_below(&comm->random, run / 4 + 1);
    for (int at = 0; at < count; at++) {
      ops[at]->start_ns[channel] = begun;
      ops[at]->stop_ns[channel] = ended > begun ? ended : begun;
    }
  }
  for (int at = 0; at < count; at++) {
    if (options.lose_every && launch % (uint64_t)options.lose_every == 0)
      ops[at]->lost = 1ull << random_below(&comm->random, (uint64_t)options.channels);
    atomic_store(&ops[at]->stopped, 1);
  }
  comm->gpu_free_ns = stop;
}

void comm_launch(struct comm *comm, struct op **ops, int count) {
  run_kernel(comm, ops, count);
  comm_enqueue(comm, ops, count);
  if (options.late == 2) return;
  for (int at = 0; at < count; at++) comm_post(comm, ops[at]);
}

static uint64_t all_channels(const struct op *op) {
  return (op->channels == 64 ? 0 : 1ull << op->channels) - 1;
}

static void begin_channel(struct comm *comm, struct op *op, int channel) {
  op->begun |= 1ull << channel;
  op->kernel[channel] =
      kernel_start(comm->context, op->handle, channel, gpu_ns_at(op->start_ns[channel]));
  atomic_fetch_add(&op->reported, 1);
}

static void end_channel(struct op *op, int channel, void *handle) {
  op->ended |= 1ull << channel;
  if (!handle) return;
  uint64_t gpu_ns = gpu_ns_at(op->stop_ns[channel]);
  event_record(handle, STATE_KERNEL_CH_STOP, &gpu_ns);
  event_stop(handle);
}

// What polling finds: the beginning of a channel, and its end at the next look.
static int poll_op(struct comm *comm, struct op *op) {
  int stopped = atomic_load(&op->stopped);
  uint64_t now = mono_ns(), wanted = all_channels(op) & ~op->lost;
  for (int channel = 0; channel < op->channels; channel++) {
    uint64_t bit = 1ull << channel;
    if (!(wanted & bit) || op->ended & bit) continue;
    if (!(op->begun & bit)) {
      if (now >= op->start_ns[channel]) begin_channel(comm, op, channel);
    } else if (stopped && now >= op->stop_ns[channel]) {
      end_channel(op, channel, op->kernel[channel]);
    }
  }
  return (op->ended & wanted) == wanted;
}

void comm_deliver(struct comm *comm, struct op *op) {
  if (!expects_kernels(comm) || op->kind == CE) return;
  while (!poll_op(comm, op)) sched_yield();
}

// The operation that a channel is at, in the order of launching; with 3 any operation.
static struct op *at_channel(struct comm *comm, struct op **ops, int count, int channel) {
  uint64_t bit = 1ull << channel;
  int at = options.reorder == 3 ? (int)random_below(&comm->order, (uint64_t)count) : 0;
  for (; at < count; at++)
    if (channel < ops[at]->channels && !((ops[at]->lost | ops[at]->ended) & bit)) return ops[at];
  return NULL;
}

// Many operations, their channels in any order. NCCL keeps the order within a channel; with 3 that is
// lost too. With 2 an end may be seen before its beginning, and then belongs to whatever event used
// that place before.
static void shuffle_ops(struct comm *comm, struct op **ops, int count) {
  int left = 0;
  for (int at = 0; at < count; at++) {
    for (int channel = 0; channel < ops[at]->channels; channel++)
      sleep_until(ops[at]->stop_ns[channel]);
    left += __builtin_popcountll(all_channels(ops[at]) & ~ops[at]->lost);
  }
  while (left) {
    int channel = (int)random_below(&comm->order, (uint64_t)options.channels);
    struct op *op = at_channel(comm, ops, count, channel);
    if (!op) continue;
    uint64_t bit = 1ull << channel;
    if (op->begun & bit) {
      end_channel(op, channel, op->kernel[channel]);
      comm->stale = op->kernel[channel];
      left--;
    } else if (options.reorder == 2 && random_below(&comm->order, 50) == 0) {
      op->unpaired |= bit;
      end_channel(op, channel, comm->stale);
      begin_channel(comm, op, channel);
      left--;
    } else {
      begin_channel(comm, op, channel);
    }
  }
}

struct posted {
  struct op *op;
  struct posted *next;
};

static void *report(void *argument) {
  struct comm *comm = argument;
  struct op *window[WINDOW];
  int count = 0;
  double stall_ms = options.stall_ms;
  for (;;) {
    pthread_mutex_lock(&comm->lock);
    while (!comm->queue && !count && !comm->closing) pthread_cond_wait(&comm->changed, &comm->lock);
    while (comm->queue && count < WINDOW) {
      struct posted *first = comm->queue;
      window[count++] = first->op;
      comm->queue = first->next;
      if (!comm->queue) comm->queue_end = &comm->queue;
      free(first);
    }
    pthread_mutex_unlock(&comm->lock);
    if (!count) return NULL;
    sleep_ms(stall_ms);
    stall_ms = 0;
    int done = 0, kept = 0;
    if (options.reorder) {
      sleep_ms(0.2);
      shuffle_ops(comm, window, count);
      done = count;
    } else {
      for (int at = 0; at < count; at++)
        if (poll_op(comm, window[at]))
          done++;
        else
          window[kept++] = window[at];
    }
    count = kept;
    pthread_mutex_lock(&comm->lock);
    int give_up = comm->closing;
    comm->undelivered -= done;
    if (done) pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    if (give_up && count) return NULL;  // destroyed while collectives hang
    if (!done) nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
  }
}

void comm_post(struct comm *comm, struct op *op) {
  if (!expects_kernels(comm) || op->kind == CE) return;
  struct posted *posted = calloc(1, sizeof *posted);
  if (!posted) abort();
  posted->op = op;
  pthread_mutex_lock(&comm->lock);
  *comm->queue_end = posted;
  comm->queue_end = &posted->next;
  comm->undelivered++;
  pthread_cond_broadcast(&comm->changed);
  while (options.burst > 0 && comm->undelivered >= options.burst)
    pthread_cond_wait(&comm->changed, &comm->lock);
  pthread_mutex_unlock(&comm->lock);
}

void comm_drain(struct comm *comm) {
  pthread_mutex_lock(&comm->lock);
  while (comm->undelivered) pthread_cond_wait(&comm->changed, &comm->lock);
  pthread_mutex_unlock(&comm->lock);
}

void comm_open(
    struct comm *comm, int index, uint64_t hash, const char *name, int ranks, int rank) {
  memset(comm, 0, sizeof *comm);
  comm->index = index;
  comm->hash = hash;
  comm->rank = rank;
  comm->ranks = ranks;
  comm->nodes = 1;
  comm->random = options.seed * 1000003u + (uint64_t)index + 1;
  comm->order = ~comm->random;
  comm->queue_end = &comm->queue;
  comm->all_end = &comm->all;
  pthread_mutex_init(&comm->lock, NULL);
  pthread_cond_init(&comm->changed, NULL);
  if (name) snprintf(comm->name, sizeof comm->name, "%s", name);
  plugin_init(&comm->context, hash, &comm->mask, name, comm->nodes, ranks, rank);
  if (options.mode && options.burst >= 0 && options.late != 2) {
    comm->has_thread = 1;
    if (pthread_create(&comm->thread, NULL, report, comm)) abort();
  }
}

void comm_close(struct comm *comm) {
  if (comm->has_thread) {
    pthread_mutex_lock(&comm->lock);
    comm->closing = 1;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->thread, NULL);
  }
  if (comm->context) plugin_finalize(comm->context);
}

void comm_free(struct comm *comm) {
  for (struct posted *posted = comm->queue, *next; posted; posted = next) {
    next = posted->next;
    free(posted);
  }
  for (struct op *op = comm->all, *next; op; op = next) {
    next = op->next;
    free(op);
  }
  comm->all = NULL;
}
