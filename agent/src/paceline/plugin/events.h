// From NCCL's events to the life of a collective.
#pragma once

#include <stdint.h>

#include "abi.h"

// `type` is apart from the event because its width depends on the version.
void event_starts(void *context, void **handle, uint64_t type, const struct event *event);
void event_stops(void *handle);
void event_changes(void *handle, int state, const struct state_args *args);

// The operation of a function's name, and the bytes of an element of a datatype's name.
int op_of_function(const char *function);
uint64_t bytes_of_datatype(const char *datatype);
// The whole buffer of an operation, as docs/capture.md counts it.
uint64_t payload_of(int op, uint64_t count, uint64_t element_bytes, int ranks);
