// Warp operations: each thread leaves a value in its slot, and a barrier of the warp stands before and after reading.
#pragma once
#include <cstring>

#include "hipcpu_abi.h"

static inline unsigned hipcpu_block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
static inline int hipcpu_lane() { return (int)(hipcpu_current->linear % hipcpu_current->warp_size); }
static inline unsigned hipcpu_warp_begin() { return hipcpu_current->linear - (unsigned)hipcpu_lane(); }

static inline void __syncwarp(unsigned long long = 0) { hipcpu_warp_barrier(); }

// The value of a lane of the same segment of `width` lanes, or one's own where there is no such lane.
template <class T>
static inline T hipcpu_shuffle(T value, int from_lane, int width) {
  static_assert(sizeof(T) <= sizeof(hipcpu_current->warp_buf[0]), "a shuffle takes at most 8 bytes");
  memcpy(&hipcpu_current->warp_buf[hipcpu_current->linear], &value, sizeof(T));
  hipcpu_warp_barrier();
  int segment = hipcpu_lane() / width * width;
  bool in_segment = from_lane >= segment && from_lane < segment + width;
  T result = value;
  if (in_segment && hipcpu_warp_begin() + (unsigned)from_lane < hipcpu_block_threads()) {
    memcpy(&result, &hipcpu_current->warp_buf[hipcpu_warp_begin() + (unsigned)from_lane], sizeof(T));
  }
  hipcpu_warp_barrier();
  return result;
}

template <class T>
static inline T __shfl(T value, int lane, int width = warpSize) {
  return hipcpu_shuffle(value, hipcpu_lane() / width * width + (lane & (width - 1)), width);
}
template <class T>
static inline T __shfl_down(T value, unsigned distance, int width = warpSize) {
  return hipcpu_shuffle(value, hipcpu_lane() + (int)distance, width);
}
template <class T>
static inline T __shfl_up(T value, unsigned distance, int width = warpSize) {
  return hipcpu_shuffle(value, hipcpu_lane() - (int)distance, width);
}
template <class T>
static inline T __shfl_xor(T value, int mask, int width = warpSize) {
  return hipcpu_shuffle(value, hipcpu_lane() ^ mask, width);
}

// The mask of threads that take part is not looked at: all that are alive do.
template <class T>
static inline T __shfl_sync(unsigned long long, T value, int lane, int width = warpSize) {
  return __shfl(value, lane, width);
}
template <class T>
static inline T __shfl_down_sync(unsigned long long, T value, unsigned distance, int width = warpSize) {
  return __shfl_down(value, distance, width);
}
template <class T>
static inline T __shfl_up_sync(unsigned long long, T value, unsigned distance, int width = warpSize) {
  return __shfl_up(value, distance, width);
}
template <class T>
static inline T __shfl_xor_sync(unsigned long long, T value, int mask, int width = warpSize) {
  return __shfl_xor(value, mask, width);
}

static inline unsigned long long __ballot(int predicate) {
  hipcpu_current->warp_buf[hipcpu_current->linear] = predicate != 0;
  hipcpu_warp_barrier();
  unsigned begin = hipcpu_warp_begin();
  unsigned long long votes = 0;
  for (unsigned lane = 0; lane < hipcpu_current->warp_size && begin + lane < hipcpu_block_threads(); lane++) {
    votes |= hipcpu_current->warp_buf[begin + lane] << lane;
  }
  hipcpu_warp_barrier();
  return votes;
}
static inline unsigned long long __ballot_sync(unsigned long long, int predicate) { return __ballot(predicate); }
static inline int __any(int predicate) { return __ballot(predicate) != 0; }
static inline int __any_sync(unsigned long long, int predicate) { return __any(predicate); }
static inline int __all(int predicate) { return __ballot(!predicate) == 0; }
static inline int __all_sync(unsigned long long, int predicate) { return __all(predicate); }
