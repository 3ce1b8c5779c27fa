// What the kernels and the Python hooks share: switches, the step clock's numbers, the groups.
//
// `Switches` and `Clock` are base types for the Python recorder and step clock: their members
// lie here, so Python assigns to attributes as ever and the kernels read plain memory.
#pragma once

#include <Python.h>
#include <structmember.h>

#include <atomic>

#include "pending.h"

namespace paceline {

struct Switches {
  PyObject_HEAD
  char on;
  char full;
};

struct Clock {
  PyObject_HEAD
  long long step;
  unsigned long long boundary_ns;
  unsigned long long step_start_ns;
};

inline PyMemberDef switches_members[] = {
    {"on", T_BOOL, offsetof(Switches, on), 0, nullptr},
    {"full", T_BOOL, offsetof(Switches, full), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

inline PyMemberDef clock_members[] = {
    {"step", T_LONGLONG, offsetof(Clock, step), 0, nullptr},
    {"boundary_ns", T_ULONGLONG, offsetof(Clock, boundary_ns), 0, nullptr},
    {"step_start_ns", T_ULONGLONG, offsetof(Clock, step_start_ns), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

// Everything of one installation. It is never freed: a kernel may still run in some thread.
struct Active {
  Switches* switches;
  Clock* clock;
  PyObject* resolve;           // (address) -> None: registers the group that a kernel met
  PyObject* before_collective; // (start_ns): a step is to be written first
  PyObject* failed;            // (exception)
  PyObject* device_arrived;    // None, or (op, ..., start_ns, flags, address, device) -> entry
  PyObject* device_returned;   // (entry, failed, has_work, tells_async)
  PyObject* device_waited;     // (address): the current stream waits for this output
  std::atomic<uint64_t> untimed_until_ns;

  // Whether Python is to be asked about a tensor on a device. As long as it says that nothing is
  // timed there (the NCCL plugin may have the times) it is asked ten times a second.
  bool asks_about_device(uint64_t now) const {
    return device_arrived != Py_None && now >= untimed_until_ns.load(std::memory_order_relaxed);
  }
};
constexpr uint64_t kAskAgainNs = 100000000;

struct Shared {
  Pending pending;
  std::unordered_map<const void*, std::shared_ptr<Group>> groups;  // under pending.lock
  std::atomic<Active*> active{nullptr};
  std::atomic<uint64_t> errors{0};
};

// Never destroyed: Gloo's threads may complete a Work while the process ends.
inline Shared& shared() {
  static auto* instance = new Shared;
  return *instance;
}

inline bool is_set(const char& flag) { return __atomic_load_n(&flag, __ATOMIC_RELAXED); }

template <typename T>
T peek(const T& number) {
  return __atomic_load_n(&number, __ATOMIC_RELAXED);
}

inline void count_error() {
  Shared& all = shared();
  all.errors++;
  std::lock_guard<std::mutex> guard(all.pending.lock);
  all.pending.ring.count(kHookErrorsOffset);
}

// Holds the interpreter's lock for a slow path.
class Interpreter {
 public:
  Interpreter() : state_(PyGILState_Ensure()) {}
  ~Interpreter() { PyGILState_Release(state_); }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Takes the result; an exception goes to `failed` and no further.
  PyObject* checked(PyObject* result, const Active& active) {
    if (result) return result;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace) PyException_SetTraceback(value, trace);
    PyObject* told = PyObject_CallFunctionObjArgs(active.failed, value ? value : Py_None, nullptr);
    Py_XDECREF(told);
    PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return nullptr;
  }

 private:
  PyGILState_STATE state_;
};

}  // namespace paceline
