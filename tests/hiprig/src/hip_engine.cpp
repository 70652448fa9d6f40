// Engines: who may run when, how long a run takes at least, and what a failure does to its device.
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

void Engine::acquire(Ticket ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !held_ && busy_ < slots_ && *waiting_.begin() == ticket; });
  waiting_.erase(ticket);
  busy_++;
  if (!waiting_.empty()) changed_.notify_all();  // another slot may be free for the next
}

void Engine::release() {
  {
    std::lock_guard lock(mutex_);
    busy_--;
  }
  changed_.notify_all();
}

void Engine::set_held(bool held) {
  {
    std::lock_guard lock(mutex_);
    held_ = held;
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
    case OpKind::kMemset: return "memset";
    case OpKind::kHostFunction: return "host";
    case OpKind::kCallback: return "callback";
    case OpKind::kRecord: return "record";
    case OpKind::kWait: return "wait";
    case OpKind::kGraph: return "graph";
  }
  return "";
}

Engine* Device::engine_for(OpKind kind) {
  switch (kind) {
    case OpKind::kKernel:
    case OpKind::kDeviceToDevice:
    case OpKind::kMemset: return &compute;
    case OpKind::kHostToDevice: return &host_to_device;
    case OpKind::kDeviceToHost: return &device_to_host;
    default: return nullptr;
  }
}

namespace {

using Clock = std::chrono::steady_clock;

bool is_copy(OpKind kind) {
  return kind == OpKind::kHostToDevice || kind == OpKind::kDeviceToHost || kind == OpKind::kDeviceToDevice ||
         kind == OpKind::kMemset;
}

// Events complete on a lost device, so that nobody waits for ever; callbacks run, to be told the status.
bool runs_on_lost_device(OpKind kind) {
  return kind == OpKind::kRecord || kind == OpKind::kWait || kind == OpKind::kCallback;
}

int fault_for(OpKind kind) {
  if (kind == OpKind::kKernel) return injected_fault("async:kernel");
  if (is_copy(kind)) return injected_fault("async:copy");
  return kOk;
}

std::chrono::nanoseconds least_duration(const Op& op) {
  double nanoseconds = 0;
  if (op.kind == OpKind::kKernel) nanoseconds = speeds().least_kernel_microseconds * 1e3;
  double bandwidth = speeds().gigabytes_per_second;
  if (is_copy(op.kind) && bandwidth > 0) nanoseconds = static_cast<double>(op.bytes) / bandwidth;
  return std::chrono::nanoseconds(static_cast<int64_t>(nanoseconds));
}

void run_and_record(Device& device, uint64_t stream, const Op& op) {
  Clock::time_point begin = Clock::now();
  uint64_t begin_nanoseconds = now_nanoseconds();
  int status = fault_for(op.kind);
  if (status == kOk) status = op.run(device.id);
  std::chrono::nanoseconds least = least_duration(op);
  if (least.count() > 0) std::this_thread::sleep_until(begin + least);
  if (status != kOk) {
    int not_lost = kOk;
    device.lost.compare_exchange_strong(not_lost, status);  // the first failure is the one to report
  }
  if (is_tracing() && op.kind != OpKind::kRecord && op.kind != OpKind::kWait) {
    trace({device.id, stream, name_of(op.kind), op.name, op.bytes, begin_nanoseconds, now_nanoseconds()});
  }
}

}  // namespace

void execute(Device& device, int priority, uint64_t stream, const Op& op, std::optional<Engine::Ticket> ticket,
             const std::function<void()>& before_release) {
  Engine* engine = device.engine_for(op.kind);
  if (engine != nullptr) engine->acquire(ticket ? *ticket : engine->enqueue(priority));
  if (device.lost == kOk || runs_on_lost_device(op.kind)) run_and_record(device, stream, op);
  if (before_release) before_release();
  if (engine != nullptr) engine->release();
}

}  // namespace hipcpu
