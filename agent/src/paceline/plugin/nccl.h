// What can be asked of libraries that the process has loaded already. Nothing is linked, nothing is
// loaded for it.
#pragma once

#include <stdbool.h>

// The number that NCCL gives itself (22809 is 2.28.9), 0 if it cannot be found. `near` and
// `or_near` are addresses inside it: torch loads NCCL so that its symbols are not visible by name.
int nccl_version(const void *near, const void *or_near);

// Whether it is AMD's, RCCL: the stamps of its GPUs count 10 ns, and nothing here would tell.
bool nccl_is_amds(const void *near, const void *or_near);

// The GPU that the calling thread has chosen, -1 if CUDA's driver is not loaded or says none.
int cuda_device(void);
