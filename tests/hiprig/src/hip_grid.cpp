// Runs the grid of a kernel on the calling thread.
#include "hip_grid.h"

#include <memory>

#include "hip_control.h"
#include "hip_fiber.h"
#include "hip_status.h"
#include "hip_trap.h"

namespace hipcpu {

namespace {

constexpr size_t kSharedAlignment = 64;

int run_blocks(BlockRunner& runner, const Grid& grid) {
  for (unsigned z = 0; z < grid.blocks.z; z++) {
    for (unsigned y = 0; y < grid.blocks.y; y++) {
      for (unsigned x = 0; x < grid.blocks.x; x++) {
        runner.context.bid = {x, y, z};
        int status = grid.has_barriers ? runner.run_with_barriers() : runner.run_plain();
        if (status != kOk) return status;
      }
    }
  }
  return kOk;
}

// Kept from launch to launch, with its fibers.
thread_local std::unique_ptr<BlockRunner> kept_runner;

BlockRunner& runner_of_this_thread() {
  if (!kept_runner) kept_runner = std::make_unique<BlockRunner>();
  current_runner = kept_runner.get();
  return *kept_runner;
}

// After a trap the fibers stand anywhere: they are leaked.
void abandon_runner_of_this_thread() { (void)kept_runner.release(); }

void wait_at_barrier(FiberState which) {
  if (!current_runner->wait_at_barrier(which)) hipcpu_trap(kLaunchFailure);
}

}  // namespace

int warp_size() {
  static const int size = static_cast<int>(environment_number("HIPCPU_WARP", kDefaultWarpSize));
  return size;
}

int run_grid(const Grid& grid) {
  std::vector<void*> arguments;
  for (size_t offset : grid.offsets) arguments.push_back(const_cast<char*>(grid.values.data()) + offset);
  std::vector<char> shared(grid.shared_bytes + kSharedAlignment);
  void* aligned = shared.data();
  size_t space = shared.size();
  std::align(kSharedAlignment, grid.shared_bytes, aligned, space);

  BlockRunner& runner = runner_of_this_thread();
  runner.kernel = grid.kernel->run;
  runner.arguments = arguments.data();
  runner.context.gdim = grid.blocks;
  runner.context.bdim = grid.threads;
  runner.context.warp_size = static_cast<unsigned>(warp_size());
  runner.context.dynshared = aligned;
  int status = run_until_trap([&] { return run_blocks(runner, grid); });
  if (status != kOk) abandon_runner_of_this_thread();
  return status;
}

// What kernels call.

HIPCPU_EXPORT void hipcpu_barrier() { wait_at_barrier(FiberState::kAtBlockBarrier); }

HIPCPU_EXPORT void hipcpu_warp_barrier() { wait_at_barrier(FiberState::kAtWarpBarrier); }

}  // namespace hipcpu
