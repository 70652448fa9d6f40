// Capture of streams into graphs, and the launch of graphs.
#include "hip_graph.h"

#include <condition_variable>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "hip_control.h"
#include "hip_device.h"

namespace hipcpu {

struct Node {
  Op op;
  uint64_t lane;  // the stream it was captured on
  std::vector<int> after;
};

struct Graph {
  std::vector<Node> nodes;
};
using GraphPtr = std::shared_ptr<Graph>;

enum CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

struct Capture {
  GraphPtr graph = std::make_shared<Graph>();
  const Stream* origin = nullptr;
  int mode = kGlobal;
  uint64_t id = 0;
  bool is_valid = true;
  std::vector<StreamPtr> members;
};

std::mutex& capture_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

namespace {

// Guarded by capture_mutex().
int strict_captures = 0;
uint64_t captures_begun = 0;

int spoil(Capture& capture, int status) {
  capture.is_valid = false;
  return status;
}

bool all_reach(const Graph& graph, const std::vector<int>& frontier) {
  std::set<int> reached;
  std::vector<int> to_visit = frontier;
  while (!to_visit.empty()) {
    int node = to_visit.back();
    to_visit.pop_back();
    if (!reached.insert(node).second) continue;
    const std::vector<int>& after = graph.nodes[node].after;
    to_visit.insert(to_visit.end(), after.begin(), after.end());
  }
  return reached.size() == graph.nodes.size();
}

// One launch of a graph: a thread for each captured stream, one of them this thread; they wait for each other's nodes.
class Launch {
 public:
  Launch(const Graph& graph, Device& device, int priority)
      : graph_(graph), device_(device), priority_(priority), done_(graph.nodes.size(), false) {}

  void run() {
    std::map<uint64_t, std::vector<int>> lanes;
    for (size_t i = 0; i < graph_.nodes.size(); i++) lanes[graph_.nodes[i].lane].push_back(static_cast<int>(i));
    if (lanes.empty()) return;
    std::vector<std::thread> threads;
    for (auto lane = std::next(lanes.begin()); lane != lanes.end(); ++lane) {
      threads.emplace_back([this, lane] { run_lane(lane->first, lane->second); });
    }
    run_lane(lanes.begin()->first, lanes.begin()->second);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void run_lane(uint64_t stream, const std::vector<int>& nodes) {
    current_device_id = device_.id;
    for (int index : nodes) {
      const Node& node = graph_.nodes[index];
      wait_for(node.after);
      execute(device_, priority_, stream, node.op);
      complete(index);
    }
  }

  void wait_for(const std::vector<int>& nodes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      for (int node : nodes) {
        if (!done_[node]) return false;
      }
      return true;
    });
  }

  void complete(int node) {
    {
      std::lock_guard lock(mutex_);
      done_[node] = true;
    }
    changed_.notify_all();
  }

  const Graph& graph_;
  Device& device_;
  const int priority_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> done_;
};

}  // namespace

std::optional<int> captured(const StreamPtr& stream, Op& op) {
  std::lock_guard lock(capture_mutex());
  CapturePoint& point = stream->capture_point;
  if (!point.capture) return std::nullopt;
  Capture& capture = *point.capture;
  if (!capture.is_valid) return kCaptureInvalidated;
  if (op.kind == OpKind::kCallback) return spoil(capture, kCaptureUnsupported);
  std::vector<Node>& nodes = capture.graph->nodes;
  nodes.push_back({std::move(op), stream->id(), point.frontier});
  point.frontier = {static_cast<int>(nodes.size()) - 1};
  return kOk;
}

std::optional<int> captured_record(const StreamPtr& stream, CapturePoint* event) {
  std::lock_guard lock(capture_mutex());
  const CapturePoint& point = stream->capture_point;
  if (!point.capture) {
    *event = {};
    return std::nullopt;
  }
  if (!point.capture->is_valid) return kCaptureInvalidated;
  *event = point;
  return kOk;
}

std::optional<int> captured_wait(const StreamPtr& stream, const CapturePoint& event, bool event_was_recorded) {
  std::lock_guard lock(capture_mutex());
  CapturePoint& point = stream->capture_point;
  if (!event.capture) {
    if (!point.capture) return std::nullopt;
    return event_was_recorded ? spoil(*point.capture, kCaptureIsolation) : kOk;
  }
  if (point.capture && point.capture != event.capture) return spoil(*point.capture, kCaptureMerge);
  if (!point.capture) {  // the wait draws the stream into the capture
    point = {event.capture, {}};
    event.capture->members.push_back(stream);
  }
  point.frontier.insert(point.frontier.end(), event.frontier.begin(), event.frontier.end());
  return kOk;
}

bool is_capturing(Stream& stream) {
  std::lock_guard lock(capture_mutex());
  return stream.capture_point.capture != nullptr;
}

int refuse_on_capture(Stream& stream) {
  std::lock_guard lock(capture_mutex());
  if (!stream.capture_point.capture) return kOk;
  return spoil(*stream.capture_point.capture, kCaptureUnsupported);
}

int refuse_captured_event(const CapturePoint& event) {
  std::lock_guard lock(capture_mutex());
  if (!event.capture) return kOk;
  return spoil(*event.capture, kCapturedEvent);
}

int refuse_during_capture() {
  std::lock_guard lock(capture_mutex());
  return strict_captures > 0 ? kCaptureUnsupported : kOk;
}

HIP_API hipStreamBeginCapture(void* handle, int mode) {
  RETURN_IF_ERROR(injected_fault(__func__));
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  if (stream->is_null()) return report(kCaptureUnsupported);
  std::lock_guard lock(capture_mutex());
  if (stream->capture_point.capture) return report(kInvalidValue);
  auto capture = std::make_shared<Capture>();
  capture->origin = stream.get();
  capture->mode = mode;
  capture->id = ++captures_begun;
  capture->members.push_back(stream);
  stream->capture_point = {capture, {}};
  if (mode != kRelaxed) strict_captures++;
  return kOk;
}

HIP_API hipStreamEndCapture(void* handle, GraphPtr** graph) {
  RETURN_IF_ERROR(injected_fault(__func__));
  *graph = nullptr;
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  std::lock_guard lock(capture_mutex());
  CapturePoint end = stream->capture_point;
  if (!end.capture) return report(kInvalidValue);
  if (end.capture->origin != stream.get()) return report(kCaptureUnmatched);
  if (end.capture->mode != kRelaxed) strict_captures--;
  for (const StreamPtr& member : end.capture->members) member->capture_point = {};
  if (!end.capture->is_valid) return report(kCaptureInvalidated);
  if (!all_reach(*end.capture->graph, end.frontier)) return report(kCaptureUnjoined);
  *graph = new GraphPtr(end.capture->graph);
  return kOk;
}

HIP_API hipStreamGetCaptureInfo(void* handle, int* state, uint64_t* id) {
  constexpr int none = 0;
  constexpr int active = 1;
  constexpr int invalidated = 2;
  RETURN_IF_ERROR(injected_fault(__func__));
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  std::lock_guard lock(capture_mutex());
  const Capture* capture = stream->capture_point.capture.get();
  *state = none;
  if (capture == nullptr) return kOk;
  *state = capture->is_valid ? active : invalidated;
  if (id != nullptr) *id = capture->id;
  return kOk;
}

HIP_API hipStreamIsCapturing(void* handle, int* state) {
  RETURN_IF_ERROR(injected_fault(__func__));
  return hipStreamGetCaptureInfo(handle, state, nullptr);
}

HIP_API hipStreamGetCaptureInfo_v2(void* handle, int* state, uint64_t* id, void** graph, const void*** frontier,
                                   size_t* frontier_size) {
  if (graph != nullptr) *graph = nullptr;
  if (frontier != nullptr) *frontier = nullptr;
  if (frontier_size != nullptr) *frontier_size = 0;
  return hipStreamGetCaptureInfo(handle, state, id);
}

HIP_API hipGraphInstantiate(GraphPtr** executable, const GraphPtr* graph, void**, char*, size_t) {
  RETURN_IF_ERROR(injected_fault(__func__));
  *executable = new GraphPtr(std::make_shared<Graph>(**graph));
  return kOk;
}

HIP_API hipGraphDestroy(GraphPtr* graph) {
  delete graph;
  return kOk;
}

HIP_API hipGraphExecDestroy(GraphPtr* executable) {
  delete executable;
  return kOk;
}

HIP_API hipGraphLaunch(const GraphPtr* executable, void* handle) {
  RETURN_IF_ERROR(injected_fault(__func__));
  RETURN_IF_ERROR(current_device().lost);
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  Op op{OpKind::kGraph};
  op.run = [graph = *executable, priority = stream->priority](int device) {
    Launch(*graph, *devices()[device], priority).run();
    return kOk;
  };
  return report(submit(stream, std::move(op)));
}

HIP_API hipGraphDebugDotPrint(const GraphPtr* graph, const char* path, unsigned) {
  FILE* file = fopen(path, "w");
  if (file == nullptr) return report(kFileNotFound);
  fprintf(file, "digraph g {\n");
  const std::vector<Node>& nodes = (*graph)->nodes;
  for (size_t i = 0; i < nodes.size(); i++) {
    fprintf(file, "n%zu [label=\"%s %s\"];\n", i, name_of(nodes[i].op.kind), nodes[i].op.name.c_str());
    for (int earlier : nodes[i].after) fprintf(file, "n%d -> n%zu;\n", earlier, i);
  }
  fprintf(file, "}\n");
  fclose(file);
  return kOk;
}

}  // namespace hipcpu
