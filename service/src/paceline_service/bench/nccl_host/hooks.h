// What the hooks on torch would write in the same process: their ring, through the plugin's own C API.
#pragma once

#include <stdint.h>

enum { PHASE_INPUT = 1, PHASE_FORWARD = 2, PHASE_BACKWARD = 3, PHASE_OPTIMIZER = 4 };

void hooks_open(int rank, int world);
void hooks_phase(int phase, int step, uint64_t start_ns, uint64_t end_ns, uint64_t issue_ns, int gpu);
void hooks_step(int step, uint64_t start_ns, uint64_t end_ns, int gpu);
void hooks_all_reduce(uint64_t seq, int step, uint64_t bytes, uint64_t called_ns, uint64_t back_ns);
void hooks_close(void);
