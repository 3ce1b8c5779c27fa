// One rank of a job of several processes that meet in collectives, as GPUs would: a rank's kernel
// begins when its stream comes to it and ends when every rank's has begun. Times are true.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

struct work {
  struct work *next;
  double compute_ms;
  struct op *op;  // NULL: computing
};

static struct comm comm;
static struct work *first, **last = &first;
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
    while (!first && !over) pthread_cond_wait(&changed, &lock);
    struct work *work = first;
    pthread_mutex_unlock(&lock);
    if (!work) return nothing;
    if (work->op)
      run_collective(work->op);
    else
      sleep_ms(work->compute_ms);
    pthread_mutex_lock(&lock);
    first = work->next;
    if (!first) last = &first;
    queued--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(work);
  }
}

static void launch(double compute_ms, struct op *op) {
  struct work *work = calloc(1, sizeof *work);
  if (!work) abort();
  work->compute_ms = compute_ms;
  work->op = op;
  pthread_mutex_lock(&lock);
  *last = work;
  last = &work->next;
  queued++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static void synchronize(void) {
  pthread_mutex_lock(&lock);
  while (queued) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

static void run_step(void) {
  double late_ms = options.rank == options.slow_rank ? options.slow_ms : 0;
  if (options.host_bound) sleep_ms(late_ms);
  for (int number = 0; number < options.per_step; number++) {
    double compute_ms = options.compute_ms / options.per_step;
    if (!options.host_bound && number == 0) compute_ms += late_ms;
    launch(compute_ms, NULL);
    struct op *one[] = {op_new(&comm, COLL, "AllReduce", -1, options.bytes)};
    comm_enqueue(&comm, one, 1);
    launch(0, one[0]);
  }
  synchronize();
}

void mode_ranks(void) {
  pthread_t stream;
  open_meetings((size_t)options.steps * (size_t)options.per_step + 2);
  comm_open(&comm, 0, 0x5eed + options.seed, "default_pg", options.world, options.rank);
  meet();  // nobody's first step contains the others' start
  if (pthread_create(&stream, NULL, run_stream, NULL)) abort();
  for (int step = 0; step < options.steps; step++) run_step();
  pthread_mutex_lock(&lock);
  over = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  pthread_join(stream, NULL);
  comm_drain(&comm);
  sleep_ms(options.linger_s * 1e3);
  meet();
  comm_close(&comm);
  truth_comm(&comm);
  truth_ops(&comm);
  comm_free(&comm);
}
