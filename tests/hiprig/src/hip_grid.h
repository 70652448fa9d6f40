// Runs the grid of a kernel on the calling thread.
#pragma once
#include <cstddef>
#include <vector>

#include "../include/hipcpu_abi.h"

namespace hipcpu {

constexpr int kDefaultWarpSize = 32;
int warp_size();

// A launch, with its own copy of the arguments.
struct Grid {
  const hipcpu_kernel* kernel;
  bool has_barriers;
  hipcpu_dim3 blocks;
  hipcpu_dim3 threads;
  size_t shared_bytes;
  std::vector<char> values;
  std::vector<size_t> offsets;  // of each argument in `values`
};

// Gives 0, or the status of a trap: a bad address, a failed assertion, a barrier that not all threads reach.
int run_grid(const Grid& grid);

}  // namespace hipcpu
