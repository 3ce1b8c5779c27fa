#include "hooks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

enum {
  KIND_COLLECTIVE = 1,
  KIND_PHASE = 2,
  KIND_STEP = 3,
  OP_ALL_REDUCE = 1,
  FLAG_GPU_TIME = 4,
  FLAG_HOST_RETURN = 64,
  CAPACITY = 16384,
};

// As in plugin/ring.h.
struct ring_identity {
  const char *job, *run_id, *node, *boot_id, *producer;
  uint64_t time_namespace, created_wall_ns, created_mono_ns;
  uint32_t attempt, world_size, pid;
  int32_t rank, local_rank;
  uint8_t incarnation[16];
};

static void *ring;
static void *(*ring_open)(const char *, const struct ring_identity *, uint32_t, int *);
static void (*ring_record)(void *, uint8_t, uint8_t, uint16_t, uint64_t, uint32_t, int32_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t, uint32_t);
static int (*ring_meta)(void *, const char *);
static void (*ring_heartbeat)(void *, uint64_t);
static void (*ring_close)(void *);

static void find(void *to, const char *name) {
  void *symbol = plugin_symbol(name);
  if (!symbol) {
    fprintf(stderr, "ncclhost: --hooks needs %s of the plugin\n", name);
    exit(2);
  }
  memcpy(to, &symbol, sizeof symbol);
}

static const char *from_environment(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

void hooks_open(int rank, int world) {
  find(&ring_open, "paceline_ring_open");
  find(&ring_record, "paceline_ring_record");
  find(&ring_meta, "paceline_ring_meta");
  find(&ring_heartbeat, "paceline_ring_heartbeat");
  find(&ring_close, "paceline_ring_close");
  char boot[64] = "", host[65] = "", text[160];
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (file) {
    if (fgets(boot, sizeof boot, file)) boot[strcspn(boot, "\n")] = 0;
    fclose(file);
  }
  struct stat space = {0};
  stat("/proc/self/ns/time", &space);
  gethostname(host, sizeof host - 1);
  struct timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  struct ring_identity identity = {
      .job = from_environment("PACELINE_JOB", "job"),
      .run_id = from_environment("PACELINE_RUN_ID", "run"),
      .node = from_environment("SLURMD_NODENAME", from_environment("NODE_NAME", host)),
      .boot_id = boot,
      .producer = "hooks",
      .time_namespace = space.st_ino,
      .created_wall_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec,
      .created_mono_ns = mono_ns(),
      .world_size = (uint32_t)world,
      .pid = (uint32_t)getpid(),
      .rank = rank,
      .local_rank = rank,
  };
  uint64_t random = identity.created_wall_ns ^ (uint64_t)getpid() << 32;
  for (size_t at = 0; at < sizeof identity.incarnation; at++)
    identity.incarnation[at] = (uint8_t)(next_random(&random) >> 56);
  int error = 0;
  ring = ring_open(from_environment("PACELINE_RUNTIME_DIR", "/dev/shm"), &identity, CAPACITY, &error);
  if (!ring) {
    fprintf(stderr, "ncclhost: no ring of hooks: %s\n", strerror(error));
    exit(2);
  }
  snprintf(text, sizeof text,
           "{\"group\":0,\"name\":\"0\",\"ranks\":\"0-%d\",\"epoch\":0,\"mesh_dim\":\"\","
           "\"backend\":\"nccl\"}",
           world - 1);
  ring_meta(ring, text);
}

static void add(int kind, int code, uint64_t seq, int step, uint64_t bytes, uint64_t start_ns,
                  uint64_t end_ns, uint64_t issue_ns, uint32_t flags) {
  if (ring)
    ring_record(ring, (uint8_t)kind, (uint8_t)code, 0, seq, (uint32_t)step, -1, bytes, start_ns,
                end_ns, 0, issue_ns, flags);
}

void hooks_phase(int phase, int step, uint64_t start_ns, uint64_t end_ns, uint64_t issue_ns, int gpu) {
  add(KIND_PHASE, phase, 0, step, 0, start_ns, end_ns, issue_ns, gpu ? FLAG_GPU_TIME : 0);
}

void hooks_step(int step, uint64_t start_ns, uint64_t end_ns, int gpu) {
  add(KIND_STEP, 0, 0, step, 0, start_ns, end_ns, 0, gpu ? FLAG_GPU_TIME : 0);
  if (ring) ring_heartbeat(ring, (uint64_t)step);
}

void hooks_all_reduce(uint64_t seq, int step, uint64_t bytes, uint64_t called_ns, uint64_t back_ns) {
  add(KIND_COLLECTIVE, OP_ALL_REDUCE, seq, step, bytes, called_ns, back_ns, called_ns,
        FLAG_HOST_RETURN);
}

void hooks_close(void) {
  if (ring) ring_close(ring);
  ring = NULL;
}
