#include "identity.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const RANK[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                   NULL};
static const char *const LOCAL_RANK[] = {"LOCAL_RANK", "SLURM_LOCALID",
                                         "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", NULL};
static const char *const WORLD_SIZE[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE",
                                         "PMI_SIZE", NULL};
static const char *const ATTEMPT[] = {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT", NULL};
static const char *const LEVELS[] = {"off", "steps", "collectives", "full"};

static const char *text_of(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value ? value : otherwise;
}

static bool is_given(const char *value) { return value && *value; }

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// What Python's int() makes of a text; -1 if that is nothing, negative, or over 31 bits.
static int64_t whole_number(const char *text) {
  size_t length = strlen(text);
  while (length && is_space(*text)) ++text, --length;
  while (length && is_space(text[length - 1])) --length;
  bool negative = length && *text == '-';
  if (length && (*text == '-' || *text == '+')) ++text, --length;
  int64_t value = 0;
  bool digit_before = false;  // int() allows single underscores between digits
  for (size_t at = 0; at < length; ++at) {
    if (text[at] == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    if (text[at] < '0' || text[at] > '9') return -1;
    value = value * 10 + (text[at] - '0');
    if (value > INT32_MAX) return -1;
    digit_before = true;
  }
  return !digit_before || (negative && value) ? -1 : value;
}

static int64_t first_number(const char *const *names, int64_t otherwise) {
  for (; *names; ++names) {
    const char *text = getenv(*names);
    int64_t value = text ? whole_number(text) : -1;
    if (value >= 0) return value;
  }
  return otherwise;
}

// How many bytes the UTF-8 character at `at` has; 1 for a byte that begins none.
static size_t character_bytes(const char *at) {
  const unsigned char *byte = (const unsigned char *)at;
  size_t bytes = *byte < 0xC2 ? 1 : *byte < 0xE0 ? 2 : *byte < 0xF0 ? 3 : *byte < 0xF5 ? 4 : 1;
  for (size_t next = 1; next < bytes; ++next) {
    if ((byte[next] & 0xC0) != 0x80) return 1;
  }
  return bytes;
}

void copy_text(char *to, size_t size, const char *from) {
  size_t length = 0;
  while (from[length]) {
    size_t bytes = character_bytes(from + length);
    if (length + bytes >= size) break;
    length += bytes;
  }
  memcpy(to, from, length);
  to[length] = 0;
}

static bool is_no_id(const char *value) { return !is_given(value) || !strcmp(value, "none"); }

static void job_name(char *to, size_t size) {
  const char *name = getenv("PACELINE_JOB");
  if (!is_given(name)) name = getenv("SLURM_JOB_NAME");
  if (!is_given(name)) name = getenv("TORCHELASTIC_RUN_ID");
  // torchrun says "none" when nobody gave it an id; a job that is called so keeps its name.
  bool from_torchrun = !is_given(getenv("PACELINE_JOB")) && !is_given(getenv("SLURM_JOB_NAME"));
  if (!is_given(name) || (from_torchrun && is_no_id(name))) name = "job";
  size_t length = 0;
  while (*name && length + 1 < size) {
    size_t bytes = character_bytes(name);
    bool plain = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
                 (*name >= '0' && *name <= '9') || *name == '.' || *name == '_' || *name == '-';
    to[length++] = plain ? *name : '-';
    name += bytes;
  }
  to[length] = 0;
}

// What all ranks of one launch share and no other launch has.
static void run_id(char *to, size_t size) {
  const char *const names[] = {"PACELINE_RUN_ID", "TORCHELASTIC_RUN_ID"};
  for (size_t at = 0; at < 2; ++at) {
    const char *value = getenv(names[at]);
    if (is_no_id(value)) continue;
    snprintf(to, size, "%s", value);
    return;
  }
  const char *slurm_job = getenv("SLURM_JOB_ID");
  if (is_given(slurm_job)) {
    snprintf(to, size, "slurm-%s.%s", slurm_job, text_of("SLURM_STEP_ID", "0"));
    return;
  }
  // On one node all ranks have one parent, and a later launch has another.
  snprintf(to, size, "%s-%s-%d", text_of("MASTER_ADDR", "local"), text_of("MASTER_PORT", "0"),
           (int)getppid());
}

static void node_name(char *to, size_t size) {
  char host[256] = "";
  const char *name = getenv("SLURMD_NODENAME");
  if (!is_given(name)) name = getenv("NODE_NAME");
  if (!is_given(name)) {
    gethostname(host, sizeof host - 1);
    name = host;
  }
  copy_text(to, size, name);
}

static bool is_usable(const char *directory) {
  struct stat found;
  return !stat(directory, &found) && S_ISDIR(found.st_mode) && !access(directory, W_OK);
}

static void runtime_dir(char *to, size_t size) {
  const char *given = getenv("PACELINE_RUNTIME_DIR");
  if (is_given(given)) {
    snprintf(to, size, "%s", given);
    return;
  }
  // The temporary directory, as Python's tempfile finds it.
  const char *const candidates[] = {"/dev/shm", getenv("TMPDIR"), getenv("TEMP"), getenv("TMP"),
                                    "/tmp",     "/var/tmp",       "/usr/tmp"};
  const char *chosen = "/tmp";
  for (size_t at = 0; at < sizeof candidates / sizeof *candidates; ++at) {
    if (is_given(candidates[at]) && is_usable(candidates[at])) {
      chosen = candidates[at];
      break;
    }
  }
  snprintf(to, size, "%s/paceline-%u", chosen, (unsigned)getuid());
}

static int level_of(const char *text) {
  for (int level = LEVEL_OFF; level <= LEVEL_FULL; ++level) {
    if (!strcmp(text, LEVELS[level])) return level;
  }
  return LEVEL_FULL;
}

static bool is_disabled(const char *text) {
  const char *const words[] = {"1", "true", "yes", "on"};
  size_t length = strlen(text);
  while (length && is_space(*text)) ++text, --length;
  while (length && is_space(text[length - 1])) --length;
  for (size_t at = 0; at < 4; ++at) {
    if (length == strlen(words[at]) && !strncasecmp(text, words[at], length)) return true;
  }
  return false;
}

static void boot_id(char *to, size_t size) {
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? 0 : read(fd, to, size - 1);
  if (fd >= 0) close(fd);
  if (length < 0) length = 0;
  while (length && is_space(to[length - 1])) --length;
  to[length] = 0;
}

void settings_from_environment(struct agent_settings *settings) {
  struct stat found;
  memset(settings, 0, sizeof *settings);
  job_name(settings->job, sizeof settings->job);
  run_id(settings->run_id, sizeof settings->run_id);
  node_name(settings->node, sizeof settings->node);
  runtime_dir(settings->runtime_dir, sizeof settings->runtime_dir);
  boot_id(settings->boot_id, sizeof settings->boot_id);
  if (!stat("/proc/self/ns/time", &found)) settings->time_namespace = found.st_ino;
  settings->attempt = (uint32_t)first_number(ATTEMPT, 0);
  settings->rank = (int32_t)first_number(RANK, -1);
  settings->local_rank = (int32_t)first_number(LOCAL_RANK, 0);
  settings->world_size = (uint32_t)first_number(WORLD_SIZE, 0);
  const char *level = getenv("PACELINE_LEVEL");
  settings->level = is_given(level) ? level_of(level) : LEVEL_FULL;
  settings->disabled = is_disabled(text_of("PACELINE_DISABLE", ""));
}

void identity_of(const struct agent_settings *settings, const char *producer,
                 struct ring_identity *identity) {
  *identity = (struct ring_identity){
      .job = settings->job,
      .run_id = settings->run_id,
      .node = settings->node,
      .boot_id = settings->boot_id,
      .producer = producer,
      .time_namespace = settings->time_namespace,
      .created_wall_ns = wall_now_ns(),
      .created_mono_ns = mono_now_ns(),
      .attempt = settings->attempt,
      .world_size = settings->world_size,
      .pid = (uint32_t)getpid(),
      .rank = settings->rank,
      .local_rank = settings->local_rank,
  };
  size_t size = sizeof identity->incarnation;
  if (getrandom(identity->incarnation, size, GRND_NONBLOCK) != (ssize_t)size) {
    // Before the kernel has gathered randomness; times and pid tell processes apart as well.
    uint64_t parts[2] = {identity->created_wall_ns, identity->created_mono_ns ^ identity->pid};
    memcpy(identity->incarnation, parts, size);
  }
}
