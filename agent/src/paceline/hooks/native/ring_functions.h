// The ring for Python: what takes the place of RingWriter's own methods (../../ring/writer.py).
#pragma once

#include "state.h"

namespace paceline {
namespace {

// open_ring(file descriptor, bytes, capacity)
PyObject* open_ring(PyObject*, PyObject* args) {
  int file;
  unsigned long long size_bytes;
  unsigned int capacity;
  if (!PyArg_ParseTuple(args, "iKI", &file, &size_bytes, &capacity)) return nullptr;
  Pending& pending = shared().pending;
  std::lock_guard<std::mutex> guard(pending.lock);
  pending.ring.close();
  if (!pending.ring.open(file, size_bytes, capacity)) {
    PyErr_SetFromErrno(PyExc_OSError);
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* close_ring(PyObject*, PyObject*) {
  Pending& pending = shared().pending;
  std::lock_guard<std::mutex> guard(pending.lock);
  pending.ring.close();
  Py_RETURN_NONE;
}

constexpr const char* kFields[] = {
    "kind", "code", "group", "seq", "step", "peer", "payload_bytes", "start_ns", "end_ns",
    "join_ns", "issue_ns", "flags"};
constexpr Py_ssize_t kRecordFields = 12;

bool numbers_of(
    PyObject* const* args, Py_ssize_t counted, PyObject* names, Py_ssize_t needed,
    unsigned long long* numbers) {
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t at = 0; at < counted + named; ++at) {
    Py_ssize_t field = at;
    if (at >= counted)
      for (field = 0; field < kRecordFields; ++field)
        if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, at - counted), kFields[field]))
          break;
    if (field >= kRecordFields) {
      PyErr_SetString(PyExc_TypeError, "a record has no such field");
      return false;
    }
    numbers[field] = PyLong_AsUnsignedLongLongMask(args[at]);
    if (numbers[field] == static_cast<unsigned long long>(-1) && PyErr_Occurred()) return false;
  }
  if (counted + named >= needed) return true;
  PyErr_Format(PyExc_TypeError, "%zd of at least %zd fields", counted + named, needed);
  return false;
}

Record record_of(const unsigned long long* n) {
  Record record{};
  record.kind = static_cast<uint8_t>(n[0]);
  record.code = static_cast<uint8_t>(n[1]);
  record.group = static_cast<uint16_t>(n[2]);
  record.seq = n[3];
  record.step = static_cast<uint32_t>(n[4]);
  record.peer = static_cast<int32_t>(n[5]);
  record.payload_bytes = n[6];
  record.start_ns = n[7];
  record.end_ns = n[8];
  record.join_ns = n[9];
  record.issue_ns = n[10];
  record.flags = static_cast<uint32_t>(n[11]);
  return record;
}

PyObject* closed_ring() {
  PyErr_SetString(PyExc_ValueError, "the ring was released");
  return nullptr;
}

// As RingWriter.record.
PyObject* record(PyObject*, PyObject* const* args, Py_ssize_t counted, PyObject* names) {
  unsigned long long numbers[kRecordFields] = {};
  if (!numbers_of(args, counted, names, 9, numbers)) return nullptr;
  Pending& pending = shared().pending;
  std::lock_guard<std::mutex> guard(pending.lock);
  if (!pending.ring.is_open()) return closed_ring();
  pending.ring.record(record_of(numbers));
  Py_RETURN_NONE;
}

// As RingWriter.begin: op, group, seq, step, peer, payload_bytes, start_ns, flags.
PyObject* begin(PyObject*, PyObject* const* args, Py_ssize_t counted) {
  unsigned long long numbers[kRecordFields] = {};
  if (counted > 8 || !numbers_of(args, counted, nullptr, 7, numbers)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "8 fields at most");
    return nullptr;
  }
  unsigned long long full[kRecordFields] = {kCollective};
  for (int field = 0; field < 7; ++field) full[field + 1] = numbers[field];
  full[11] = numbers[7];
  Pending& pending = shared().pending;
  std::lock_guard<std::mutex> guard(pending.lock);
  if (!pending.ring.is_open()) return closed_ring();
  return PyLong_FromLong(pending.ring.begin(record_of(full)));
}

PyObject* finish(PyObject*, PyObject* slot) {
  const long number = PyLong_AsLong(slot);
  if (number == -1 && PyErr_Occurred()) return nullptr;
  Pending& pending = shared().pending;
  std::lock_guard<std::mutex> guard(pending.lock);
  pending.ring.finish(static_cast<int>(number));
  Py_RETURN_NONE;
}

PyObject* count(PyObject*, PyObject* offset) {
  const unsigned long at = PyLong_AsUnsignedLong(offset);
  if (PyErr_Occurred()) return nullptr;
  Pending& pending = shared().pending;
  std::lock_guard<std::mutex> guard(pending.lock);
  if (!pending.ring.is_open() || at % 8 || at >= kInFlightOffset) return closed_ring();
  pending.ring.count(at);
  Py_RETURN_NONE;
}

}  // namespace
}  // namespace paceline
