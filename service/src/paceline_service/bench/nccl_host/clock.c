// Time: the host's clocks and a simulated GPU clock that counts Unix time in coarse ticks.
#include <time.h>

#include "host.h"

static uint64_t base_mono, base_real;

static uint64_t read_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t mono_ns(void) { return read_ns(CLOCK_MONOTONIC); }

void clock_begin(void) {
  uint64_t best = UINT64_MAX;
  for (int try = 0; try < 20; try++) {
    uint64_t before = mono_ns(), real = read_ns(CLOCK_REALTIME), after = mono_ns();
    if (after - before >= best) continue;
    best = after - before;
    base_mono = before + best / 2;
    base_real = real;
  }
}

uint64_t gpu_ns_at(uint64_t mono) {
  int64_t passed = (int64_t)(mono - base_mono);
  int64_t drift = (int64_t)((double)passed * options.gpu_drift_ppm * 1e-6);
  uint64_t now = base_real + (uint64_t)(passed + drift + options.gpu_offset_ns);
  return now - now % options.gpu_tick_ns;
}

void sleep_until(uint64_t mono) {
  struct timespec at = {.tv_sec = (time_t)(mono / 1000000000u), .tv_nsec = (long)(mono % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) {
  }
}

void sleep_ms(double ms) {
  if (ms > 0) sleep_until(mono_ns() + (uint64_t)(ms * 1e6));
}

// xorshift64*: the same numbers everywhere for one seed.
uint64_t next_random(uint64_t *state) {
  uint64_t x = *state ? *state : 0x9e3779b97f4a7c15u;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return x * 0x2545f4914f6cdd1du;
}

uint64_t random_below(uint64_t *state, uint64_t limit) {
  return limit ? next_random(state) % limit : 0;
}
