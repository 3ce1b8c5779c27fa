// What Python calls through ctypes: the hooks say who the process is and when to capture, and the
// tests of ring v1 write rings through it.
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "session.h"

#define PUBLIC __attribute__((visibility("default")))

#ifndef PLUGIN_SOURCES
#define PLUGIN_SOURCES "unknown"
#endif

// Found in the file by paceline.plugin, which uses no library of other sources than its own.
PUBLIC const char paceline_sources[] = "paceline-sources:" PLUGIN_SOURCES;

PUBLIC int paceline_identify(const char *job, const char *run_id, uint32_t attempt, int32_t rank,
                             int32_t local_rank, uint32_t world_size, const char *node,
                             const char *runtime_dir) {
  session_begin();
  if (!session_alive()) return -1;
  struct agent_settings settings;
  session_settings(&settings);
  settings.attempt = attempt;
  settings.rank = rank;
  settings.local_rank = local_rank;
  settings.world_size = world_size;
  if (job) copy_text(settings.job, sizeof settings.job, job);
  if (run_id) copy_text(settings.run_id, sizeof settings.run_id, run_id);
  if (node) copy_text(settings.node, sizeof settings.node, node);
  if (runtime_dir) copy_text(settings.runtime_dir, sizeof settings.runtime_dir, runtime_dir);
  session_identify(&settings);
  return 0;
}

PUBLIC void paceline_capture(int on) {
  if (session_alive()) session_capture(on != 0);
}

PUBLIC int paceline_active(void) { return session_alive() ? (int)comms_opened() : 0; }

// Whether the device times of collectives come from here: without them the hooks take their own.
PUBLIC int paceline_times_kernels(void) { return session_alive() && session_times_kernels(); }

PUBLIC uint64_t paceline_errors(void) { return counted(COUNT_ERRORS); }

// Collectives and point-to-point operations that NCCL told of, captured or not.
PUBLIC uint64_t paceline_seen(void) { return session_alive() ? comms_ops_seen() : 0; }

// One of session.h's counters; 0 for a number that there is not.
PUBLIC uint64_t paceline_counter(int counter) {
  return counter >= 0 && counter < COUNTERS ? counted((enum counter)counter) : 0;
}

// A ring of its own, beside that of the process.
PUBLIC struct ring *paceline_ring_open(const char *directory, const struct ring_identity *identity,
                                       uint32_t capacity, int *error) {
  struct ring *ring = malloc(sizeof *ring);
  if (!ring) return NULL;
  *error = ring_open(ring, directory, identity, capacity);
  if (*error) {
    free(ring);
    return NULL;
  }
  return ring;
}

PUBLIC const char *paceline_ring_path(const struct ring *ring) { return ring->path; }

PUBLIC void paceline_ring_record(struct ring *ring, uint8_t kind, uint8_t code, uint16_t group,
                                 uint64_t seq, uint32_t step, int32_t peer, uint64_t payload_bytes,
                                 uint64_t start_ns, uint64_t end_ns, uint64_t join_ns,
                                 uint64_t issue_ns, uint32_t flags) {
  struct ring_record record = {
      .start_ns = start_ns,
      .end_ns = end_ns,
      .join_ns = join_ns,
      .issue_ns = issue_ns,
      .payload_bytes = payload_bytes,
      .seq = seq,
      .step = step,
      .peer = peer,
      .group = group,
      .kind = kind,
      .code = code,
      .flags = flags,
  };
  ring_write(ring, &record);
}

PUBLIC int paceline_ring_begin(struct ring *ring, uint8_t op, uint16_t group, uint64_t seq,
                               uint32_t step, int32_t peer, uint64_t payload_bytes,
                               uint64_t start_ns, uint32_t flags) {
  struct ring_entry entry = {
      .start_ns = start_ns,
      .payload_bytes = payload_bytes,
      .seq = seq,
      .step = step,
      .peer = peer,
      .group = group,
      .op = op,
      .flags = flags,
  };
  return ring_begin(ring, &entry);
}

PUBLIC void paceline_ring_finish(struct ring *ring, int slot) { ring_finish(ring, slot); }

PUBLIC int paceline_ring_meta(struct ring *ring, const char *text) {
  return ring_meta(ring, text, strlen(text));
}

PUBLIC void paceline_ring_heartbeat(struct ring *ring, uint64_t step) {
  ring_heartbeat(ring, step, mono_now_ns());
}

PUBLIC void paceline_ring_anchor(struct ring *ring) { ring_anchor(ring); }

// The level that the control block asks for, -1 if it asks for nothing (yet); it is applied.
PUBLIC int paceline_ring_control(struct ring *ring) {
  struct ring_control control;
  if (!ring_control(ring, &control)) return -1;
  ring_applied(ring, &control);
  return (int)control.level;
}

PUBLIC void paceline_ring_close(struct ring *ring) {
  ring_close(ring);
  free(ring);
}
