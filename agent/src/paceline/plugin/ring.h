// The C writer of a ring (docs/ring.md): the twin of paceline/ring/writer.py.
//
// Several threads may write. Nothing but opening, closing and metadata makes a system call, takes a
// lock or allocates. Both writers pass the same tests (tests/contract/test_ring_*.py).
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

// Who writes a ring. The strings are copied into the header and cut to its fields.
struct ring_identity {
  const char *job, *run_id, *node, *boot_id, *producer;
  uint64_t time_namespace, created_wall_ns, created_mono_ns;
  uint32_t attempt, world_size, pid;
  int32_t rank, local_rank;
  uint8_t incarnation[16];
};

struct ring {
  uint8_t *base;
  size_t size_bytes;
  uint32_t capacity;
  int fd;  // carries the lock that says that the writer lives
  _Atomic uint64_t next;
  _Atomic uint64_t free_slots;  // a bit for every slot of the in-flight table
  pthread_mutex_t rare;         // for what happens rarely: metadata, anchors
  char path[4096];
};

// What the sidecar asks of the writer (docs/ring.md, control block).
struct ring_control {
  uint64_t generation, effective_step;
  uint32_t level, stride;
};

// Make a ring file in `directory` (made with mode 0700 when missing). Returns 0, or an errno.
int ring_open(struct ring *ring, const char *directory, const struct ring_identity *identity,
              uint32_t capacity);

void ring_write(struct ring *ring, const struct ring_record *record);

// Enter a collective into the in-flight table; returns its slot, -1 when the table is full.
int ring_begin(struct ring *ring, const struct ring_entry *entry);
// Change what the entry of a slot says.
void ring_replace(struct ring *ring, int slot, const struct ring_entry *entry);
void ring_finish(struct ring *ring, int slot);

// Append a JSON text to the metadata; false when it does not fit (counted).
bool ring_meta(struct ring *ring, const char *text, size_t length);

void ring_heartbeat(struct ring *ring, uint64_t step, uint64_t now_ns);
void ring_anchor(struct ring *ring);
// Add to a counter of the header.
void ring_add(struct ring *ring, size_t offset, uint64_t times);
// Say that the writer has ended. Others may still be writing: the mapping stays.
void ring_say_closed(struct ring *ring);
// Say goodbye, unmap and let go of the lock. Nobody may use the ring any more.
void ring_close(struct ring *ring);

// Read the control block; false when there is none, or when its checksum does not fit (yet).
bool ring_control(struct ring *ring, struct ring_control *control);
void ring_applied(struct ring *ring, const struct ring_control *control);

uint64_t mono_now_ns(void);
uint64_t wall_now_ns(void);
