#include "identity.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

// MPI's before Slurm's: what mpirun starts in an allocation inherits the variables of its daemon.
static const char *const RANK[] = {
    "RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID",
    NULL};
static const char *const LOCAL_RANK[] = {"LOCAL_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "MV2_COMM_WORLD_LOCAL_RANK",
                                         "MPI_LOCALRANKID",
                                         "SLURM_LOCALID",
                                         NULL};
static const char *const WORLD_SIZE[] = {
    "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", NULL};
static const char *const LOCAL_WORLD_SIZE[] = {
    "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",  "SLURM_NTASKS_PER_NODE",      NULL};
static const char *const ATTEMPT[] = {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT", NULL};
static const char *const NODE[] = {"SLURMD_NODENAME", "NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME",
                                   NULL};
static const char *const IN_KUBERNETES = "KUBERNETES_SERVICE_HOST";
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

static bool is_plain(char c, const char *more) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c && strchr(more, c));
}

// Copy, with a - for every character that is neither a letter, a digit, nor one of `more`.
static void copy_clean(char *to, size_t size, const char *from, const char *more) {
  size_t length = 0;
  while (*from && length + 1 < size) {
    to[length++] = is_plain(*from, more) ? *from : '-';
    from += character_bytes(from);
  }
  to[length] = 0;
}

static bool is_no_id(const char *value) { return !is_given(value) || !strcmp(value, "none"); }

static void host_name(char *to, size_t size) {
  to[0] = 0;
  gethostname(to, size);
  to[size - 1] = 0;
}

// Whether `text` ends with -`part`; it is cut off, unless nothing would be left.
static bool cut_end(char *text, const char *part) {
  size_t length = strlen(text), more = strlen(part);
  if (length < more + 2 || strcmp(text + length - more, part) || text[length - more - 1] != '-') {
    return false;
  }
  text[length - more - 1] = 0;
  return true;
}

// A pod of Kubeflow's PyTorchJob or MPIJob: job, role, index.
static bool cut_replica(char *pod) {
  char *dash = strrchr(pod, '-');
  if (!dash || !dash[1] || strspn(dash + 1, "0123456789") != strlen(dash + 1)) return false;
  *dash = 0;
  if (cut_end(pod, "master") || cut_end(pod, "worker") || cut_end(pod, "launcher")) return true;
  *dash = '-';
  return false;
}

// A pod of an indexed Job: job, index, and sometimes five random characters.
static bool cut_completion(char *pod) {
  const char *index = getenv("JOB_COMPLETION_INDEX");
  if (!is_given(index)) return false;
  if (cut_end(pod, index)) return true;
  size_t length = strlen(pod);
  if (length < 6 || pod[length - 6] != '-') return false;
  if (strspn(pod + length - 5, "abcdefghijklmnopqrstuvwxyz0123456789") != 5) return false;
  pod[length - 6] = 0;
  return cut_end(pod, index);
}

// What the names of all pods of a job have in common; empty where that is not plain.
static void kubernetes_job(char *to, size_t size) {
  const char *pod = getenv("POD_NAME");
  to[0] = 0;
  if (!getenv(IN_KUBERNETES)) return;
  if (is_given(pod)) {
    snprintf(to, size, "%s", pod);
  } else {
    host_name(to, size);
  }
  if (!cut_replica(to) && !cut_completion(to)) to[0] = 0;
}

static void job_name(char *to, size_t size) {
  char pod[300];
  const char *name = getenv("PACELINE_JOB");
  if (!is_given(name)) name = getenv("SLURM_JOB_NAME");
  if (!is_given(name)) {
    name = getenv("TORCHELASTIC_RUN_ID");
    if (is_no_id(name)) {
      kubernetes_job(pod, sizeof pod);
      name = *pod ? pod : "job";
    }
  }
  copy_clean(to, size, name, "._-");
}

// What all ranks of one launch share and no other launch has.
static void run_id(char *to, size_t size) {
  char made[512];
  const char *id = getenv("PACELINE_RUN_ID"), *slurm_job = getenv("SLURM_JOB_ID");
  if (is_no_id(id)) id = getenv("TORCHELASTIC_RUN_ID");
  if (is_no_id(id)) {
    const char *address = text_of("MASTER_ADDR", "local"), *port = text_of("MASTER_PORT", "0");
    int64_t world_size = first_number(WORLD_SIZE, 0);
    bool several_nodes = world_size > 1 && first_number(LOCAL_WORLD_SIZE, 0) < world_size;
    if (is_given(slurm_job)) {
      snprintf(made, sizeof made, "slurm-%s.%s", slurm_job, text_of("SLURM_STEP_ID", "0"));
    } else if (several_nodes && (is_given(getenv("GROUP_RANK")) || getenv(IN_KUBERNETES))) {
      snprintf(made, sizeof made, "%s-%s", address, port);
    } else {
      // On one node all ranks have one parent, and a later launch has another.
      snprintf(made, sizeof made, "%s-%s-%d", address, port, (int)getppid());
    }
    id = made;
  }
  copy_clean(to, size, id, "._:@+=,~-");
}

static void node_name(char *to, size_t size) {
  char host[256];
  for (const char *const *name = NODE; *name; ++name) {
    if (!is_given(getenv(*name))) continue;
    copy_text(to, size, getenv(*name));
    return;
  }
  host_name(host, sizeof host);
  copy_text(to, size, host);
}

static bool is_usable(const char *directory) {
  struct stat found;
  return !stat(directory, &found) && S_ISDIR(found.st_mode) && !access(directory, W_OK);
}

void default_runtime_dir(char *to, size_t size) {
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

static void runtime_dir(char *to, size_t size) {
  const char *given = getenv("PACELINE_RUNTIME_DIR");
  if (is_given(given)) {
    snprintf(to, size, "%s", given);
  } else {
    default_runtime_dir(to, size);
  }
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
