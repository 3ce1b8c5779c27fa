// What this process knows about itself from its environment: the twin of paceline/settings.py.
//
// Nonsense never fails: what cannot be used is passed over as if it were not there.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ring.h"

struct agent_settings {
  char job[129], run_id[65], node[65], boot_id[41];
  char runtime_dir[3800];
  uint32_t attempt, world_size;  // 0: nobody said
  int32_t rank, local_rank;      // rank -1: nobody said
  uint64_t time_namespace;
  int level;
  bool disabled;
};

void settings_from_environment(struct agent_settings *settings);

// Where rings are when no setting names a directory.
void default_runtime_dir(char *to, size_t size);

// The identity of a new ring of this process: fresh incarnation, present times.
void identity_of(const struct agent_settings *settings, const char *producer,
                 struct ring_identity *identity);

// Copy at most `size` - 1 bytes, and no half character at the end.
void copy_text(char *to, size_t size, const char *from);
