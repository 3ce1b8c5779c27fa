// From a GPU's global timer to CLOCK_MONOTONIC, without CUDA.
//
// Nobody tells what the timer showed at a given instant. But a stamp reaches a callback after it
// was taken, so `callback - stamp` is the difference of the two clocks plus a delay; the smallest
// of many is the difference plus the smallest delay, a few microseconds. Only the last one to two
// seconds count, because the oscillators drift by 10 to 100 ppm: mapped times are late by the
// smallest delay, and off by up to what the GPU's clock drifts in two seconds. Durations on one GPU
// are differences of stamps and need none of this.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// All zeros is a clock that has seen nothing. One for each GPU of the process.
struct gpu_clock {
  _Atomic int64_t offset_ns;   // what to add to a stamp
  _Atomic int64_t floor_ns;    // smallest difference of this window
  _Atomic uint64_t window_ns;  // when this window began; 0: never
  atomic_flag busy;            // held by the thread that changes what follows
  int64_t previous_ns;         // smallest difference of the window before
  int strangers;               // stamps in a row that did not fit
};

// Learn from a stamp that a callback brought at `now_ns`. False: the stamp cannot be right (zero,
// from the future, or too old) and must not be used.
bool clock_sees(struct gpu_clock *clock, uint64_t now_ns, uint64_t stamp);

// The CLOCK_MONOTONIC time of a stamp that clock_sees() accepted.
uint64_t clock_map(struct gpu_clock *clock, uint64_t stamp);
