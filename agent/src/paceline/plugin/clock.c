#include "clock.h"

enum {
  // A stamp can only be this far in the future if an earlier one was that late or wrong. NCCL's thread
  // may well be late at first: it sets up connections meanwhile, and a job may have no core for it.
  MAX_EARLY_NS = 1000 * 1000 * 1000,
  // So many in a row are no wrong stamps but another clock: the timer was set, or the first was
  // bad.
  STRANGERS_THAT_AGREE = 16,
};
static const int64_t MAX_LATE_NS = INT64_C(10) * 1000 * 1000 * 1000;
static const uint64_t WINDOW_NS = UINT64_C(1000) * 1000 * 1000;

static void begin_window(struct gpu_clock *clock, uint64_t now_ns, int64_t previous_ns,
                         int64_t difference_ns) {
  clock->previous_ns = previous_ns;
  int64_t offset_ns = previous_ns < difference_ns ? previous_ns : difference_ns;
  atomic_store_explicit(&clock->floor_ns, difference_ns, memory_order_relaxed);
  atomic_store_explicit(&clock->offset_ns, offset_ns, memory_order_relaxed);
  atomic_store_explicit(&clock->window_ns, now_ns, memory_order_release);
}

static void learn(struct gpu_clock *clock, uint64_t now_ns, int64_t difference_ns) {
  clock->strangers = 0;
  uint64_t window_ns = atomic_load_explicit(&clock->window_ns, memory_order_relaxed);
  int64_t floor_ns = atomic_load_explicit(&clock->floor_ns, memory_order_relaxed);
  if (now_ns - window_ns >= WINDOW_NS && now_ns > window_ns) {
    // After a pause nothing that was learned before it is fresh enough.
    bool fresh = now_ns - window_ns < 2 * WINDOW_NS;
    begin_window(clock, now_ns, fresh ? floor_ns : difference_ns, difference_ns);
  } else if (difference_ns < floor_ns) {
    atomic_store_explicit(&clock->floor_ns, difference_ns, memory_order_relaxed);
  }
}

// At once, and by whoever sees it: no event may be mapped behind its own callback.
static void lower_offset(struct gpu_clock *clock, int64_t offset_ns, int64_t difference_ns) {
  while (difference_ns < offset_ns &&
         !atomic_compare_exchange_weak_explicit(&clock->offset_ns, &offset_ns, difference_ns,
                                                memory_order_relaxed, memory_order_relaxed)) {
  }
}

static bool doubt(struct gpu_clock *clock, uint64_t now_ns, int64_t difference_ns) {
  if (++clock->strangers < STRANGERS_THAT_AGREE) return false;
  clock->strangers = 0;
  begin_window(clock, now_ns, difference_ns, difference_ns);
  return true;
}

bool clock_sees(struct gpu_clock *clock, uint64_t now_ns, uint64_t stamp) {
  if (!stamp) return false;
  int64_t difference_ns = (int64_t)(now_ns - stamp);  // two clocks: any value, also negative
  uint64_t window_ns = atomic_load_explicit(&clock->window_ns, memory_order_acquire);
  int64_t offset_ns = atomic_load_explicit(&clock->offset_ns, memory_order_relaxed);
  // In steps that cannot overflow, whatever a stamp says.
  bool fits = window_ns && (difference_ns >= offset_ns
                                ? (uint64_t)difference_ns - (uint64_t)offset_ns <= MAX_LATE_NS
                                : (uint64_t)offset_ns - (uint64_t)difference_ns <= MAX_EARLY_NS);
  if (fits && now_ns - window_ns < WINDOW_NS &&
      difference_ns >= atomic_load_explicit(&clock->floor_ns, memory_order_relaxed)) {
    return true;  // the usual case: nothing to learn
  }
  if (fits) lower_offset(clock, offset_ns, difference_ns);
  // Whoever finds it busy leaves the learning to the other thread.
  if (atomic_flag_test_and_set_explicit(&clock->busy, memory_order_acquire)) return fits;
  if (!window_ns && !atomic_load_explicit(&clock->window_ns, memory_order_relaxed)) {
    begin_window(clock, now_ns, difference_ns, difference_ns);
    fits = true;
  } else if (fits) {
    learn(clock, now_ns, difference_ns);
  } else {
    fits = doubt(clock, now_ns, difference_ns);
  }
  atomic_flag_clear_explicit(&clock->busy, memory_order_release);
  return fits;
}

uint64_t clock_map(struct gpu_clock *clock, uint64_t stamp) {
  return stamp + (uint64_t)atomic_load_explicit(&clock->offset_ns, memory_order_relaxed);
}
