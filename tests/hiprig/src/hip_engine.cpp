// Who may run when, how long a run takes at least, and what a failure does to its device.
#include <chrono>
#include <thread>

#include "hip_control.h"
#include "hip_device.h"

namespace hipcpu {

Engine::Ticket Engine::enqueue(int priority) {
  std::lock_guard lock(mutex_);
  Ticket ticket{priority, arrivals_++};
  waiting_.insert(ticket);
  queued_.notify_all();
  return ticket;
}

bool Engine::may_begin(Ticket ticket) const {
  bool is_held = beginnings_left_ && *beginnings_left_ == 0;
  return !is_held && busy_ < slots_ && *waiting_.begin() == ticket;
}

void Engine::release() {
  {
    std::lock_guard lock(mutex_);
    busy_--;
  }
  changed_.notify_all();
}

void Engine::look_again() {
  {
    std::lock_guard lock(mutex_);
  }  // nobody is between asking and falling asleep
  changed_.notify_all();
}

void Engine::hold(unsigned beginnings) {
  std::lock_guard lock(mutex_);
  beginnings_left_ = beginnings;
}

void Engine::let_go() {
  {
    std::lock_guard lock(mutex_);
    beginnings_left_.reset();
  }
  changed_.notify_all();
}

void Engine::set_slots(int slots) {
  {
    std::lock_guard lock(mutex_);
    slots_ = slots;
  }
  changed_.notify_all();
}

bool Engine::wait_until_queued(size_t count, std::chrono::seconds patience) {
  std::unique_lock lock(mutex_);
  return queued_.wait_for(lock, patience, [&] { return waiting_.size() >= count; });
}

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kKernel: return "kernel";
    case OpKind::kHostToDevice: return "h2d";
    case OpKind::kDeviceToHost: return "d2h";
    case OpKind::kDeviceToDevice: return "d2d";
    case OpKind::kPeer: return "peer";
    case OpKind::kMemset: return "memset";
    case OpKind::kHostFunction: return "host";
    case OpKind::kCallback: return "callback";
    case OpKind::kRecord: return "record";
    case OpKind::kWait: return "wait";
    case OpKind::kGraph: return "graph";
  }
  return "";
}

bool is_copy(OpKind kind) {
  switch (kind) {
    case OpKind::kHostToDevice:
    case OpKind::kDeviceToHost:
    case OpKind::kDeviceToDevice:
    case OpKind::kPeer:
    case OpKind::kMemset: return true;
    default: return false;
  }
}

Engine* Device::engine_for(OpKind kind) {
  switch (kind) {
    case OpKind::kKernel:
    case OpKind::kDeviceToDevice:
    case OpKind::kMemset: return &compute;
    case OpKind::kHostToDevice: return &host_to_device;
    case OpKind::kDeviceToHost: return &device_to_host;
    case OpKind::kPeer: return &peer;
    case OpKind::kHostFunction:
    case OpKind::kCallback: return &host;
    default: return nullptr;
  }
}

Engine* Device::engine_named(const std::string& name) {
  if (name == "compute") return &compute;
  if (name == "h2d") return &host_to_device;
  if (name == "d2h") return &device_to_host;
  if (name == "peer") return &peer;
  if (name == "host") return &host;
  return nullptr;
}

void Device::lose(int status) {
  int not_lost = kOk;
  lost.compare_exchange_strong(not_lost, status);
  for (Engine* engine : {&compute, &host_to_device, &device_to_host, &peer, &host}) engine->look_again();
}

namespace {

using Clock = std::chrono::steady_clock;

// Events complete on a lost device, so that nobody waits for ever; callbacks run, to be told the status.
bool runs_on_lost_device(OpKind kind) {
  return kind == OpKind::kRecord || kind == OpKind::kWait || kind == OpKind::kCallback;
}

// Faults are injected into the kernels or copies of all devices, or of one.
int fault_for(OpKind kind, int device) {
  if (kind != OpKind::kKernel && !is_copy(kind)) return kOk;
  std::string name = kind == OpKind::kKernel ? "async:kernel" : "async:copy";
  if (int status = injected_fault(name.c_str())) return status;
  return injected_fault((name + ":" + std::to_string(device)).c_str());
}

std::chrono::nanoseconds least_duration(const Op& op, const Engine* engine) {
  double nanoseconds = 0;
  if (op.kind == OpKind::kKernel) nanoseconds = least_kernel_microseconds() * 1e3;
  if (is_copy(op.kind) && engine->bandwidth_gbps > 0) {
    nanoseconds = static_cast<double>(op.bytes) / engine->bandwidth_gbps;
  }
  return std::chrono::nanoseconds(static_cast<int64_t>(nanoseconds));
}

void run_and_record(Device& device, const Engine* engine, uint64_t stream, const Op& op) {
  Clock::time_point begin = Clock::now();
  uint64_t begin_nanoseconds = now_nanoseconds();
  int status = fault_for(op.kind, device.id);
  if (status == kOk) status = op.run(device.id);
  std::chrono::nanoseconds least = least_duration(op, engine);
  if (least.count() > 0) std::this_thread::sleep_until(begin + least);
  if (status != kOk) device.lose(status);
  if (is_tracing() && op.kind != OpKind::kRecord && op.kind != OpKind::kWait) {
    trace({device.id, stream, name_of(op.kind), op.name, op.bytes, begin_nanoseconds, now_nanoseconds()});
  }
}

}  // namespace

void execute(Device& device, int priority, uint64_t stream, const Op& op, std::optional<Engine::Ticket> ticket,
             const std::function<void()>& before_release) {
  auto is_in_vain = [&] { return device.lost != kOk && !runs_on_lost_device(op.kind); };
  Engine* engine = device.engine_for(op.kind);
  bool has_slot = engine != nullptr && engine->acquire(ticket ? *ticket : engine->enqueue(priority), is_in_vain);
  if (!is_in_vain()) run_and_record(device, engine, stream, op);
  if (before_release) before_release();
  if (has_slot) engine->release();
}

}  // namespace hipcpu
