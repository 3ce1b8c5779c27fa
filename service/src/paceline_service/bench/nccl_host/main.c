// ncclhost MODE --plugin LIBRARY [--option value ...]: plays NCCL, prints what it did.
// Exit status: 0 done, 1 the plugin broke the interface's rules, 2 usage, 3 no such ABI.
#include <stdlib.h>
#include <string.h>

#include "host.h"

struct options options = {
    .threads = 1, .comms = 1, .collectives = 100, .channels = 2, .group = 1, .burst = 16,
    .world = 1, .steps = 10, .per_step = 4, .slow_rank = -1, .compute_ms = 5, .kernel_us = 20,
    .bytes = 1 << 20, .seed = 1, .events = 20000, .gpu_tick_ns = 1024,
};

static const struct {
  const char *name;
  enum { TEXT, INT, REAL, U64, I64 } type;
  void *value;
} OPTIONS[] = {
    {"plugin", TEXT, &options.plugin},
    {"path", TEXT, &options.path},  // ranks: a file that they share
    {"abi", INT, &options.abi},     // 0: the newest that the library has
    {"threads", INT, &options.threads},
    {"comms", INT, &options.comms},  // a thread
    {"collectives", INT, &options.collectives},
    {"channels", INT, &options.channels},
    {"group", INT, &options.group},    // collectives in one kernel
    {"p2p", INT, &options.p2p},        // every so many launches a send and a receive
    {"ce", INT, &options.ce},          // every so many by the copy engine
    {"burst", INT, &options.burst},    // unfinished at a time; 0: any number
    {"late", INT, &options.late},      // 2: kernel events come before the collective's stop
    {"reorder", INT, &options.reorder},  // 1: shuffled; 2: ends before beginnings; 3: anyhow
    {"lose-every", INT, &options.lose_every},  // of so many launches one loses a channel
    {"lie", INT, &options.lie},                // wrong numbers of channels are announced
    {"graph", INT, &options.graph},            // replays: no API events, stale parents
    {"rank", INT, &options.rank},
    {"world", INT, &options.world},
    {"steps", INT, &options.steps},
    {"per-step", INT, &options.per_step},
    {"host-bound", INT, &options.host_bound},  // 1: the slow rank's host is late, not its GPU
    {"hooks", INT, &options.hooks},            // 1: ranks also leave the ring of the hooks on torch
    {"compute-ms", REAL, &options.compute_ms},
    {"slow-rank", INT, &options.slow_rank},
    {"slow-ms", REAL, &options.slow_ms},
    {"kernel-us", REAL, &options.kernel_us},
    {"stall-ms", REAL, &options.stall_ms},  // the thread that reports is that late at first
    {"preempt-ms", REAL, &options.preempt_ms},  // of every 8th launch, before startEvent
    {"linger-s", REAL, &options.linger_s},  // stay before the communicators are destroyed
    {"bytes", U64, &options.bytes},
    {"seed", U64, &options.seed},
    {"events", U64, &options.events},
    {"gpu-offset-ns", I64, &options.gpu_offset_ns},
    {"gpu-tick-ns", U64, &options.gpu_tick_ns},
    {"gpu-drift-ppm", REAL, &options.gpu_drift_ppm},
};

static const struct {
  const char *name;
  void (*run)(void);
} MODES[] = {
    {"play", mode_play}, {"churn", mode_churn}, {"faults", mode_faults}, {"fuzz", mode_fuzz},
    {"fork", mode_fork}, {"kill", mode_kill},   {"hang", mode_hang},     {"bench", mode_bench},
    {"ranks", mode_ranks},
};

static int take(const char *name, const char *text) {
  for (size_t at = 0; at < sizeof OPTIONS / sizeof *OPTIONS; at++) {
    if (strcmp(name, OPTIONS[at].name)) continue;
    switch (OPTIONS[at].type) {
      case TEXT: *(const char **)OPTIONS[at].value = text; break;
      case INT: *(int *)OPTIONS[at].value = atoi(text); break;
      case REAL: *(double *)OPTIONS[at].value = atof(text); break;
      case U64: *(uint64_t *)OPTIONS[at].value = strtoull(text, NULL, 0); break;
      case I64: *(int64_t *)OPTIONS[at].value = strtoll(text, NULL, 0); break;
    }
    return 1;
  }
  return 0;
}

int main(int count, char **texts) {
  void (*run)(void) = NULL;
  for (size_t at = 0; count > 1 && at < sizeof MODES / sizeof *MODES; at++)
    if (!strcmp(texts[1], MODES[at].name)) run = MODES[at].run;
  if (!run || count % 2) {
    fputs("usage: ncclhost play|churn|faults|fuzz|fork|kill|hang|bench|ranks --plugin LIBRARY "
          "[--option value ...]\n", stderr);
    return 2;
  }
  options.mode = texts[1];
  for (int at = 2; at < count; at += 2) {
    if (strncmp(texts[at], "--", 2) || !take(texts[at] + 2, texts[at + 1])) {
      fprintf(stderr, "ncclhost: unknown option %s\n", texts[at]);
      return 2;
    }
  }
  clock_begin();
  plugin_load();
  run();
  truth_end();
  plugin_unload();
  return atomic_load(&violations) ? 1 : 0;
}
