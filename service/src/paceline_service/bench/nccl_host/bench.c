// What the plugin costs: time of the calls that an application's thread makes for a collective, and
// of those that the profiler's thread makes. Descriptors are prepared before the clock starts.
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { BLOCK = 64, COLD_CALLS = 300, CACHE_BYTES = 8 << 20, LINE_BYTES = 64 };

struct job {
  struct comm comm;
  uint64_t *collective_ns, *callback_ns;
  uint64_t cold_ns[COLD_CALLS];
  int blocks;
};

static int by_size(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return a < b ? -1 : a > b;
}

// The two functions whose instructions callgrind collects: see plugin.py.
__attribute__((noinline)) void bench_collectives(void *context, struct event *event, void **handles) {
  for (int at = 0; at < BLOCK; at++) {
    event->coll.seq++;
    profiler->start(context, &handles[at], event);
    profiler->stop(handles[at]);
  }
}

__attribute__((noinline)) void bench_callbacks(void *context, struct event *event, void **handles) {
  union state state = {.gpu_ns = event->kernel.gpu_ns + 10240};
  for (int at = 0; at < BLOCK; at++) {
    event->parent = handles[at];
    for (int channel = 0; channel < options.channels; channel++) {
      void *handle;
      event->kernel.channel = (uint8_t)channel;
      profiler->start(context, &handle, event);
      profiler->record(handle, STATE_KERNEL_CH_STOP, &state);
      profiler->stop(handle);
    }
  }
}

// A collective after the job has used its caches for other things.
static void bench_cold(struct job *job, struct event *coll, struct event *kernel) {
  static volatile char others[CACHE_BYTES];
  void *handles[BLOCK], *handle;
  for (int call = 0; call < COLD_CALLS; call++) {
    for (int at = 0; at < CACHE_BYTES; at += LINE_BYTES) others[at]++;
    uint64_t begun = mono_ns();
    profiler->start(job->comm.context, &handle, coll);
    profiler->stop(handle);
    uint64_t done = mono_ns();
    uint64_t nothing = mono_ns() - done;
    job->cold_ns[call] = done - begun > nothing ? done - begun - nothing : 0;
    for (int at = 0; at < BLOCK; at++) handles[at] = NULL;
    handles[0] = handle;
    kernel->kernel.gpu_ns = gpu_ns_at(done);
    bench_callbacks(job->comm.context, kernel, handles);
  }
}

static void *bench_thread(void *argument) {
  struct job *job = argument;
  void *handles[BLOCK];
  struct event coll = {.type = EVENT_COLL}, kernel = {.type = EVENT_KERNEL_CH};
  coll.coll.func = "AllReduce";
  coll.coll.count = 1 << 20;
  coll.coll.datatype = "ncclFloat32";
  coll.coll.channels = (uint8_t)options.channels;
  coll.coll.warps = 16;
  coll.coll.algo = "RING";
  coll.coll.proto = "SIMPLE";
  for (int block = 0; block < job->blocks; block++) {
    uint64_t begun = mono_ns();
    bench_collectives(job->comm.context, &coll, handles);
    uint64_t enqueued = mono_ns();
    sleep_until(enqueued + 20000);  // the kernels run
    kernel.kernel.gpu_ns = gpu_ns_at(enqueued + 2000);
    uint64_t reported = mono_ns();
    bench_callbacks(job->comm.context, &kernel, handles);
    job->callback_ns[block] = mono_ns() - reported;
    job->collective_ns[block] = enqueued - begun;
  }
  if (options.threads == 1) bench_cold(job, &coll, &kernel);
  return NULL;
}

void mode_bench(void) {
  struct job *jobs = calloc((size_t)options.threads, sizeof *jobs);
  pthread_t threads[64];
  if (!jobs) abort();
  int blocks = options.collectives / BLOCK, burst = options.burst;
  options.burst = -1;  // no threads of their own
  for (int at = 0; at < options.threads; at++) {
    jobs[at].blocks = blocks;
    jobs[at].collective_ns = calloc((size_t)blocks, sizeof(uint64_t));
    jobs[at].callback_ns = calloc((size_t)blocks, sizeof(uint64_t));
    comm_open(&jobs[at].comm, at, 0xbe + (uint64_t)at, "bench", 8, 0);
  }
  options.burst = burst;
  for (int at = 0; at < options.threads; at++)
    if (pthread_create(&threads[at], NULL, bench_thread, &jobs[at])) abort();
  for (int at = 0; at < options.threads; at++) {
    pthread_join(threads[at], NULL);
    qsort(jobs[at].collective_ns, (size_t)blocks, sizeof(uint64_t), by_size);
    qsort(jobs[at].callback_ns, (size_t)blocks, sizeof(uint64_t), by_size);
    qsort(jobs[at].cold_ns, COLD_CALLS, sizeof(uint64_t), by_size);
    printf("{\"type\":\"bench\",\"collectives\":%d,\"channels\":%d,\"collective_ns\":%.1f,"
           "\"callback_ns\":%.1f,\"cold_ns\":%llu,\"kernels\":%s}\n",
           blocks * BLOCK, options.channels,
           (double)jobs[at].collective_ns[blocks / 2] / BLOCK,
           (double)jobs[at].callback_ns[blocks / 2] / (BLOCK * 3 * options.channels),
           (unsigned long long)jobs[at].cold_ns[COLD_CALLS / 2],
           expects_kernels(&jobs[at].comm) ? "true" : "false");
    comm_close(&jobs[at].comm);
    free(jobs[at].collective_ns);
    free(jobs[at].callback_ns);
  }
  free(jobs);
}
