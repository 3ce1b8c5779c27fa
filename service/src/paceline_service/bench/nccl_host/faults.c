// What goes wrong beside work that goes well: the work must be recorded as if nothing had been.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static struct comm good;

static void good_work(int count) {
  struct op *one[1];
  for (int number = 0; number < count; number++) {
    one[0] = op_new(&good, COLL, "AllReduce", -1, options.bytes);
    comm_launch(&good, one, 1);
  }
}

static void use(void *handle) {
  uint64_t gpu_ns = gpu_ns_at(mono_ns());
  event_record(handle, STATE_KERNEL_CH_STOP, &gpu_ns);
  event_record(handle, STATE_KERNEL_CH_STOP, NULL);
  for (int state = -1; state < 40; state++) event_record(handle, state, NULL);
  event_stop(handle);
  event_stop(handle);
  void *child = kernel_start(good.context, handle, 0, gpu_ns);
  if (child) {
    event_record(child, STATE_KERNEL_CH_STOP, &gpu_ns);
    event_stop(child);
  }
}

static void foreign_handles(void) {
  static int object;
  uint64_t random = options.seed;
  use(NULL);
  use(&object);
  use((void *)~(uintptr_t)0);
  for (int bit = 0; bit < 64; bit++) use((void *)((uintptr_t)1 << bit));
  for (int at = 0; at < 2000; at++) use((void *)(uintptr_t)next_random(&random));
}

static struct event *coll(const char *func, const char *datatype, size_t count, int channels) {
  struct event *event = event_new(EVENT_COLL, NULL, 0);
  event->coll.seq = 1;
  event->coll.func = func;
  event->coll.send = event->coll.receive = NULL;
  event->coll.count = count;
  event->coll.root = 0;
  event->coll.datatype = datatype;
  event->coll.channels = (uint8_t)channels;
  event->coll.warps = 0;
  event->coll.algo = event->coll.proto = NULL;
  return event;
}

// A second communicator takes what is malformed: what is recorded of it is of no interest.
static void malformed_events(void) {
  void *context = NULL;
  int mask = 0;
  plugin_init(&context, 0, &mask, NULL, 0, 0, -1);
  char endless[4096];
  memset(endless, 'x', sizeof endless - 1);
  endless[sizeof endless - 1] = 0;
  const char *const texts[] = {NULL, "", "Invalid", "all_reduce", endless};
  for (size_t func = 0; func < 5; func++)
    for (size_t type = 0; type < 5; type++)
      use(event_start(context, coll(texts[func], texts[type], SIZE_MAX, func % 2 ? 0 : 255)));
  for (int bit = 0; bit < 64; bit++) {
    struct event *event = event_new(1ull << bit, NULL, 1 << 30);
    if (abi == 4) memset((char *)event + 24, 0, 80);
    void *handle = event_start(context, event);
    if (handle) use(handle);
  }
  uint64_t now = gpu_ns_at(mono_ns());
  const uint64_t times[][2] = {
      {now, now - 5000000},        {0, 0},   {now, 0},
      {0, now},                    {UINT64_MAX, UINT64_MAX}, {now - 3600000000000u, now},
      {now, now + 3600000000000u}, {1, 2},
  };
  for (size_t at = 0; at < sizeof times / sizeof *times; at++) {
    void *handle = event_start(context, coll("AllReduce", "ncclFloat32", 1, 1));
    for (int channel = 0; channel < 256; channel += 51) {
      void *kernel = kernel_start(context, handle, channel, times[at][0]);
      event_record(kernel, STATE_KERNEL_CH_STOP, &times[at][1]);
      event_stop(kernel);
    }
    event_stop(handle);
  }
  plugin_finalize(context);
  use(event_start(context, coll("AllReduce", "ncclFloat32", 1, 1)));  // after the end
  plugin_finalize(context);
  plugin_finalize(NULL);
  plugin_finalize(&context);
  use(event_start(NULL, coll("AllReduce", "ncclFloat32", 1, 1)));
  use(event_start(&context, coll("AllReduce", "ncclFloat32", 1, 1)));
}

// So many unfinished operations that every place was used many times over.
static void worn_out_handles(void) {
  void *context = NULL, **handles = calloc(options.events, sizeof *handles);
  if (!handles) abort();
  int mask = 0;
  plugin_init(&context, 0xdead, &mask, "worn", 1, 2, 0);
  for (uint64_t at = 0; at < options.events; at++) {
    handles[at] = event_start(context, coll("AllReduce", "ncclFloat32", 1, 2));
    event_stop(handles[at]);
    if (at % 97 == 0) good_work(1);
  }
  for (uint64_t at = 0; at < options.events; at += 37) use(handles[at]);
  plugin_finalize(context);
  for (uint64_t at = 0; at < options.events; at += 41) use(handles[at]);
  free(handles);
}

static void foreign_proxies(void) {
  struct event *event = event_new(EVENT_PROXY_OP, good.all ? good.all->handle : NULL, 0);
  event->proxy_op.pid = getpid() + 1;  // another process of this node works for us
  event->proxy_op.channel = 1;
  event->proxy_op.peer = 3;
  event->proxy_op.steps = 4;
  event->proxy_op.chunk_bytes = 65536;
  event->proxy_op.is_send = 1;
  void *handle = event_start(good.context, event);
  if (handle) use(handle);
}

void mode_faults(void) {
  comm_open(&good, 0, 0x600d, "good", 4, 1);
  good_work(options.collectives);
  foreign_handles();
  good_work(options.collectives);
  malformed_events();
  good_work(options.collectives);
  worn_out_handles();
  foreign_proxies();
  good_work(options.collectives);
  comm_drain(&good);
  comm_close(&good);
  truth_comm(&good);
  truth_ops(&good);
  comm_free(&good);
}

// A child of fork inherits the plugin and must not write its parent's ring.
void mode_fork(void) {
  options.late = 2;  // a child has no other threads
  comm_open(&good, 0, 0xf0, "parent", 4, 0);
  good_work(options.collectives);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    struct comm own;
    good_work(options.collectives);
    for (struct op *op = good.all; op; op = op->next) event_stop(op->handle);
    comm_open(&own, 1, 0xf1, "child", 4, 0);
    struct op *one[] = {op_new(&own, COLL, "AllReduce", -1, options.bytes)};
    comm_launch(&own, one, 1);
    comm_close(&own);
    comm_close(&good);
    _exit(atomic_load(&violations) ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status) violation("the child ended with %d", status);
  good_work(options.collectives);
  printf("{\"type\":\"ready\"}\n");
  fflush(stdout);
  sleep_ms(options.linger_s * 1e3);
  comm_close(&good);
  truth_comm(&good);
  truth_ops(&good);
  comm_free(&good);
}

// Writes until somebody kills it.
void mode_kill(void) {
  options.late = 2;
  options.kernel_us = 0;
  comm_open(&good, 0, 0x4b, "killed", 4, 0);
  good_work(1);
  printf("{\"type\":\"ready\"}\n");
  fflush(stdout);
  for (;;) {
    good_work(100);
    comm_free(&good);
    good.all_end = &good.all;
  }
}

// Some collectives end, one began and hangs, one never begins.
void mode_hang(void) {
  comm_open(&good, 0, 0x4a49, "hung", 4, 2);
  good_work(options.collectives);
  comm_drain(&good);
  for (int at = 0; at < 2; at++) {
    struct op *one[] = {op_new(&good, COLL, at ? "AllGather" : "ReduceScatter", -1, options.bytes)};
    one[0]->pending = 1;
    comm_enqueue(&good, one, 1);
    for (int channel = 0; channel < options.channels; channel++)
      one[0]->start_ns[channel] = at ? UINT64_MAX : mono_ns();
    comm_post(&good, one[0]);
    while (!at && expects_kernels(&good) && atomic_load(&one[0]->reported) < options.channels)
      sleep_ms(1);
  }
  printf("{\"type\":\"ready\"}\n");
  fflush(stdout);
  sleep_ms(options.linger_s * 1e3);
  comm_close(&good);
  truth_comm(&good);
  truth_ops(&good);
  comm_free(&good);
}
