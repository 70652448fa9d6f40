// Events: recorded on streams, queried, waited for by the host and by other streams.
#include <condition_variable>
#include <memory>
#include <mutex>

#include "hip_control.h"
#include "hip_device.h"

namespace hipcpu {

constexpr unsigned kDisableTiming = 2;

// One recording of an event. Who waits keeps the recording, so that the event may be recorded again meanwhile.
class Recording {
 public:
  void complete() {
    {
      std::lock_guard lock(mutex_);
      completed_at_ = now_nanoseconds();
    }
    completed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    completed_.wait(lock, [this] { return completed_at_ != 0; });
  }

  // 0 until it is complete.
  uint64_t completed_at() {
    std::lock_guard lock(mutex_);
    return completed_at_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable completed_;
  uint64_t completed_at_ = 0;
};
using RecordingPtr = std::shared_ptr<Recording>;

struct Event {
  unsigned flags;
  int device;
  std::mutex mutex;
  RecordingPtr recording;      // guarded by `mutex`; null until it is recorded first
  CapturePoint capture_point;  // guarded by capture_mutex()

  Event(unsigned flags, int device) : flags(flags), device(device) {}

  RecordingPtr last_recording() {
    std::lock_guard lock(mutex);
    return recording;
  }
};

HIP_API hipEventCreateWithFlags(Event** event, unsigned flags) {
  RETURN_IF_ERROR(injected_fault(__func__));
  *event = new Event(flags, current_device_id);
  return kOk;
}

HIP_API hipEventCreate(Event** event) {
  RETURN_IF_ERROR(injected_fault(__func__));
  return hipEventCreateWithFlags(event, 0);
}

HIP_API hipEventDestroy(Event* event) {
  delete event;
  return kOk;
}

HIP_API hipEventRecord(Event* event, void* handle) {
  RETURN_IF_ERROR(injected_fault(__func__));
  StreamPtr stream = find_stream(handle);
  if (!stream || stream->device.id != event->device) return report(kInvalidHandle);
  if (std::optional<int> status = captured_record(stream, &event->capture_point)) return report(*status);
  auto recording = std::make_shared<Recording>();
  {
    std::lock_guard lock(event->mutex);
    event->recording = recording;
  }
  Op op{OpKind::kRecord};
  op.run = [recording](int) {
    recording->complete();
    return kOk;
  };
  return report(submit(stream, std::move(op)));
}

HIP_API hipEventQuery(Event* event) {
  RETURN_IF_ERROR(injected_fault(__func__));
  RETURN_IF_ERROR(refuse_captured_event(event->capture_point));
  RETURN_IF_ERROR(devices()[event->device]->lost);
  RecordingPtr recording = event->last_recording();
  return !recording || recording->completed_at() != 0 ? kOk : kNotReady;
}

HIP_API hipEventSynchronize(Event* event) {
  RETURN_IF_ERROR(injected_fault(__func__));
  RETURN_IF_ERROR(refuse_captured_event(event->capture_point));
  if (RecordingPtr recording = event->last_recording()) recording->wait();
  return report(devices()[event->device]->lost);
}

HIP_API hipEventElapsedTime(float* milliseconds, Event* from, Event* to) {
  RETURN_IF_ERROR(injected_fault(__func__));
  if (((from->flags | to->flags) & kDisableTiming) != 0) return report(kInvalidHandle);
  RecordingPtr first = from->last_recording();
  RecordingPtr second = to->last_recording();
  if (!first || !second) return report(kInvalidHandle);
  uint64_t begin = first->completed_at();
  uint64_t end = second->completed_at();
  if (begin == 0 || end == 0) return kNotReady;
  *milliseconds = static_cast<float>((static_cast<double>(end) - static_cast<double>(begin)) / 1e6);
  return kOk;
}

HIP_API hipStreamWaitEvent(void* handle, Event* event, unsigned) {
  RETURN_IF_ERROR(injected_fault(__func__));
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  RecordingPtr recording = event->last_recording();
  std::optional<int> status = captured_wait(stream, event->capture_point, recording != nullptr);
  if (status) return report(*status);
  if (!recording) return kOk;
  Op op{OpKind::kWait};
  op.run = [recording](int) {
    recording->wait();
    return kOk;
  };
  return report(submit(stream, std::move(op)));
}

}  // namespace hipcpu
