// Making the file of a ring: whole under another name, locked, then renamed (docs/ring.md, rules).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32.h"
#include "identity.h"
#include "ring.h"

// As Path.mkdir(mode=0o700, parents=True, exist_ok=True): only the last one is private.
static int make_directory(const char *directory) {
  char path[4096];
  struct stat found;
  size_t length = strlen(directory);
  if (length == 0 || length >= sizeof path) return ENAMETOOLONG;
  memcpy(path, directory, length + 1);
  for (char *at = path + 1; *at; ++at) {
    if (*at != '/' || at[1] == '/' || !at[1]) continue;
    *at = 0;
    if (mkdir(path, 0777) && errno != EEXIST) return errno;
    *at = '/';
  }
  if (!mkdir(path, 0700)) return 0;
  if (errno != EEXIST) return errno;
  return stat(path, &found) ? errno : S_ISDIR(found.st_mode) ? 0 : ENOTDIR;
}

// As make_private() of the Python writer: the default directory has a name that anybody can guess,
// beside everybody's files, so it must be this user's alone. One that a setting names is not judged.
static int make_private(const char *directory) {
  char usual[4096];
  struct stat found;
  default_runtime_dir(usual, sizeof usual);
  size_t length = strlen(usual);
  bool is_usual =
      !strncmp(directory, usual, length) && (!directory[length] || directory[length] == '/');
  if (is_usual) mkdir(usual, 0700);  // before what is in it, or it would be as the umask has it
  int error = make_directory(directory);
  if (error || !is_usual) return error;
  if (lstat(usual, &found)) return errno;
  bool is_safe = S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
                 !(found.st_mode & (S_IWGRP | S_IWOTH));
  return is_safe ? 0 : EPERM;
}

// As ring_name() of the Python writer: readable, unique by incarnation, never a path.
static void stem_of(char *to, size_t size, const struct ring_identity *identity) {
  char job[81], incarnation[13];
  size_t length = 0;
  for (const char *at = identity->job; *at && length + 1 < sizeof job; ++at) {
    if (((unsigned char)*at & 0xC0) == 0x80) continue;  // one _ for a character of several bytes
    bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                 (*at >= '0' && *at <= '9') || *at == '.' || *at == '_' || *at == '-';
    job[length++] = plain ? *at : '_';
  }
  job[length] = 0;
  for (int at = 0; at < 6; ++at) {
    snprintf(incarnation + 2 * at, 3, "%02x", identity->incarnation[at]);
  }
  snprintf(to, size, "%s.r%d.a%u.%s.%.15s", job, identity->rank, identity->attempt, incarnation,
           identity->producer);
}

static void write_header(uint8_t *page, const struct ring_identity *who, uint32_t capacity) {
  struct ring_static header = {
      .version = RING_VERSION,
      .byte_order_mark = RING_BYTE_ORDER_MARK,
      .record_bytes = RING_RECORD_BYTES,
      .capacity = capacity,
      .inflight_offset = RING_HEADER_BYTES,
      .inflight_slots = RING_INFLIGHT_SLOTS,
      .meta_offset = RING_META_OFFSET,
      .meta_bytes = RING_META_BYTES,
      .records_offset = RING_RECORDS_OFFSET,
      .rank = who->rank,
      .local_rank = who->local_rank,
      .world_size = who->world_size,
      .attempt = who->attempt,
      .pid = who->pid,
      .created_wall_ns = who->created_wall_ns,
      .created_mono_ns = who->created_mono_ns,
      .time_namespace = who->time_namespace,
  };
  memcpy(header.magic, RING_MAGIC, sizeof header.magic);
  memcpy(header.incarnation, who->incarnation, sizeof header.incarnation);
  // A field may be full to its last byte: these are no C strings.
  memcpy(header.node, who->node, strnlen(who->node, sizeof header.node));
  memcpy(header.job, who->job, strnlen(who->job, sizeof header.job));
  memcpy(header.run_id, who->run_id, strnlen(who->run_id, sizeof header.run_id));
  memcpy(header.boot_id, who->boot_id, strnlen(who->boot_id, sizeof header.boot_id));
  memcpy(header.producer, who->producer, strnlen(who->producer, sizeof header.producer));
  header.crc = crc32_of(&header, RING_STATIC_CRC_OFFSET);
  memcpy(page, &header, sizeof header);
  uint64_t state[2] = {RING_STATE_RUNNING, who->created_mono_ns};
  memcpy(page + RING_STATE_OFFSET, state, sizeof state);
}

static int fill_file(struct ring *ring, const struct ring_identity *identity) {
  int error;
  // Without this a full /dev/shm would be a SIGBUS in the middle of training.
  do {
    error = posix_fallocate(ring->fd, 0, (off_t)ring->size_bytes);
  } while (error == EINTR);
  if (error) return error;
  ring->base = mmap(NULL, ring->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
  if (ring->base == MAP_FAILED) return errno;
  write_header(ring->base, identity, ring->capacity);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fcntl(ring->fd, F_SETLK, &lock)) {
    error = errno;
    munmap(ring->base, ring->size_bytes);
  }
  return error;
}

int ring_open(struct ring *ring, const char *directory, const struct ring_identity *identity,
              uint32_t capacity) {
  char stem[192], unfinished[sizeof ring->path];
  uint32_t salt;
  uint64_t size_bytes = RING_RECORDS_OFFSET + (uint64_t)capacity * RING_RECORD_BYTES;
  if (capacity < 1 || size_bytes > RING_MAX_FILE_BYTES) return EINVAL;
  memset(ring, 0, sizeof *ring);
  ring->size_bytes = size_bytes;
  ring->capacity = capacity;
  atomic_init(&ring->free_slots, ~UINT64_C(0));
  int error = make_private(directory);
  if (error) return error;
  stem_of(stem, sizeof stem, identity);
  if (getrandom(&salt, sizeof salt, GRND_NONBLOCK) != sizeof salt) salt = (uint32_t)mono_now_ns();
  if ((size_t)snprintf(ring->path, sizeof ring->path, "%s/%s" RING_SUFFIX, directory, stem) >=
          sizeof ring->path ||
      (size_t)snprintf(unfinished, sizeof unfinished, "%s/%s.%08x.tmp", directory, stem, salt) >=
          sizeof unfinished) {
    return ENAMETOOLONG;
  }
  ring->fd = open(unfinished, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (ring->fd < 0) return errno;
  error = fill_file(ring, identity);
  if (!error && rename(unfinished, ring->path)) {
    error = errno;
    munmap(ring->base, ring->size_bytes);
  }
  if (error) {
    ring->base = NULL;
    unlink(unfinished);
    close(ring->fd);
    return error;
  }
  pthread_mutex_init(&ring->rare, NULL);
  ring_anchor(ring);
  return 0;
}
