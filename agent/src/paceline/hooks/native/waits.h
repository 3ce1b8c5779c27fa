// Who waits for a collective, and who finds out that it has completed.
#pragma once

#include <pybind11/detail/common.h>

#include "kernel.h"

namespace paceline {

// What a waiter holds between the begin and the end of its wait.
struct Waiting {
  Token token;
  uint64_t join_ns = 0;
};

inline Waiting begin_wait(Token (*find)(const Pending&, const void*), const void* what) {
  Pending& pending = shared().pending;
  std::lock_guard<std::mutex> guard(pending.lock);
  const Token token = find(pending, what);
  Entry* entry = pending.find(token);
  if (!entry || entry->waiting) return {};
  entry->waiting = true;
  return {token, now_ns()};
}

inline Token by_work(const Pending& pending, const void* work) { return pending.find_key(work); }
inline Token by_output(const Pending& pending, const void* output) {
  return output ? pending.find_output(output) : Token{};
}

inline void end_wait(const Waiting& wait, bool failed) noexcept {
  const uint64_t end_ns = now_ns();
  Remains remains;
  WorkRef asked;
  Pending& pending = shared().pending;
  try {
    {
      std::lock_guard<std::mutex> guard(pending.lock);
      Entry* entry = pending.find(wait.token);
      if (entry && entry->any_source && !failed) asked = entry->held;
    }
    const int source = asked ? asked->sourceRank() : -1;
    std::lock_guard<std::mutex> guard(pending.lock);
    Entry* entry = pending.find(wait.token);
    if (!entry) return;
    Record& record = entry->record;
    uint32_t flags = record.flags | (failed ? kFailed : 0u);
    if (entry->returned_ns && wait.join_ns > entry->returned_ns + kNotImmediateNs) flags |= kAsync;
    if (asked) {
      Group& group = *entry->any_source;
      record.peer = group.global(source);
      record.seq = group.next_directed(record.peer, group.global(group.rank));
    }
    const uint64_t released_ns = entry->released_ns;
    pending.write(
        wait.token.index, released_ns && released_ns < end_ns ? released_ns : end_ns, wait.join_ns,
        flags, remains);
  } catch (...) {
    count_error();
  }
}

// `_c10d_functional::wait_tensor`: finds the collective by its output.
class WaitTensor final : public c10::OperatorKernel {
 public:
  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    Active* active = shared().active.load(std::memory_order_acquire);
    Waiting wait;
    const void* on_device = nullptr;
    if (active && is_set(active->switches->on) && stack->back().isTensor()) {
      const at::Tensor& tensor = stack->back().toTensor();
      if (tensor.defined() && tensor.is_cuda() && !is_imagined(tensor) &&
          active->asks_about_device(now_ns()))
        on_device = address_of(&tensor);
      if (tensor.defined() && tensor.is_cpu() && !is_imagined(tensor))
        wait = begin_wait(by_output, address_of(&tensor));
    }
    try {
      op.redispatchBoxed(keys & kBelow, stack);
    } catch (...) {
      if (wait.join_ns) end_wait(wait, true);
      throw;
    }
    if (wait.join_ns) end_wait(wait, false);
    if (on_device) device_waited(*active, on_device);
  }

 private:
  static void device_waited(const Active& active, const void* output) {
    Interpreter interpreter;
    PyObject* address = PyLong_FromVoidPtr(const_cast<void*>(output));
    PyObject* done = PyObject_CallFunctionObjArgs(active.device_waited, address, nullptr);
    Py_XDECREF(address);
    Py_XDECREF(interpreter.checked(done, active));
  }
};

// What replaces `Work.wait` in Python.
struct WaitMethod {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* original;
  PyObject* check;    // (work) -> address, asked of torch itself, which is slow
  PyObject* trusted;  // types whose layout was found to be what pybind11 says
  PyObject* dict;
};

inline const void* address_in(PyObject* work) {
  const auto* instance = reinterpret_cast<pybind11::detail::instance*>(work);
  return instance->simple_layout ? instance->simple_value_holder[0] : nullptr;
}

inline const void* work_address(WaitMethod* method, PyObject* work) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(work));
  const int known = PySet_Contains(method->trusted, type);
  if (known == 1) return address_in(work);
  PyObject* number = PyObject_CallFunctionObjArgs(method->check, work, nullptr);
  const void* address = number ? PyLong_AsVoidPtr(number) : nullptr;
  Py_XDECREF(number);
  if (address && address == address_in(work)) PySet_Add(method->trusted, type);
  PyErr_Clear();
  return address;
}

inline PyObject* call_wait(
    PyObject* self, PyObject* const* arguments, size_t counted, PyObject* names) {
  auto* method = reinterpret_cast<WaitMethod*>(self);
  Active* active = shared().active.load(std::memory_order_acquire);
  Waiting wait;
  if (active && is_set(active->switches->on) && PyVectorcall_NARGS(counted) > 0 &&
      shared().pending.size())
    wait = begin_wait(by_work, work_address(method, arguments[0]));
  PyObject* result = PyObject_Vectorcall(method->original, arguments, counted, names);
  if (wait.join_ns) end_wait(wait, !result);
  return result;
}

inline PyObject* bind_wait(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

inline void free_wait(PyObject* self) {
  auto* method = reinterpret_cast<WaitMethod*>(self);
  Py_XDECREF(method->original);
  Py_XDECREF(method->check);
  Py_XDECREF(method->trusted);
  Py_XDECREF(method->dict);
  Py_TYPE(self)->tp_free(self);
}

inline PyMemberDef wait_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(WaitMethod, original), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

inline PyTypeObject WaitType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "paceline_native_hook.WaitMethod",
    .tp_basicsize = sizeof(WaitMethod),
    .tp_dealloc = free_wait,
    .tp_vectorcall_offset = offsetof(WaitMethod, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_members = wait_members,
    .tp_descr_get = bind_wait,
    .tp_dictoffset = offsetof(WaitMethod, dict),
};

struct Sweep {
  uint64_t now_ns, older_than_ns, joined_since_ns;
  uint32_t step;
  bool spare_newest;
};

// Writes those that have completed. Those without a future are asked, outside the lock.
inline void sweep(const Sweep& sweep) {
  struct Asked {
    Token token;
    WorkRef work;
    bool done;
  };
  Pending& pending = shared().pending;
  std::vector<Asked> asked;
  Remains remains;
  const auto join_of = [&](int index) -> uint64_t {
    const uint64_t start_ns = pending.at(index).record.start_ns;
    const bool joined = sweep.joined_since_ns && start_ns >= sweep.joined_since_ns;
    return joined && pending.is_newest(index) ? start_ns : 0;
  };
  {
    std::lock_guard<std::mutex> guard(pending.lock);
    for (int index = pending.oldest(); index >= 0;) {
      Entry& entry = pending.at(index);
      const int newer = entry.newer;
      const bool spared = sweep.now_ns - entry.record.start_ns < sweep.older_than_ns ||
                          (sweep.spare_newest && pending.is_newest(index)) || entry.waiting;
      // A future wakes its waiters before it tells us: the reducer may have gone on already.
      if (!spared && entry.future && entry.future->completed()) {
        const uint32_t failed = entry.future->hasError() ? kFailed : 0u;
        pending.released({index, entry.generation}, sweep.now_ns, kReleasePolled | failed, remains);
      }
      if (!spared && entry.released_ns)
        pending.write(
            index, entry.released_ns, join_of(index), entry.record.flags | kAsync, remains);
      else if (!spared && entry.held)
        asked.push_back({{index, entry.generation}, entry.held, false});
      index = newer;
    }
  }
  for (Asked& one : asked) one.done = one.work->isCompleted();
  std::lock_guard<std::mutex> guard(pending.lock);
  for (Asked& one : asked) {
    Entry* entry = pending.find(one.token);
    if (!entry || entry->waiting) continue;
    const bool directed = entry->record.code == kSend || entry->record.code == kRecv;
    if (one.done)
      pending.write(
          one.token.index, sweep.now_ns, join_of(one.token.index),
          entry->record.flags | kReleasePolled | kAsync, remains);
    else if (
        directed && sweep.step - entry->record.step >= kAbandonedSteps &&
        one.work.use_count() <= 2)  // the table's and ours: nobody is left to wait
      pending.let_go(one.token.index, remains);
  }
}

}  // namespace paceline
