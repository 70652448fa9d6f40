// What tests can set and see, through ctypes: faults, held engines, speeds, the trace.
#include "hip_control.h"

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <vector>

#include "hip_device.h"
#include "hip_status.h"

namespace hipcpu {

double environment_number(const char* name, double otherwise) {
  const char* text = getenv(name);
  return text != nullptr && *text != '\0' ? atof(text) : otherwise;
}

uint64_t now_nanoseconds() {
  auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_start).count();
}

Speeds& speeds() {
  static Speeds speeds{environment_number("HIPCPU_GBPS", 0), environment_number("HIPCPU_KERNEL_US", 0)};
  return speeds;
}

namespace {

constexpr std::chrono::seconds kPatience{30};

struct Fault {
  std::string what;
  int calls_left;
  int status;
};

// Never destroyed: streams still run while the process exits.
struct Faults {
  std::mutex mutex;
  std::vector<Fault> pending;
  std::atomic<bool> any{false};  // spares every call the lock
};
Faults& faults() {
  static Faults& faults = *new Faults;
  return faults;
}

struct Trace {
  std::mutex mutex;
  std::vector<TraceEntry> entries;
  std::atomic<bool> on{false};
};
Trace& recorded() {
  static Trace& recorded = *new Trace;
  return recorded;
}

void add_fault(const std::string& what, int status, int nth) {
  std::lock_guard lock(faults().mutex);
  faults().pending.push_back({what, nth, status});
  faults().any = true;
}

void clear_faults() {
  std::lock_guard lock(faults().mutex);
  faults().pending.clear();
  faults().any = false;
  for (Device* device : devices()) device->lost = kOk;
}

// Null if there is none.
Engine* find_engine(const std::string& name, size_t device_id) {
  if (device_id >= devices().size()) return nullptr;
  Device& device = *devices()[device_id];
  if (name == "compute") return &device.compute;
  if (name == "h2d") return &device.host_to_device;
  if (name == "d2h") return &device.device_to_host;
  return nullptr;
}

bool set_speed(const std::string& name, double value) {
  if (name == "gbps") {
    speeds().gigabytes_per_second = value;
  } else if (name == "kernel_us") {
    speeds().least_kernel_microseconds = value;
  } else if (name == "slots") {
    for (Device* device : devices()) device->compute.set_slots(static_cast<int>(value));
  } else {
    return false;
  }
  return true;
}

void set_tracing(bool on) {
  std::lock_guard lock(recorded().mutex);
  recorded().entries.clear();
  recorded().on = on;
}

bool obey(const std::string& command) {
  std::istringstream words(command);
  std::string verb;
  std::string object;
  words >> verb >> object;
  if (verb == "fail") {
    int status = 0;
    int nth = 1;
    if (!(words >> status)) return false;
    words >> nth;
    add_fault(object, status, nth);
    return true;
  }
  if (verb == "clear") {
    clear_faults();
    return true;
  }
  if (verb == "hold" || verb == "release") {
    size_t device = 0;
    words >> device;
    Engine* engine = find_engine(object, device);
    if (engine != nullptr) engine->set_held(verb == "hold");
    return engine != nullptr;
  }
  if (verb == "await") {
    size_t device = 0;
    size_t count = 1;
    words >> device >> count;
    Engine* engine = find_engine(object, device);
    return engine != nullptr && engine->wait_until_queued(count, kPatience);
  }
  if (verb == "set") {
    double value = 0;
    return words >> value && set_speed(object, value);
  }
  if (verb == "trace") {
    set_tracing(object == "on");
    return true;
  }
  return false;
}

}  // namespace

int injected_fault(const char* what) {
  if (!faults().any.load(std::memory_order_relaxed)) return kOk;
  std::lock_guard lock(faults().mutex);
  std::vector<Fault>& pending = faults().pending;
  for (auto fault = pending.begin(); fault != pending.end(); ++fault) {
    if (fault->what != what || --fault->calls_left > 0) continue;
    int status = fault->status;
    pending.erase(fault);
    faults().any = !pending.empty();
    return status;
  }
  return kOk;
}

bool is_tracing() { return recorded().on; }

void trace(TraceEntry entry) {
  std::lock_guard lock(recorded().mutex);
  recorded().entries.push_back(std::move(entry));
}

// 0, or -1 for a command that the rig does not know or that did not come true. The README lists the commands.
HIPCPU_EXPORT int hipcpu_control(const char* command) { return obey(command) ? 0 : -1; }

// The trace as JSON, a list for each operation: device, stream, kind, name, bytes, begin, end (nanoseconds). Valid
// until the next call.
HIPCPU_EXPORT const char* hipcpu_trace() {
  static std::string& text = *new std::string;
  std::lock_guard lock(recorded().mutex);
  std::ostringstream json;
  const char* separator = "";
  json << "[";
  for (const TraceEntry& entry : recorded().entries) {
    json << separator << "[" << entry.device << "," << entry.stream << ",\"" << entry.kind << "\",\"" << entry.name
         << "\"," << entry.bytes << "," << entry.begin << "," << entry.end << "]";
    separator = ",";
  }
  json << "]";
  text = json.str();
  return text.c_str();
}

}  // namespace hipcpu
