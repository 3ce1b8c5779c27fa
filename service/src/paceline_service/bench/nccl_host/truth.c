// What the host did, one JSON object a line: what a reader of the ring is compared with.
#include "host.h"

static void print_text(const char *text) {
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') putchar('\\');
    putchar(*text);
  }
}

void truth_comm(const struct comm *comm) {
  fputs("{\"type\":\"comm\",\"name\":\"", stdout);
  print_text(comm->name);
  printf("\",\"index\":%d,\"hash\":\"%016llx\",\"rank\":%d,\"ranks\":%d,\"mask\":%d}\n",
         comm->index, (unsigned long long)comm->hash, comm->rank, comm->ranks, comm->mask);
}

static void truth_op(const struct comm *comm, const struct op *op) {
  uint64_t start = UINT64_MAX, stop = 0;
  for (int channel = 0; channel < op->channels; channel++) {
    if (op->begun >> channel & 1 && op->start_ns[channel] < start) start = op->start_ns[channel];
    if (op->ended >> channel & 1 && op->stop_ns[channel] > stop) stop = op->stop_ns[channel];
  }
  printf("{\"type\":\"op\",\"hash\":\"%016llx\",\"kind\":\"%s\",\"func\":\"%s\",\"peer\":%d,"
         "\"seq\":%llu,\"bytes\":%llu,\"called\":%llu,\"enqueued\":%llu,\"start\":%llu,"
         "\"stop\":%llu,\"channels\":%d,\"begun\":%d,\"ended\":%d,\"unpaired\":%d,"
         "\"ignored\":%s}\n",
         (unsigned long long)comm->hash,
         op->kind == COLL  ? "coll"
         : op->kind == P2P ? "p2p"
                           : "ce",
         op->func, op->peer, (unsigned long long)op->seq, (unsigned long long)op->bytes,
         (unsigned long long)op->called_ns, (unsigned long long)op->enqueued_ns,
         (unsigned long long)(start == UINT64_MAX ? 0 : start), (unsigned long long)stop,
         op->channels, __builtin_popcountll(op->begun), __builtin_popcountll(op->ended),
         __builtin_popcountll(op->unpaired), op->handle ? "false" : "true");
}

void truth_ops(const struct comm *comm) {
  for (const struct op *op = comm->all; op; op = op->next) truth_op(comm, op);
}

void truth_end(void) {
  printf("{\"type\":\"end\",\"abi\":%d,\"violations\":%ld}\n", abi, atomic_load(&violations));
  fflush(stdout);
}
