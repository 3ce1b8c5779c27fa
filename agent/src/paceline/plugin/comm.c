#include "comm.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "session.h"

_Static_assert(sizeof(void *) == 8, "a handle takes 64 bits");
enum { MAX_GROUPS = 1 << 16, CLOCKS = 17 };

static struct {
  pthread_mutex_t rare;  // held while communicators come, go, or are described
  struct comm *_Atomic all;
  uint16_t free[MAX_COMMS];
  int free_count, used;
  uint32_t groups_ring, groups;  // how many groups that ring explains
  _Atomic uint64_t opened, ops_seen;
  struct gpu_clock clocks[CLOCKS];  // of unknown GPUs together, then one for each GPU
} arena = {.rare = PTHREAD_MUTEX_INITIALIZER};

void *handle_pack(enum handle_kind kind, const struct comm *comm, unsigned slot,
                  uint32_t generation, unsigned channel) {
  uint64_t value = (uint64_t)generation << 32 | (uint64_t)comm->index << 16 |
                   (uint64_t)(slot & 0xFF) << 8 | (uint64_t)(channel & 0x3F) << 2 | kind;
  return (void *)(uintptr_t)value;
}

struct handle handle_unpack(const void *pointer) {
  uint64_t value = (uint64_t)(uintptr_t)pointer;
  return (struct handle){
      .kind = (enum handle_kind)(value & 3),
      .channel = value >> 2 & 0x3F,
      .slot = value >> 8 & 0xFF,
      .comm = value >> 16 & 0xFFFF,
      .generation = (uint32_t)(value >> 32),
  };
}

struct comm *comm_at(unsigned index) {
  struct comm *all = atomic_load_explicit(&arena.all, memory_order_acquire);
  return all && index < MAX_COMMS ? &all[index] : NULL;
}

struct comm *comm_of(const void *context) {
  struct handle handle = handle_unpack(context);
  struct comm *comm = handle.kind == HANDLE_OTHER ? comm_at(handle.comm) : NULL;
  if (!comm || atomic_load_explicit(&comm->generation, memory_order_acquire) != handle.generation) {
    if (context) count(COUNT_STALE);
    return NULL;
  }
  return comm;
}

// Pages are zero, and take no memory before they are used. The caller holds `rare`.
static void *pages(size_t size) {
  void *found =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? NULL : found;
}

// Counters for every peer; those of a large communicator get pages of their own, which stay.
static void find_room_for_peers(struct comm *comm, int ranks) {
  if (ranks <= NEAR_PEERS) {
    memset((void *)comm->near_peers, 0, sizeof comm->near_peers);
    atomic_store(&comm->peers, comm->near_peers);
    return;
  }
  size_t size = (size_t)ranks * 2 * sizeof *comm->far_peers;
  if (comm->far_peers_room < (uint32_t)ranks) {
    uint32_t room = NEAR_PEERS;
    while (room < (uint32_t)ranks) room *= 2;
    comm->far_peers = pages((size_t)room * 2 * sizeof *comm->far_peers);
    comm->far_peers_room = comm->far_peers ? room : 0;
  } else {
    memset((void *)comm->far_peers, 0, size);
  }
  atomic_store(&comm->peers, comm->far_peers);
}

static struct comm *take_place(void) {
  if (!atomic_load(&arena.all)) atomic_store(&arena.all, pages(MAX_COMMS * sizeof(struct comm)));
  if (!atomic_load(&arena.all)) return NULL;
  if (arena.free_count) return comm_at(arena.free[--arena.free_count]);
  if (arena.used == MAX_COMMS) return NULL;
  struct comm *comm = comm_at((unsigned)arena.used);
  comm->index = (uint32_t)arena.used++;
  return comm;
}

void *comm_open(const struct comm_facts *facts) {
  pthread_mutex_lock(&arena.rare);
  atomic_fetch_add(&arena.opened, 1);
  struct comm *comm = take_place();
  void *context = NULL;
  if (comm) {
    int ranks = facts->ranks < 1 ? 1 : facts->ranks;
    int device = facts->device < -1 ? -1 : facts->device % (CLOCKS - 1);
    comm->hash = facts->hash;
    comm->rank = facts->rank;
    comm->ranks = ranks;
    comm->nodes = facts->nodes;
    comm->abi = facts->abi;
    comm->kernels = facts->kernels;
    comm->trusts_p2p = facts->trusts_p2p;
    comm->clock = &arena.clocks[device + 1];
    comm->described = 0;
    comm->collectives = 0;
    comm->untabled = 0;
    comm->untabled_from = 0;
    comm->uncounted = 0;
    comm->stale_stamps = 0;
    for (int channel = 0; channel < NCCL_MAX_CHANNELS; ++channel) comm->done[channel] = 0;
    copy_text(comm->name, sizeof comm->name, facts->name ? facts->name : "");
    find_room_for_peers(comm, ranks);
    uint32_t generation = atomic_load(&comm->generation) + 1;
    atomic_store_explicit(&comm->generation, generation, memory_order_release);
    context = handle_pack(HANDLE_OTHER, comm, 0, generation, 0);
  } else {
    count(COUNT_LOST_COMMUNICATORS);
  }
  pthread_mutex_unlock(&arena.rare);
  return context;
}

bool comm_close(struct comm *comm, uint32_t generation) {
  return atomic_compare_exchange_strong(&comm->generation, &generation, generation + 1);
}

void comm_release(struct comm *comm) {
  pthread_mutex_lock(&arena.rare);
  atomic_fetch_add(&arena.ops_seen, atomic_load(&comm->orders));
  atomic_store(&comm->orders, 0);
  arena.free[arena.free_count++] = (uint16_t)comm->index;
  pthread_mutex_unlock(&arena.rare);
}

// As JSON demands; what is no printable ASCII becomes \u00XX or a question mark.
static size_t quote(char *to, size_t size, const char *text) {
  size_t length = 0;
  for (const unsigned char *at = (const unsigned char *)text; *at && length + 8 < size; ++at) {
    if (*at == '"' || *at == '\\') {
      to[length++] = '\\';
      to[length++] = (char)*at;
    } else if (*at < 0x20) {
      length += (size_t)snprintf(to + length, 8, "\\u%04x", *at);
    } else {
      to[length++] = *at < 0x7F ? (char)*at : '?';
    }
  }
  to[length] = 0;
  return length;
}

static int describe(struct comm *comm, struct ring *ring, uint32_t number) {
  char name[MAX_NAME_BYTES * 2], text[512];
  if (arena.groups_ring != number) {
    arena.groups_ring = number;
    arena.groups = 0;
  }
  if (arena.groups >= MAX_GROUPS) return -1;
  int group = (int)arena.groups++;
  quote(name, sizeof name, comm->name);
  int length =
      snprintf(text, sizeof text,
               "{\"comm\":%d,\"hash\":\"%016llx\",\"name\":\"%s\",\"rank\":%d,"
               "\"nranks\":%d,\"nnodes\":%d}",
               group, (unsigned long long)comm->hash, name, comm->rank, comm->ranks, comm->nodes);
  ring_meta(ring, text, (size_t)length);
  atomic_store_explicit(&comm->described, (uint64_t)number << 32 | (uint32_t)group,
                        memory_order_release);
  return group;
}

int comm_group(struct comm *comm, struct ring *ring) {
  uint32_t number = session_ring_number(ring);
  uint64_t described = atomic_load_explicit(&comm->described, memory_order_acquire);
  if (described >> 32 == number) return (int)(described & (MAX_GROUPS - 1));
  pthread_mutex_lock(&arena.rare);
  described = atomic_load(&comm->described);
  int group = described >> 32 == number ? (int)(described & (MAX_GROUPS - 1))
                                        : describe(comm, ring, number);
  pthread_mutex_unlock(&arena.rare);
  return group;
}

uint64_t comms_opened(void) { return atomic_load(&arena.opened); }

uint64_t comms_ops_seen(void) {
  pthread_mutex_lock(&arena.rare);
  uint64_t seen = atomic_load(&arena.ops_seen);
  for (int index = 0; index < arena.used; ++index) seen += comm_at((unsigned)index)->orders;
  pthread_mutex_unlock(&arena.rare);
  return seen;
}
