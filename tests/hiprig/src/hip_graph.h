// Captured work: graphs, and the captures that record them.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace hipcpu {

class Stream;
struct Op;
struct Capture;

// Where captured work stands: in which capture, and after which of its nodes the next one comes. Streams that are
// captured have one, and events recorded on them.
struct CapturePoint {
  std::shared_ptr<Capture> capture;
  std::vector<int> frontier;
};

// Guards all captures and all capture points.
std::mutex& capture_mutex();

// A capture instead of a stream takes an operation, a record, a wait; the status says how that went. Nothing if no
// capture is concerned.
std::optional<int> captured(const std::shared_ptr<Stream>& stream, Op& op);
std::optional<int> captured_record(const std::shared_ptr<Stream>& stream, CapturePoint* event);
std::optional<int> captured_wait(const std::shared_ptr<Stream>& stream, const CapturePoint& event,
                                 bool event_was_recorded);

bool is_capturing(Stream& stream);

// For a call that waits for a stream, which spoils its capture: kOk if the stream is not captured.
int refuse_on_capture(Stream& stream);

// For a call that waits for an event, which spoils the capture that the event was recorded in.
int refuse_captured_event(const CapturePoint& event);

// For a call that no capture may overlap, except those in relaxed mode: kOk if there is none.
int refuse_during_capture();

}  // namespace hipcpu
