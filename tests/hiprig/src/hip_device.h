// A device: its memory, its engines and its streams; and the operations that streams carry to engines.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hip_engine.h"
#include "hip_graph.h"
#include "hip_status.h"

namespace hipcpu {

class Stream;
using StreamPtr = std::shared_ptr<Stream>;

enum class OpKind {
  kKernel,
  kHostToDevice,
  kDeviceToHost,
  kDeviceToDevice,  // within a device
  kPeer,            // from one device to another
  kMemset,
  kHostFunction,
  kCallback,
  kRecord,
  kWait,
  kGraph,
};
const char* name_of(OpKind kind);
bool is_copy(OpKind kind);

// One operation on a stream.
struct Op {
  explicit Op(OpKind kind) : kind(kind) {}

  OpKind kind;
  size_t bytes = 0;
  std::string name;
  std::function<int(int device)> run;                 // gives a status
  std::vector<std::pair<StreamPtr, uint64_t>> after;  // the null stream's implicit order: streams and positions
};

struct Device {
  // The engine that an operation needs, null where it needs none.
  Engine* engine_for(OpKind kind);

  // The engine of a name that tests use, null if there is none.
  Engine* engine_named(const std::string& name);

  // From now on nothing runs here, and what waits for an engine gives up. Only the first failure is kept.
  void lose(int status);

  // Those with a handle, the null stream, and destroyed ones that still have work.
  std::vector<StreamPtr> all_streams();
  void forget(const Stream& stream);

  // Waits until all that is queued now is done.
  void drain();

  int id;

  // Memory: one arena, a memory file that other processes can map, twice as large as the memory since there is a
  // closed page behind every allocation. Only what is allocated can be read and written. Guarded by
  // allocation_mutex().
  char* arena;
  size_t arena_bytes;
  int file;
  size_t capacity;
  size_t limit;  // what may be in use: the capacity, or less if a test wants it so
  size_t used = 0;
  std::map<size_t, size_t> holes;  // offset to size

  std::set<int> peers;  // guarded by `mutex`
  Engine compute;
  Engine host_to_device;
  Engine device_to_host;
  Engine peer;
  Engine host;  // the threads that run host functions, of which there are as many as are needed

  // The status of the failure that lost this device, or kOk. A lost device runs nothing more. Set by lose().
  std::atomic<int> lost{kOk};

  StreamPtr null_stream;
  std::mutex mutex;
  std::vector<StreamPtr> streams;  // guarded by `mutex`
};

// A queue of operations, and the thread that carries them out one by one.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static constexpr unsigned kNonBlocking = 1;

  Stream(Device& device, int priority, unsigned flags) : device(device), priority(priority), flags(flags) {}

  void start();
  // Lets the thread end once the queue is empty.
  void close();

  // Queues an operation and gives its position, for wait_for().
  uint64_t push(Op op);
  uint64_t last_position();
  void wait_for(uint64_t position);
  void wait_for_all() { wait_for(last_position()); }
  bool is_idle();
  bool is_null() const { return device.null_stream.get() == this; }
  // Whether it is ordered with the null stream.
  bool is_blocking() const { return (flags & kNonBlocking) == 0; }
  uint64_t id() const { return reinterpret_cast<uint64_t>(this); }

  Device& device;
  const int priority;
  const unsigned flags;
  CapturePoint capture_point;  // guarded by capture_mutex()

 private:
  void run();
  std::optional<Engine::Ticket> ticket_for_next(const Engine* engine);

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Op> queue_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  bool closing_ = false;
};

// Carries out an operation on its engine. `ticket` is a place in the engine's queue that was taken before, if any;
// `before_release` runs while the engine is still ours.
void execute(Device& device, int priority, uint64_t stream, const Op& op,
             std::optional<Engine::Ticket> ticket = std::nullopt, const std::function<void()>& before_release = {});

const std::vector<Device*>& devices();
bool is_device(int id);
extern thread_local int current_device_id;
Device& current_device();

// The stream of a handle, null where there is none. Null handles stand for the current device's null stream.
StreamPtr find_stream(void* handle);

// Puts an operation on a stream: into its capture, or into its queue in the order that the null stream implies.
// `position`, for wait_for(), stays 0 for a captured operation.
int submit(const StreamPtr& stream, Op op, uint64_t* position = nullptr);

}  // namespace hipcpu
