// What operations compete for: who gets a free slot, when nothing may begin, how fast copies are.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace hipcpu {

// Free slots go to the waiting tickets by priority, then by order of arrival.
class Engine {
 public:
  using Ticket = std::pair<int, uint64_t>;  // priority, arrival: the least goes first

  Ticket enqueue(int priority);

  // Waits for a slot. False, without one, if `gives_up` says so meanwhile; look_again() makes it be asked.
  template <class Condition>
  bool acquire(Ticket ticket, Condition gives_up);
  void release();
  void look_again();

  // Lets so many operations begin and no more, until let_go().
  void hold(unsigned beginnings);
  void let_go();
  void set_slots(int slots);

  // Waits until so many operations wait for a slot; false if they do not come within `patience`.
  bool wait_until_queued(size_t count, std::chrono::seconds patience);

  // Of its copies, 10^9 bytes a second; 0 is as fast as the machine is.
  std::atomic<double> bandwidth_gbps{0};

 private:
  bool may_begin(Ticket ticket) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable queued_;
  int slots_ = 1;
  int busy_ = 0;
  std::optional<unsigned> beginnings_left_;  // nothing where the engine is not held
  uint64_t arrivals_ = 0;
  std::set<Ticket> waiting_;
};

template <class Condition>
bool Engine::acquire(Ticket ticket, Condition gives_up) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return gives_up() || may_begin(ticket); });
  bool begins = !gives_up();
  waiting_.erase(ticket);
  if (begins) {
    busy_++;
    if (beginnings_left_) --*beginnings_left_;
  }
  if (!waiting_.empty()) changed_.notify_all();  // the next one in the queue may begin as well
  return begins;
}

}  // namespace hipcpu
