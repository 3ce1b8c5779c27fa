// Loading the plugin as NCCL does, and calling it: descriptors have exactly the size of their ABI on
// the heap, so that a sanitizer sees one byte read too far.
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

int abi;
atomic_long violations;
static void *library;
const struct profiler *profiler;
static void *const POISON = (void *)(uintptr_t)0xabadcafe0ddba11u;

// Bytes that each version's caller gives: v5 added parentGroup, v6 the copy engine, v7 tags.
static size_t event_bytes(void) { return abi == 4 ? 104 : abi == 7 ? 136 : 112; }

void violation(const char *format, ...) {
  if (atomic_fetch_add(&violations, 1) >= 20) return;
  va_list arguments;
  va_start(arguments, format);
  fputs("violation: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

static void log_line(int level, unsigned long flags, const char *file, int line, const char *format,
                     ...) {
  (void)flags;
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "plugin log %d %s:%d: ", level, file ? file : "", line);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

static int no_init(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks,
                   int rank, logger *log) {
  (void)context, (void)hash, (void)mask, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;
  return 0;
}

static int no_start(void *context, void **handle, struct event *event) {
  (void)context, (void)event;
  return *handle = NULL, 0;
}

static int no_handle(void *handle) { return (void)handle, 0; }

static int no_record(void *handle, int state, union state *arguments) {
  (void)handle, (void)state, (void)arguments;
  return 0;
}

// "none": what the host itself costs, to be subtracted.
static const struct profiler NONE = {
    "none", {.v5 = no_init}, no_start, no_handle, no_record, no_handle,
};

void plugin_load(void) {
  if (!options.plugin) {
    fputs("ncclhost: --plugin is missing\n", stderr);
    exit(2);
  }
  if (!strcmp(options.plugin, "none")) {
    profiler = &NONE;
    abi = 7;
    return;
  }
  library = dlopen(options.plugin, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "ncclhost: %s\n", dlerror());
    exit(2);
  }
  for (abi = 7; abi >= 4 && !profiler; abi--) {
    if (options.abi && abi != options.abi) continue;
    char name[32];
    snprintf(name, sizeof name, "ncclProfiler_v%d", abi);
    profiler = dlsym(library, name);
    if (profiler) break;
  }
  if (!profiler) {
    fputs("ncclhost: the library exports no profiler of this version\n", stderr);
    exit(3);
  }
  if (!profiler->name || !profiler->name[0]) violation("the profiler has no name");
}

void *plugin_symbol(const char *name) { return dlsym(library, name); }

// NCCL closes the library when its last communicator is gone, and late calls may follow.
void plugin_unload(void) {
  if (library) dlclose(library);
}

int plugin_init(
    void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, int rank) {
  int result;
  if (abi == 4)
    result = profiler->init.v4(context, mask, name, hash, nodes, ranks, rank, log_line);
  else
    result = profiler->init.v5(context, hash, mask, name, nodes, ranks, rank, log_line);
  if (result) violation("init returned %d", result);
  return result;
}

void plugin_finalize(void *context) {
  int result = profiler->finalize(context);
  if (result) violation("finalize returned %d", result);
}

struct event *event_new(uint64_t type, void *parent, int rank) {
  // NCCL's shim for v4 sets the fields that it knows and leaves the others as they were.
  struct event *event = abi == 4 ? malloc(event_bytes()) : calloc(1, event_bytes());
  if (!event) abort();
  if (abi == 4) {
    memset(event, 0xa5, 8);
    *(uint8_t *)event = (uint8_t)type;
  } else {
    event->type = type;
  }
  event->parent = parent;
  event->rank = rank;
  return event;
}

void *event_start(void *context, struct event *event) {
  void *handle = POISON;
  int result = profiler->start(context, &handle, event);
  if (result) violation("startEvent returned %d", result);
  if (handle == POISON) {
    violation("startEvent of type %u left the handle as it was", (unsigned)*(uint8_t *)event);
    handle = NULL;
  }
  free(event);
  return handle;
}

void *plain_start(void *context, uint64_t type, void *parent, int rank) {
  if (abi == 4 && type > UINT8_MAX) return NULL;  // NCCL's shim for v4 swallows newer types
  return event_start(context, event_new(type, parent, rank));
}

void *kernel_start(void *context, void *parent, int channel, uint64_t gpu_ns) {
  struct event *event = event_new(EVENT_KERNEL_CH, parent, 0);  // NCCL leaves the rank 0 here
  event->kernel.channel = (uint8_t)channel;
  event->kernel.gpu_ns = gpu_ns;
  return event_start(context, event);
}

void event_stop(void *handle) {
  int result = profiler->stop(handle);
  if (result) violation("stopEvent returned %d", result);
}

void event_record(void *handle, int state, const uint64_t *value) {
  union state *arguments = NULL;
  if (value) {
    arguments = malloc(sizeof *arguments);
    if (!arguments) abort();
    arguments->gpu_ns = *value;
  }
  int result = profiler->record(handle, state, arguments);
  if (result) violation("recordEventState returned %d", result);
  free(arguments);
}
