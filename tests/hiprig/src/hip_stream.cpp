// Streams: their threads, the order that the null stream implies, host functions.
#include <algorithm>
#include <thread>

#include "hip_control.h"
#include "hip_device.h"

namespace hipcpu {

void Stream::start() {
  std::thread([self = shared_from_this()] { self->run(); }).detach();
}

void Stream::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  work_.notify_all();
}

void Stream::run() {
  current_device_id = device.id;
  std::optional<Engine::Ticket> ticket;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) break;
    {
      Op op = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      for (const auto& [stream, position] : op.after) stream->wait_for(position);
      const Engine* engine = device.engine_for(op.kind);
      std::optional<Engine::Ticket> next;
      execute(device, priority, id(), op, ticket, [&] { next = ticket_for_next(engine); });
      ticket = next;
    }  // what the operation holds is let go before anyone learns that it is done
    lock.lock();
    completed_++;
    done_.notify_all();
  }
  lock.unlock();
  device.forget(*this);
}

// A place in the queue of the engine that we are about to release, if the next operation wants the same engine:
// taken only afterwards, work of lower priority would slip in between two operations of this stream.
std::optional<Engine::Ticket> Stream::ticket_for_next(const Engine* engine) {
  if (engine == nullptr) return std::nullopt;
  std::lock_guard lock(mutex_);
  if (queue_.empty() || !queue_.front().after.empty()) return std::nullopt;
  Engine* wanted = device.engine_for(queue_.front().kind);
  if (wanted != engine) return std::nullopt;
  return wanted->enqueue(priority);
}

uint64_t Stream::push(Op op) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(op));
  work_.notify_one();
  return ++submitted_;
}

uint64_t Stream::last_position() {
  std::lock_guard lock(mutex_);
  return submitted_;
}

void Stream::wait_for(uint64_t position) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return completed_ >= position; });
}

bool Stream::is_idle() {
  std::lock_guard lock(mutex_);
  return completed_ == submitted_;
}

namespace {

constexpr int kHighestPriority = -1;
constexpr int kLowestPriority = 1;

// The streams that have a handle. Never destroyed: streams still run while the process exits.
std::mutex& handles_mutex = *new std::mutex;
std::map<void*, StreamPtr>& handles = *new std::map<void*, StreamPtr>;

// The handles with a meaning of their own: null, legacy, per thread (which is the null stream as well here).
bool stands_for_null_stream(void* handle) { return reinterpret_cast<uint64_t>(handle) <= 2; }

void add_order_of_null_stream(const StreamPtr& stream, Op& op) {
  if (!stream->is_blocking()) return;
  auto come_after = [&op](const StreamPtr& other) {
    uint64_t position = other->last_position();
    if (!other->is_idle()) op.after.emplace_back(other, position);
  };
  if (!stream->is_null()) {
    come_after(stream->device.null_stream);
    return;
  }
  for (const StreamPtr& other : stream->device.all_streams()) {
    if (other != stream && other->is_blocking()) come_after(other);
  }
}

}  // namespace

StreamPtr find_stream(void* handle) {
  if (stands_for_null_stream(handle)) return current_device().null_stream;
  std::lock_guard lock(handles_mutex);
  auto found = handles.find(handle);
  return found == handles.end() ? nullptr : found->second;
}

int submit(const StreamPtr& stream, Op op, uint64_t* position) {
  if (position != nullptr) *position = 0;
  if (std::optional<int> status = captured(stream, op)) return *status;
  add_order_of_null_stream(stream, op);
  uint64_t pushed = stream->push(std::move(op));
  if (position != nullptr) *position = pushed;
  return kOk;
}

HIP_API hipStreamCreateWithPriority(void** handle, unsigned flags, int priority) {
  RETURN_IF_ERROR(injected_fault(__func__));
  Device& device = current_device();
  RETURN_IF_ERROR(device.lost);
  auto stream = std::make_shared<Stream>(device, std::clamp(priority, kHighestPriority, kLowestPriority), flags);
  stream->start();
  {
    std::lock_guard lock(device.mutex);
    device.streams.push_back(stream);
  }
  std::lock_guard lock(handles_mutex);
  handles[stream.get()] = stream;
  *handle = stream.get();
  return kOk;
}

HIP_API hipStreamCreateWithFlags(void** handle, unsigned flags) {
  RETURN_IF_ERROR(injected_fault(__func__));
  return hipStreamCreateWithPriority(handle, flags, 0);
}

HIP_API hipStreamCreate(void** handle) {
  RETURN_IF_ERROR(injected_fault(__func__));
  return hipStreamCreateWithPriority(handle, 0, 0);
}

// What is queued still runs, and waiting for the device waits for it: the stream's thread leaves the device's list
// last.
HIP_API hipStreamDestroy(void* handle) {
  RETURN_IF_ERROR(injected_fault(__func__));
  StreamPtr stream = find_stream(handle);
  if (!stream || stream->is_null()) return report(kInvalidHandle);
  {
    std::lock_guard lock(handles_mutex);
    handles.erase(handle);
  }
  stream->close();
  return kOk;
}

HIP_API hipStreamGetFlags(void* handle, unsigned* flags) {
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  *flags = stream->flags;
  return kOk;
}

HIP_API hipStreamGetPriority(void* handle, int* priority) {
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  *priority = stream->priority;
  return kOk;
}

HIP_API hipGetStreamDeviceId(void* handle) {
  StreamPtr stream = find_stream(handle);
  return stream ? stream->device.id : -1;
}

HIP_API hipStreamQuery(void* handle) {
  RETURN_IF_ERROR(injected_fault(__func__));
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  RETURN_IF_ERROR(refuse_on_capture(*stream));
  RETURN_IF_ERROR(stream->device.lost);
  return stream->is_idle() ? kOk : kNotReady;
}

HIP_API hipStreamSynchronize(void* handle) {
  RETURN_IF_ERROR(injected_fault(__func__));
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  RETURN_IF_ERROR(refuse_on_capture(*stream));
  stream->wait_for_all();
  return report(stream->device.lost);
}

// Runs on a lost device as well, and is told the status.
HIP_API hipStreamAddCallback(void* handle, void (*callback)(void*, int, void*), void* argument, unsigned) {
  RETURN_IF_ERROR(injected_fault(__func__));
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  Op op{OpKind::kCallback};
  op.run = [=, device = &stream->device](int) {
    callback(handle, device->lost, argument);
    return kOk;
  };
  return report(submit(stream, std::move(op)));
}

// Never runs on a lost device.
HIP_API hipLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  RETURN_IF_ERROR(injected_fault(__func__));
  RETURN_IF_ERROR(current_device().lost);
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  Op op{OpKind::kHostFunction};
  op.run = [=](int) {
    function(argument);
    return kOk;
  };
  return report(submit(stream, std::move(op)));
}

}  // namespace hipcpu
