#include "session.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
  MAX_RINGS = 8,  // of one process; it makes another one when its rank changes
  MAX_TRIES = 10,
};
static const uint64_t TICK_NS = UINT64_C(50) * 1000 * 1000;
static const uint64_t ANCHOR_NS = UINT64_C(10) * 1000 * 1000 * 1000;
static const uint64_t RETRY_NS = UINT64_C(30) * 1000 * 1000 * 1000;

static struct {
  _Atomic(struct ring *) ring;
  _Atomic bool dead, capturing, used, identified, settings_read;
  _Atomic uint64_t ticked_ns, next_try_ns;
  _Atomic uint64_t counters[COUNTERS];
  pthread_mutex_t rare;  // for all that follows
  struct agent_settings settings;
  struct nccl_facts facts;
  int rings_made, tries;
  uint64_t anchored_ns;
  // Never unmapped: a thread may still be writing into the one before.
  struct ring rings[MAX_RINGS];
} session = {.rare = PTHREAD_MUTEX_INITIALIZER};

// A child inherits the mapping of its parent's ring, but is another process: not a byte of it may
// come from the child. A child of a process that had not begun is like any other process.
static void after_fork_in_child(void) {
  // A thread that is not here may have held it.
  pthread_mutex_init(&session.rare, NULL);
  if (atomic_load(&session.used)) atomic_store(&session.dead, true);
}

__attribute__((constructor)) static void begin(void) {
  pthread_atfork(NULL, NULL, after_fork_in_child);
}

__attribute__((destructor)) static void end(void) {
  struct ring *ring = atomic_load(&session.ring);
  if (atomic_exchange(&session.dead, true)) return;
  if (ring) ring_say_closed(ring);
}

void count(enum counter counter) {
  atomic_fetch_add_explicit(&session.counters[counter], 1, memory_order_relaxed);
  struct ring *ring = atomic_load_explicit(&session.ring, memory_order_acquire);
  if (ring) ring_add(ring, RING_PLUGIN_COUNTERS_OFFSET + 8 * (size_t)counter, 1);
}

uint64_t counted(enum counter counter) {
  return atomic_load_explicit(&session.counters[counter], memory_order_relaxed);
}

// The caller holds `rare`.
static void read_settings(void) {
  if (atomic_load(&session.settings_read)) return;
  settings_from_environment(&session.settings);
  atomic_store(&session.capturing, session.settings.level >= LEVEL_COLLECTIVES);
  if (session.settings.disabled) atomic_store(&session.dead, true);
  atomic_store(&session.settings_read, true);
}

void session_begin(void) {
  // First a look: in a forked child the lock may be held by a thread that is not there.
  if (atomic_load(&session.settings_read)) return;
  pthread_mutex_lock(&session.rare);
  read_settings();
  pthread_mutex_unlock(&session.rare);
}

void session_settings(struct agent_settings *settings) {
  session_begin();
  pthread_mutex_lock(&session.rare);
  *settings = session.settings;
  pthread_mutex_unlock(&session.rare);
}

static bool is_same(const struct agent_settings *a, const struct agent_settings *b) {
  return a->rank == b->rank && a->local_rank == b->local_rank && a->world_size == b->world_size &&
         a->attempt == b->attempt && !strcmp(a->job, b->job) && !strcmp(a->run_id, b->run_id) &&
         !strcmp(a->node, b->node) && !strcmp(a->runtime_dir, b->runtime_dir);
}

void session_identify(const struct agent_settings *settings) {
  pthread_mutex_lock(&session.rare);
  read_settings();
  struct ring *ring = atomic_load(&session.ring);
  if (ring && !is_same(&session.settings, settings)) {
    atomic_store(&session.ring, NULL);
    ring_say_closed(ring);
    close(ring->fd);  // and with it the lock
  }
  session.settings = *settings;
  session.tries = 0;
  atomic_store(&session.next_try_ns, 0);
  atomic_store(&session.identified, true);
  pthread_mutex_unlock(&session.rare);
}

void session_suggest_rank(int rank, int nranks) {
  pthread_mutex_lock(&session.rare);
  if (session.settings.rank < 0) session.settings.rank = rank;
  if (!session.settings.world_size) session.settings.world_size = (uint32_t)nranks;
  pthread_mutex_unlock(&session.rare);
}

void session_describe_nccl(const struct nccl_facts *facts) {
  pthread_mutex_lock(&session.rare);
  session.facts = *facts;
  pthread_mutex_unlock(&session.rare);
}

bool session_times_kernels(void) {
  pthread_mutex_lock(&session.rare);
  bool kernels = session.facts.kernels;
  pthread_mutex_unlock(&session.rare);
  return kernels;
}

void session_capture(bool on) {
  session_begin();
  atomic_store(&session.capturing, on);
}

bool session_capturing(void) {
  return atomic_load_explicit(&session.capturing, memory_order_relaxed);
}

bool session_alive(void) { return !atomic_load_explicit(&session.dead, memory_order_relaxed); }

void session_counts_as_used(void) { atomic_store(&session.used, true); }

static void write_info(struct ring *ring) {
  // Without ncclGetVersion the interface that NCCL chose tells the oldest that it can be.
  static const char *const oldest[] = {">=2.27.3", ">=2.28.3", ">=2.29.2", ">=2.31.2"};
  char text[128], version[32];
  int number = session.facts.version, abi = session.facts.abi;
  if (number) {
    snprintf(version, sizeof version, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
  } else {
    snprintf(version, sizeof version, "%s", abi >= 4 && abi <= 7 ? oldest[abi - 4] : "");
  }
  int length = snprintf(text, sizeof text,
                        "{\"info\":{\"nccl\":\"%s\",\"plugin_abi\":%d,\"kernels\":\"%s\"}}",
                        version, abi, session.facts.kernels ? "on" : "off");
  ring_meta(ring, text, (size_t)length);
}

static struct ring *make_ring(uint64_t now_ns) {
  pthread_mutex_lock(&session.rare);
  struct ring *ring = atomic_load(&session.ring);
  if (!ring && session_alive() && session.tries < MAX_TRIES && session.rings_made < MAX_RINGS &&
      now_ns >= atomic_load(&session.next_try_ns)) {
    struct ring_identity identity;
    read_settings();
    if (session.settings.rank < 0) session.settings.rank = 0;
    if (!session.settings.world_size) session.settings.world_size = 1;
    identity_of(&session.settings, "nccl", &identity);
    ring = &session.rings[session.rings_made];
    int error = ring_open(ring, session.settings.runtime_dir, &identity, RING_DEFAULT_CAPACITY);
    if (error) {
      // Training goes on and is only counted. There may be room again later.
      ring = NULL;
      ++session.tries;
      atomic_store(&session.next_try_ns, now_ns + RETRY_NS);
      count(COUNT_ERRORS);
    } else {
      ++session.rings_made;
      session.anchored_ns = now_ns;
      write_info(ring);
      for (int counter = 0; counter < COUNTERS; ++counter) {
        ring_add(ring, RING_PLUGIN_COUNTERS_OFFSET + 8 * (size_t)counter,
                 counted((enum counter)counter));
      }
      session_counts_as_used();
      atomic_store_explicit(&session.ring, ring, memory_order_release);
    }
  }
  pthread_mutex_unlock(&session.rare);
  return ring;
}

// What a thread of our own would do. Whoever finds `rare` taken leaves it to the next.
static void tick(struct ring *ring, uint64_t now_ns) {
  ring_heartbeat(ring, 0, now_ns);
  if (pthread_mutex_trylock(&session.rare)) return;
  if (now_ns - session.anchored_ns >= ANCHOR_NS) {
    session.anchored_ns = now_ns;
    ring_anchor(ring);
  }
  // Where hooks told us who we are, they also tell when to capture: they know the steps, we do not.
  struct ring_control control;
  if (!atomic_load(&session.identified) && ring_control(ring, &control)) {
    atomic_store(&session.capturing, control.level >= LEVEL_COLLECTIVES);
    ring_applied(ring, &control);
  }
  pthread_mutex_unlock(&session.rare);
}

struct ring *session_ring(uint64_t now_ns) {
  struct ring *ring = atomic_load_explicit(&session.ring, memory_order_acquire);
  if (ring) {
    uint64_t ticked_ns = atomic_load_explicit(&session.ticked_ns, memory_order_relaxed);
    if (now_ns - ticked_ns >= TICK_NS && now_ns > ticked_ns) {
      atomic_store_explicit(&session.ticked_ns, now_ns, memory_order_relaxed);
      tick(ring, now_ns);
    }
  }
  if (!session_capturing()) return NULL;
  if (!ring && now_ns >= atomic_load_explicit(&session.next_try_ns, memory_order_relaxed)) {
    ring = make_ring(now_ns);
  }
  return ring;
}

uint32_t session_ring_number(const struct ring *ring) {
  return (uint32_t)(ring - session.rings) + 1;
}
