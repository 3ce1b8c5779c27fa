// The kernels at BackendSelect; the twin of ../collectives.py, whose rules they follow.
#pragma once

#include <torch/library.h>

#include <string>
#include <typeinfo>

#include "state.h"

namespace paceline {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

const DispatchKeySet kBelow(DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect);
constexpr size_t kSummedTensors = 64;

// The group that the kernel of this thread has met and Python does not know yet.
inline thread_local IValue met_group;

// One operator, as ../operators.py describes it; positions are -1 where there is no such argument.
struct Spec {
  uint8_t op = 0;
  int arguments = 0;
  int group_at = -1, tensor_at = 0, output_at = 0, root_at = -1, async_at = -1;
  bool times_size = false, has_payload = true, returns = true;

  bool directed() const { return op == kSend || op == kRecv; }
};

// A call that has arrived.
struct Arrival {
  Record record{};
  std::shared_ptr<Group> any_source;
  const void* output = nullptr;
  int slot = -1;
  bool on_cpu = true;
  PyObject* device_entry = nullptr;
};

inline const at::Tensor* first_tensor(const IValue& value) {
  if (value.isTensor()) return &value.toTensor();
  if (!value.isList()) return nullptr;
  const auto& items = value.toListRef();
  return items.empty() ? nullptr : first_tensor(items[0]);
}

inline uint64_t payload_of(const IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return 0;
    const int64_t count = tensor.layout() == c10::kStrided ? tensor.numel() : tensor._nnz();
    return static_cast<uint64_t>(count) * tensor.element_size();
  }
  if (!value.isList()) return 0;
  const auto& items = value.toListRef();
  if (items.empty()) return 0;
  if (items.size() > kSummedTensors) return items.size() * payload_of(items[0]);
  uint64_t sum = 0;
  for (const IValue& item : items) sum += payload_of(item);
  return sum;
}

inline const void* address_of(const at::Tensor* tensor) {
  if (!tensor || !tensor->defined() || tensor->layout() != c10::kStrided) return nullptr;
  const auto* impl = tensor->unsafeGetTensorImpl();
  return impl->has_storage() && impl->storage().device_type() != c10::kMeta ? impl->data() : nullptr;
}

// Fake tensors have the dispatch key of Python, and no memory.
inline bool is_imagined(const at::Tensor& tensor) {
  if (tensor.is_meta()) return true;
  const auto* impl = tensor.unsafeGetTensorImpl();
  return impl->key_set().has(DispatchKey::Python) && impl->has_storage() &&
         impl->storage().device_type() == c10::kMeta;
}

inline WorkRef work_of(const IValue& value) {
  if (!value.isObject()) return {};
  const IValue& capsule = value.toObjectRef().getSlot(0);
  if (!capsule.isCapsule()) return {};
  return c10::static_intrusive_pointer_cast<c10d::Work>(capsule.toCapsule());
}

inline std::shared_ptr<Group> group_of(const IValue& boxed, const Active& active) {
  if (!boxed.isObject()) return nullptr;
  const auto holder = boxed.toObjectRef().getSlot(0).toCapsule();
  const void* address = holder.get();
  Shared& all = shared();
  for (bool asked : {false, true}) {
    {
      std::lock_guard<std::mutex> guard(all.pending.lock);
      const auto found = all.groups.find(address);
      if (found != all.groups.end()) return found->second;
    }
    if (asked) break;
    Interpreter interpreter;
    met_group = boxed;
    PyObject* number = PyLong_FromVoidPtr(const_cast<void*>(address));
    PyObject* done = PyObject_CallFunctionObjArgs(active.resolve, number, nullptr);
    Py_XDECREF(number);
    Py_XDECREF(interpreter.checked(done, active));
    met_group = IValue();
  }
  return nullptr;
}

class Kernel final : public c10::OperatorKernel {
 public:
  explicit Kernel(Spec spec) : spec_(spec) {}

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    Active* active = shared().active.load(std::memory_order_acquire);
    if (!active || !is_set(active->switches->on)) {
      op.redispatchBoxed(keys & kBelow, stack);
      return;
    }
    Arrival arrival;
    arrival.record.start_ns = now_ns();
    bool recorded = false;
    try {
      recorded = arrive(*active, arrival, *stack);
    } catch (...) {
      count_error();
    }
    if (!recorded) {
      op.redispatchBoxed(keys & kBelow, stack);
      return;
    }
    try {
      op.redispatchBoxed(keys & kBelow, stack);
    } catch (...) {
      guarded([&] { returned(*active, arrival, {}, kFailed); });
      throw;
    }
    guarded([&] {
      returned(*active, arrival, spec_.returns ? work_of(stack->back()) : WorkRef{}, 0);
    });
  }

 private:
  template <typename Action>
  static void guarded(Action action) noexcept {
    try {
      action();
    } catch (...) {
      count_error();
    }
  }

  bool arrive(Active& active, Arrival& arrival, const Stack& stack) const {
    const IValue* arguments = &stack[stack.size() - spec_.arguments];
    const at::Tensor* tensor = first_tensor(arguments[spec_.tensor_at]);
    if (tensor && !tensor->defined()) tensor = nullptr;
    if (tensor && is_imagined(*tensor)) return false;
    arrival.on_cpu = !tensor || tensor->is_cpu();
    const auto group = group_of(arguments[spec_.group_at], active);
    if (!group) return false;
    // First, because the step that begins here may be one that is recorded, or no more.
    if (peek(active.clock->boundary_ns) || !peek(active.clock->step_start_ns))
      before_collective(active, arrival.record.start_ns);
    const bool full = is_set(active.switches->full);
    const bool asks = full && !arrival.on_cpu && tensor->is_cuda() &&
                      active.asks_about_device(arrival.record.start_ns);

    Record& record = arrival.record;
    record.issue_ns = record.start_ns;
    record.group = group->index;
    record.kind = full ? kCollective : kCountedOnly;
    record.code = spec_.op;
    record.peer =
        spec_.root_at >= 0 ? group->global(arguments[spec_.root_at].toInt()) : -1;
    if (full) {
      if (spec_.has_payload) record.payload_bytes = payload_of(arguments[spec_.tensor_at]);
      if (spec_.times_size) record.payload_bytes *= group->ranks.size();
      if (spec_.async_at >= 0 && arguments[spec_.async_at].toBool()) record.flags = kAsync;
      record.step = static_cast<uint32_t>(peek(active.clock->step));
      if (arrival.on_cpu || asks)
        arrival.output = spec_.output_at == spec_.tensor_at
                             ? address_of(tensor)
                             : address_of(first_tensor(arguments[spec_.output_at]));
    }
    {
      Shared& all = shared();
      std::lock_guard<std::mutex> guard(all.pending.lock);
      count(*group, record);
      if (full && arrival.on_cpu) arrival.slot = all.pending.ring.begin(record);
    }
    if (spec_.directed() && spec_.root_at < 0) arrival.any_source = group;
    if (asks) device_arrived(active, arrival, tensor->get_device());
    return full || (arrival.any_source && arrival.on_cpu);
  }

  // Counts at every level: ranks that record later must agree on the numbers.
  void count(Group& group, Record& record) const {
    if (!spec_.directed()) {
      record.seq = group.next_seq++;
    } else if (spec_.root_at >= 0) {
      const int me = group.global(group.rank);
      record.seq = spec_.op == kSend ? group.next_directed(me, record.peer)
                                     : group.next_directed(record.peer, me);
    }  // else: only the completion tells the source
  }

  static void before_collective(const Active& active, uint64_t start_ns) {
    Interpreter interpreter;
    PyObject* time = PyLong_FromUnsignedLongLong(start_ns);
    PyObject* done = PyObject_CallFunctionObjArgs(active.before_collective, time, nullptr);
    Py_XDECREF(time);
    Py_XDECREF(interpreter.checked(done, active));
  }

  void returned(const Active& active, Arrival& arrival, WorkRef work, uint32_t failed) const {
    if (arrival.device_entry) {
      device_returned(active, arrival, failed, static_cast<bool>(work), spec_.async_at >= 0);
      return;
    }
    Record& record = arrival.record;
    if (!arrival.on_cpu || !work) {
      // Without a Work the call itself was the wait; on a device only its return is known. A
      // Work of NCCL is never kept: that would pin its tensors.
      record.end_ns = now_ns();
      if (arrival.on_cpu || failed) record.join_ns = record.start_ns;
      record.flags |= arrival.on_cpu || failed ? failed : kHostReturn;
      Pending& pending = shared().pending;
      std::lock_guard<std::mutex> guard(pending.lock);
      pending.ring.finish(arrival.slot);
      if (record.kind != kCountedOnly) pending.ring.record(record);
      return;
    }
    keep(arrival, std::move(work));
  }

  void keep(Arrival& arrival, WorkRef work) const {
    const auto future = spec_.directed() ? nullptr : future_of(*work);
    Entry entry;
    entry.record = arrival.record;
    entry.key = work.get();
    entry.output = arrival.output;
    entry.slot = arrival.slot;
    entry.any_source = std::move(arrival.any_source);
    if (spec_.async_at < 0) entry.returned_ns = now_ns();
    const bool done = future && future->completed();
    if (!future) entry.held = std::move(work);
    if (!done) entry.future = future;
    Remains remains;
    Token token;
    Pending& pending = shared().pending;
    {
      std::lock_guard<std::mutex> guard(pending.lock);
      if (pending.is_full()) make_room(pending, remains);
      if (pending.is_full()) {  // all of them are waited for
        pending.ring.finish(entry.slot);
        return;
      }
      token = pending.add(std::move(entry), remains);
      if (done) pending.released(token, now_ns(), future->hasError() ? kFailed : 0u, remains);
    }
    if (future && !done)
      future->addCallback(
          [token](c10::ivalue::Future& completed) {
            // In a thread of Gloo: no interpreter, nothing slow.
            const uint64_t time_ns = now_ns();
            const uint32_t flags = completed.hasError() ? kFailed : 0u;
            Remains kept;
            Pending& table = shared().pending;
            std::lock_guard<std::mutex> guard(table.lock);
            table.released(token, time_ns, flags, kept);
          },
          /*uses_future=*/false);
  }

  static void make_room(Pending& pending, Remains& remains) {
    int left = kMadeRoom;
    for (int index = pending.oldest(); index >= 0 && left;) {
      const int newer = pending.at(index).newer;
      if (!pending.at(index).waiting) {
        pending.let_go(index, remains);
        --left;
      }
      index = newer;
    }
  }

  // Some Works have no future, and say so by an exception, which is slow: asked once a type.
  static FutureRef future_of(c10d::Work& work) {
    static std::array<std::atomic<const std::type_info*>, 8> without{};
    const std::type_info* type = &typeid(work);
    for (auto& known : without)
      if (known.load(std::memory_order_relaxed) == type) return nullptr;
    try {
      return work.getFuture();
    } catch (...) {
      for (auto& known : without) {
        const std::type_info* none = nullptr;
        if (known.compare_exchange_strong(none, type)) break;
      }
      return nullptr;
    }
  }

  static void device_arrived(Active& active, Arrival& arrival, int device) {
    Interpreter interpreter;
    const Record& r = arrival.record;
    PyObject* entry = PyObject_CallFunction(
        active.device_arrived, "iiKIiKKIKi", static_cast<int>(r.code), static_cast<int>(r.group),
        static_cast<unsigned long long>(r.seq), r.step, r.peer,
        static_cast<unsigned long long>(r.payload_bytes),
        static_cast<unsigned long long>(r.start_ns), r.flags,
        static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(arrival.output)), device);
    entry = interpreter.checked(entry, active);
    if (entry == Py_None) {
      Py_CLEAR(entry);
      active.untimed_until_ns = r.start_ns + kAskAgainNs;
    }
    arrival.device_entry = entry;
  }

  static void device_returned(
      const Active& active, Arrival& arrival, uint32_t failed, bool has_work, bool tells_async) {
    Interpreter interpreter;
    PyObject* done = PyObject_CallFunctionObjArgs(
        active.device_returned, arrival.device_entry, failed ? Py_True : Py_False,
        has_work ? Py_True : Py_False, tells_async ? Py_True : Py_False, nullptr);
    Py_CLEAR(arrival.device_entry);
    Py_XDECREF(interpreter.checked(done, active));
  }

  Spec spec_;
};

}  // namespace paceline
