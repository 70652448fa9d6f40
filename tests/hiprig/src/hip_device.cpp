// The devices: how they are made, which one is current, waiting for all of one, access between two.
#include "hip_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "hip_control.h"

namespace hipcpu {

thread_local int current_device_id = 0;

namespace {

constexpr int kDevices = 2;
constexpr int kMemoryMegabytes = 2048;
constexpr int kKernelSlots = 4;
constexpr int kHostThreads = 1 << 20;
constexpr size_t kStackLimit = 8 << 20;

Device* make_device(int id) {
  auto* device = new Device;
  device->id = id;
  device->capacity = static_cast<size_t>(environment_number("HIPCPU_MEM_MB", kMemoryMegabytes)) << 20;
  device->limit = device->capacity;
  device->arena_bytes = 2 * device->capacity;
  device->file = memfd_create("hipcpu", MFD_CLOEXEC);
  if (device->file < 0 || ftruncate(device->file, static_cast<off_t>(device->arena_bytes)) != 0) abort();
  void* arena = mmap(nullptr, device->arena_bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, device->file, 0);
  if (arena == MAP_FAILED) abort();
  device->arena = static_cast<char*>(arena);
  device->holes[0] = device->arena_bytes;
  device->compute.set_slots(static_cast<int>(environment_number("HIPCPU_SLOTS", kKernelSlots)));
  device->host.set_slots(kHostThreads);
  double gbps = environment_number("HIPCPU_GBPS", 0);
  for (Engine* engine : {&device->host_to_device, &device->device_to_host, &device->peer}) {
    engine->bandwidth_gbps = gbps;
  }
  device->null_stream = std::make_shared<Stream>(*device, 0, 0);
  device->null_stream->start();
  device->streams.push_back(device->null_stream);
  return device;
}

}  // namespace

// Never destroyed: streams still run while the process exits.
const std::vector<Device*>& devices() {
  static const std::vector<Device*>& all = *[] {
    auto* made = new std::vector<Device*>;
    int count = static_cast<int>(environment_number("HIPCPU_DEVICES", kDevices));
    for (int id = 0; id < count; id++) made->push_back(make_device(id));
    return made;
  }();
  return all;
}

bool is_device(int id) { return id >= 0 && static_cast<size_t>(id) < devices().size(); }

Device& current_device() { return *devices()[current_device_id]; }

std::vector<StreamPtr> Device::all_streams() {
  std::lock_guard lock(mutex);
  return streams;
}

void Device::forget(const Stream& stream) {
  std::lock_guard lock(mutex);
  auto is_it = [&](const StreamPtr& other) { return other.get() == &stream; };
  streams.erase(std::remove_if(streams.begin(), streams.end(), is_it), streams.end());
}

void Device::drain() {
  for (const StreamPtr& stream : all_streams()) stream->wait_for_all();
}

HIP_API hipGetDeviceCount(int* count) {
  RETURN_IF_ERROR(injected_fault(__func__));
  *count = static_cast<int>(devices().size());
  return kOk;
}

HIP_API hipGetDevice(int* device) {
  *device = current_device_id;
  return kOk;
}

HIP_API hipSetDevice(int device) {
  RETURN_IF_ERROR(injected_fault(__func__));
  if (!is_device(device)) return report(kInvalidDevice);
  current_device_id = device;
  return kOk;
}

HIP_API hipDeviceSynchronize() {
  RETURN_IF_ERROR(injected_fault(__func__));
  RETURN_IF_ERROR(refuse_during_capture());
  current_device().drain();
  return report(current_device().lost);
}

HIP_API hipDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return kOk;
}

HIP_API hipDeviceEnablePeerAccess(int peer, unsigned) {
  RETURN_IF_ERROR(injected_fault(__func__));
  if (!is_device(peer) || peer == current_device_id) return report(kInvalidDevice);
  Device& device = current_device();
  std::lock_guard lock(device.mutex);
  return report(device.peers.insert(peer).second ? kOk : kPeerAccessAlreadyEnabled);
}

HIP_API hipDeviceDisablePeerAccess(int peer) {
  Device& device = current_device();
  std::lock_guard lock(device.mutex);
  return report(device.peers.erase(peer) != 0 ? kOk : kPeerAccessNotEnabled);
}

HIP_API hipDeviceGetLimit(size_t* value, int) {
  *value = kStackLimit;
  return kOk;
}

}  // namespace hipcpu
