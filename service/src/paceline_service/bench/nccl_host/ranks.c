// One rank of a job of several processes that meet in collectives, as GPUs would: a rank's kernel
// begins when its stream comes to it and ends when every rank's has begun. Times are true.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hooks.h"
#include "host.h"

struct work {
  struct work *next;
  double compute_ms;
  struct op *op;  // NULL: computing
  uint64_t start_ns, end_ns;
};

static struct comm comm;
static struct work *first, **end = &first;  // of the step
static struct work *next;                   // not done yet
static uint64_t stream_ns;                  // when the stream ended its last work
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int queued, over;
static atomic_uint *arrived;  // how many ranks have come to each meeting
static unsigned meetings;

static void open_meetings(size_t count) {
  int fd = open(options.path, O_RDWR | O_CREAT, 0600);
  size_t size = count * sizeof *arrived;
  if (fd < 0 || ftruncate(fd, (off_t)size)) {
    perror("ncclhost: --path");
    exit(2);
  }
  arrived = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (arrived == MAP_FAILED) abort();
}

// Returns when all ranks have come.
static void meet(void) {
  atomic_uint *here = &arrived[meetings++];
  atomic_fetch_add(here, 1);
  while (atomic_load(here) < (unsigned)options.world)
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void run_collective(struct op *op) {
  uint64_t now = mono_ns();
  for (int channel = 0; channel < op->channels; channel++) op->start_ns[channel] = now;
  comm_post(&comm, op);
  meet();
  sleep_ms(options.kernel_us / 1e3);
  now = mono_ns();
  for (int channel = 0; channel < op->channels; channel++) op->stop_ns[channel] = now;
  atomic_store(&op->stopped, 1);
}

static void *run_stream(void *nothing) {
  for (;;) {
    pthread_mutex_lock(&lock);
    while (!next && !over) pthread_cond_wait(&changed, &lock);
    struct work *work = next;
    pthread_mutex_unlock(&lock);
    if (!work) return nothing;
    work->start_ns = mono_ns();
    if (work->op)
      run_collective(work->op);
    else
      sleep_ms(work->compute_ms);
    work->end_ns = mono_ns();
    pthread_mutex_lock(&lock);
    next = work->next;
    stream_ns = work->end_ns;
    queued--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
  }
}

static struct work *launch(double compute_ms, struct op *op) {
  struct work *work = calloc(1, sizeof *work);
  if (!work) abort();
  work->compute_ms = compute_ms;
  work->op = op;
  pthread_mutex_lock(&lock);
  *end = work;
  end = &work->next;
  if (!next) next = work;
  queued++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return work;
}

static void synchronize(void) {
  pthread_mutex_lock(&lock);
  while (queued) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

// The work of a step that is over.
static void forget(void) {
  while (first) {
    struct work *work = first;
    first = work->next;
    free(work);
  }
  end = &first;
}

// Forward is one kernel, backward one before each collective; the host runs ahead and waits for the
// GPU at the end. The slow rank's data loader is slow, or its forward on the GPU.
static void run_step(int step) {
  double late_ms = options.rank == options.slow_rank ? options.slow_ms : 0;
  double forward_ms = options.compute_ms / 3, backward_ms = options.compute_ms - forward_ms;
  uint64_t begun = mono_ns(), idle_ns = stream_ns;  // a step on the GPU begins where the last ended
  sleep_ms(options.host_bound ? late_ms : 0);
  uint64_t loaded = mono_ns();
  struct work *forward = launch(forward_ms + (options.host_bound ? 0 : late_ms), NULL);
  uint64_t forwarded = mono_ns();
  struct work *backward = NULL;
  for (int number = 0; number < options.per_step; number++) {
    struct work *work = launch(backward_ms / options.per_step, NULL);
    if (!backward) backward = work;
    struct op *one[] = {op_new(&comm, COLL, "AllReduce", -1, options.bytes)};
    uint64_t called = mono_ns();
    comm_enqueue(&comm, one, 1);
    launch(0, one[0]);
    hooks_all_reduce(one[0]->seq, step, options.bytes, called, mono_ns());
  }
  uint64_t issued = mono_ns();
  synchronize();
  uint64_t done = mono_ns();
  hooks_phase(PHASE_INPUT, step, begun, loaded, 0, 0);
  hooks_phase(PHASE_FORWARD, step, loaded, forwarded, 0, 0);
  hooks_phase(PHASE_BACKWARD, step, forwarded, issued, 0, 0);
  hooks_phase(PHASE_FORWARD, step, forward->start_ns, forward->end_ns, loaded, 1);
  hooks_phase(PHASE_BACKWARD, step, backward->start_ns, stream_ns, forwarded, 1);
  hooks_step(step, begun, done, 0);
  if (idle_ns) hooks_step(step, idle_ns, stream_ns, 1);
  forget();
}

void mode_ranks(void) {
  pthread_t stream;
  open_meetings((size_t)options.steps * (size_t)options.per_step + 2);
  comm_open(&comm, 0, 0x5eed + options.seed, "default_pg", options.world, options.rank);
  if (options.hooks) hooks_open(options.rank, options.world);
  meet();  // nobody's first step contains the others' start
  if (pthread_create(&stream, NULL, run_stream, NULL)) abort();
  for (int step = 0; step < options.steps; step++) run_step(step);
  pthread_mutex_lock(&lock);
  over = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  pthread_join(stream, NULL);
  comm_drain(&comm);
  sleep_ms(options.linger_s * 1e3);
  meet();
  comm_close(&comm);
  hooks_close();
  truth_comm(&comm);
  truth_ops(&comm);
  comm_free(&comm);
}
