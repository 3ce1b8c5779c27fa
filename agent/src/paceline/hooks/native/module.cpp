// The Python module of the native hook: what hook.py uses of the other files here.
#include <pthread.h>

#include "ring_functions.h"
#include "waits.h"

namespace paceline {
namespace {

struct GroupObject {
  PyObject_HEAD
  std::shared_ptr<Group>* group;
};

PyObject* next_seq(PyObject* self, PyObject*) {
  Group& group = **reinterpret_cast<GroupObject*>(self)->group;
  std::lock_guard<std::mutex> guard(shared().pending.lock);
  return PyLong_FromUnsignedLongLong(group.next_seq++);
}

PyObject* next_directed_seq(PyObject* self, PyObject* args) {
  int source, destination;
  if (!PyArg_ParseTuple(args, "ii", &source, &destination)) return nullptr;
  Group& group = **reinterpret_cast<GroupObject*>(self)->group;
  std::lock_guard<std::mutex> guard(shared().pending.lock);
  return PyLong_FromUnsignedLongLong(group.next_directed(source, destination));
}

void free_group(PyObject* self) {
  delete reinterpret_cast<GroupObject*>(self)->group;
  Py_TYPE(self)->tp_free(self);
}

PyMethodDef group_methods[] = {
    {"next_seq", next_seq, METH_NOARGS, nullptr},
    {"next_directed_seq", next_directed_seq, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject GroupType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "paceline_native_hook.Group",
    .tp_basicsize = sizeof(GroupObject),
    .tp_dealloc = free_group,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = group_methods,
};

PyTypeObject SwitchesType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "paceline_native_hook.Switches",
    .tp_basicsize = sizeof(Switches),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_members = switches_members,
    .tp_new = PyType_GenericNew,
};

PyTypeObject ClockType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "paceline_native_hook.Clock",
    .tp_basicsize = sizeof(Clock),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_members = clock_members,
    .tp_new = PyType_GenericNew,
};

// add_group(address, index, rank, ranks) -> Group
PyObject* add_group(PyObject*, PyObject* args) {
  PyObject *address, *ranks;
  auto group = std::make_shared<Group>();
  int index;
  if (!PyArg_ParseTuple(
          args, "OiiO!", &address, &index, &group->rank, &PyTuple_Type, &ranks))
    return nullptr;
  const void* key = PyLong_AsVoidPtr(address);
  if (PyErr_Occurred()) return nullptr;
  group->index = static_cast<uint16_t>(index);
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(ranks); ++at)
    group->ranks.push_back(static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(ranks, at))));
  if (PyErr_Occurred()) return nullptr;
  auto* object = PyObject_New(GroupObject, &GroupType);
  if (!object) return nullptr;
  object->group = new std::shared_ptr<Group>(group);
  Shared& all = shared();
  std::lock_guard<std::mutex> guard(all.pending.lock);
  all.groups[key] = std::move(group);
  return reinterpret_cast<PyObject*>(object);
}

// forget_group(address); None forgets all
PyObject* forget_group(PyObject*, PyObject* address) {
  const void* key = address == Py_None ? nullptr : PyLong_AsVoidPtr(address);
  if (PyErr_Occurred()) return nullptr;
  Shared& all = shared();
  std::lock_guard<std::mutex> guard(all.pending.lock);
  if (address == Py_None)
    all.groups.clear();
  else
    all.groups.erase(key);
  Py_RETURN_NONE;
}

PyObject* pending_count(PyObject*, PyObject*) {
  return PyLong_FromLong(shared().pending.size());
}

PyObject* newest_start_ns(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(shared().pending.newest_start_ns());
}

// sweep(now_ns, step, older_than_ns, joined_since_ns, spare_newest)
PyObject* sweep_pending(PyObject*, PyObject* args) {
  unsigned long long now, older, joined;
  unsigned int step;
  int spare;
  if (!PyArg_ParseTuple(args, "KIKKp", &now, &step, &older, &joined, &spare)) return nullptr;
  try {
    sweep({now, older, joined, step, spare != 0});
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* let_all_go(PyObject*, PyObject*) {
  Pending& pending = shared().pending;
  Remains remains;
  {
    std::lock_guard<std::mutex> guard(pending.lock);
    while (pending.oldest() >= 0) pending.let_go(pending.oldest(), remains);
  }
  Py_RETURN_NONE;
}

// The kernels that are installed; taken out by destroying them.
std::vector<std::unique_ptr<torch::Library>>& libraries() {
  static auto* installed = new std::vector<std::unique_ptr<torch::Library>>;
  return *installed;
}

torch::Library& library(torch::Library::Kind kind, const char* name) {
  libraries().push_back(std::make_unique<torch::Library>(
      kind, name, c10::make_optional(DispatchKey::BackendSelect), __FILE__, __LINE__));
  return *libraries().back();
}

// install(switches, clock, resolve, before_collective, failed, device_arrived, device_returned,
//         device_waited, [(name, op, arguments, group_at, tensor_at, output_at, root_at, async_at, times_size,
//           has_payload, returns)], has_wait_tensor)
PyObject* install(PyObject*, PyObject* args) {
  auto* active = new Active{};
  PyObject *switches, *clock, *specs;
  int has_wait_tensor;
  if (!PyArg_ParseTuple(
          args, "O!O!OOOOOOO!p", &SwitchesType, &switches, &ClockType, &clock, &active->resolve,
          &active->before_collective, &active->failed, &active->device_arrived,
          &active->device_returned, &active->device_waited, &PyList_Type, &specs, &has_wait_tensor)) {
    delete active;
    return nullptr;
  }
  active->switches = reinterpret_cast<Switches*>(switches);
  active->clock = reinterpret_cast<Clock*>(clock);
  for (PyObject* kept : {switches, clock, active->resolve, active->before_collective,
                         active->failed, active->device_arrived, active->device_returned,
                         active->device_waited})
    Py_INCREF(kept);
  if (!libraries().empty()) {  // they stay when the hooks are closed, and serve the next
    shared().active.store(active, std::memory_order_release);
    Py_RETURN_NONE;
  }
  try {
    torch::Library& c10d = library(torch::Library::IMPL, "c10d");
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(specs); ++at) {
      const char* name;
      Spec spec;
      int op, times_size, has_payload, returns;
      if (!PyArg_ParseTuple(
              PyList_GET_ITEM(specs, at), "siiiiiiippp", &name, &op, &spec.arguments,
              &spec.group_at, &spec.tensor_at, &spec.output_at, &spec.root_at, &spec.async_at,
              &times_size, &has_payload, &returns)) {
        libraries().clear();
        return nullptr;
      }
      spec.op = static_cast<uint8_t>(op);
      spec.times_size = times_size;
      spec.has_payload = has_payload;
      spec.returns = returns;
      c10d.impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(spec)));
    }
    if (has_wait_tensor)
      library(torch::Library::IMPL, "_c10d_functional")
          .impl(
              "wait_tensor",
              torch::CppFunction::makeFromBoxedFunctor(std::make_unique<WaitTensor>()));
  } catch (const std::exception& error) {
    libraries().clear();
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  shared().active.store(active, std::memory_order_release);
  Py_RETURN_NONE;
}

// The kernels only pass calls through. Torch is not safe against taking one out while another
// thread is in it.
PyObject* silence(PyObject*, PyObject*) {
  shared().active.store(nullptr, std::memory_order_release);
  Py_RETURN_NONE;
}

PyObject* uninstall(PyObject*, PyObject*) {
  shared().active.store(nullptr, std::memory_order_release);
  libraries().clear();
  Py_RETURN_NONE;
}

// wait_method(original, check) -> what to put in the place of `original`
PyObject* wait_method(PyObject*, PyObject* args) {
  PyObject *original, *check;
  if (!PyArg_ParseTuple(args, "OO", &original, &check)) return nullptr;
  auto* method = PyObject_New(WaitMethod, &WaitType);
  if (!method) return nullptr;
  method->call = call_wait;
  method->original = Py_NewRef(original);
  method->check = Py_NewRef(check);
  method->trusted = PySet_New(nullptr);
  method->dict = PyDict_New();
  return reinterpret_cast<PyObject*>(method);
}

PyObject* errors(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(shared().errors); }

PyMethodDef methods[] = {
    {"add_group", add_group, METH_VARARGS, nullptr},
    {"forget_group", forget_group, METH_O, nullptr},
    {"open_ring", open_ring, METH_VARARGS, nullptr},
    {"close_ring", close_ring, METH_NOARGS, nullptr},
    {"record", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(record)),
     METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"begin", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(begin)), METH_FASTCALL,
     nullptr},
    {"finish", finish, METH_O, nullptr},
    {"count", count, METH_O, nullptr},
    {"pending_count", pending_count, METH_NOARGS, nullptr},
    {"newest_start_ns", newest_start_ns, METH_NOARGS, nullptr},
    {"sweep", sweep_pending, METH_VARARGS, nullptr},
    {"let_all_go", let_all_go, METH_NOARGS, nullptr},
    {"install", install, METH_VARARGS, nullptr},
    {"silence", silence, METH_NOARGS, nullptr},
    {"uninstall", uninstall, METH_NOARGS, nullptr},
    {"wait_method", wait_method, METH_VARARGS, nullptr},
    {"errors", errors, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

// A forked child has no other threads, so a lock that one of them held would stay locked there
// for ever. Nobody waits for anything under the lock, so a fork is not held up by it.
void lock_before_fork() { shared().pending.lock.lock(); }
void unlock_after_fork() { shared().pending.lock.unlock(); }

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "paceline_native_hook", nullptr, -1, methods};

void met_group_op(const OperatorHandle&, Stack* stack) { stack->push_back(met_group); }

void work_address_op(const OperatorHandle&, Stack* stack) {
  const WorkRef work = work_of(stack->back());
  stack->back() = IValue(static_cast<int64_t>(reinterpret_cast<intptr_t>(work.get())));
}

void group_address_op(const OperatorHandle&, Stack* stack) {
  const void* address = stack->back().toObjectRef().getSlot(0).toCapsule().get();
  stack->back() = IValue(static_cast<int64_t>(reinterpret_cast<intptr_t>(address)));
}

}  // namespace
}  // namespace paceline

// Torch itself turns a Work or a group of C++ into Python's and back.
TORCH_LIBRARY(paceline_native_hook, m) {
  m.def(
      "met_group() -> __torch__.torch.classes.c10d.ProcessGroup",
      torch::CppFunction::makeFromBoxedFunction<&paceline::met_group_op>());
  m.def(
      "group_address(__torch__.torch.classes.c10d.ProcessGroup group) -> int",
      torch::CppFunction::makeFromBoxedFunction<&paceline::group_address_op>());
  m.def(
      "work_address(__torch__.torch.classes.c10d.Work work) -> int",
      torch::CppFunction::makeFromBoxedFunction<&paceline::work_address_op>());
}

PyMODINIT_FUNC PyInit_paceline_native_hook() {
  using namespace paceline;
  PyTypeObject* types[] = {&GroupType, &SwitchesType, &ClockType, &WaitType};
  for (PyTypeObject* type : types)
    if (PyType_Ready(type) < 0) return nullptr;
  PyObject* module = PyModule_Create(&definition);
  if (!module) return nullptr;
  pthread_atfork(lock_before_fork, unlock_after_fork, unlock_after_fork);
  Py_INCREF(&SwitchesType);
  Py_INCREF(&ClockType);
  PyModule_AddObject(module, "Switches", reinterpret_cast<PyObject*>(&SwitchesType));
  PyModule_AddObject(module, "Clock", reinterpret_cast<PyObject*>(&ClockType));
  return module;
}
