// What tests can set and see, through ctypes: faults, held engines, speeds, the trace.
#include "hip_control.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <vector>

#include "hip_device.h"
#include "hip_memory.h"
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

namespace {

std::atomic<double>& kernel_microseconds() {
  static std::atomic<double> microseconds{environment_number("HIPCPU_KERNEL_US", 0)};
  return microseconds;
}

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

// The devices that a command is for: the one that it names, if it does, or all of them. Empty if there is none such.
std::vector<Device*> read_devices(std::istringstream& words) {
  size_t device = 0;
  if (!(words >> device)) return devices();
  if (device >= devices().size()) return {};
  return {devices()[device]};
}

// The engine whose name has been read, of the device that comes next, 0 if none does. Null if there is none such.
Engine* read_engine(const std::string& name, std::istringstream& words) {
  size_t device = 0;
  words >> device;
  return device < devices().size() ? devices()[device]->engine_named(name) : nullptr;
}

// The words after "hold ENGINE DEVICE": nothing, or "after COUNT".
bool hold(Engine& engine, std::istringstream& words) {
  std::string after;
  unsigned beginnings = 0;
  if (words >> after && (after != "after" || !(words >> beginnings))) return false;
  engine.hold(beginnings);
  return true;
}

// The words after "set gbps N" or "set slots N": engine and device, each of them all where it is left out.
template <class Setter>
bool set_engines(std::istringstream& words, const std::vector<std::string>& all, Setter set) {
  std::vector<std::string> names = all;
  if (std::string name; words >> name) names = {name};
  std::vector<Device*> chosen = read_devices(words);
  for (Device* device : chosen) {
    for (const std::string& name : names) {
      Engine* engine = device->engine_named(name);
      if (engine == nullptr) return false;
      set(*engine);
    }
  }
  return !chosen.empty();
}

// In MiB; no more than the device was made with.
bool set_memory_limit(double megabytes, std::istringstream& words) {
  size_t limit = static_cast<size_t>(megabytes) << 20;
  std::vector<Device*> chosen = read_devices(words);
  std::lock_guard lock(allocation_mutex());
  for (Device* device : chosen) device->limit = std::min(limit, device->capacity);
  return !chosen.empty();
}

bool set(const std::string& name, double value, std::istringstream& words) {
  if (name == "gbps") {
    return set_engines(words, {"h2d", "d2h", "peer"}, [=](Engine& engine) { engine.bandwidth_gbps = value; });
  }
  if (name == "slots") {
    return set_engines(words, {"compute"}, [=](Engine& engine) { engine.set_slots(static_cast<int>(value)); });
  }
  if (name == "memory_mb") return set_memory_limit(value, words);
  if (name != "kernel_us") return false;
  kernel_microseconds() = value;
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
  if (verb == "lose") {
    int status = 0;
    size_t device = 0;
    if (!(std::istringstream(object) >> device) || device >= devices().size() || !(words >> status)) return false;
    devices()[device]->lose(status);
    return true;
  }
  if (verb == "hold") {
    Engine* engine = read_engine(object, words);
    return engine != nullptr && hold(*engine, words);
  }
  if (verb == "release") {
    Engine* engine = read_engine(object, words);
    if (engine != nullptr) engine->let_go();
    return engine != nullptr;
  }
  if (verb == "await") {
    size_t count = 1;
    Engine* engine = read_engine(object, words);
    words >> count;
    return engine != nullptr && engine->wait_until_queued(count, kPatience);
  }
  if (verb == "set") {
    double value = 0;
    return words >> value && set(object, value, words);
  }
  if (verb == "trace") {
    set_tracing(object == "on");
    return true;
  }
  return false;
}

}  // namespace

double least_kernel_microseconds() { return kernel_microseconds(); }

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
