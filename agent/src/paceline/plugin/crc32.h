// CRC-32 as zlib computes it; the agent brings no zlib for C.
#pragma once

#include <stddef.h>
#include <stdint.h>

uint32_t crc32_of(const void *data, size_t size);
