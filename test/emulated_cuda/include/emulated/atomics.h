// Atomic operations: streams run side by side, so they are.
#pragma once

#include <atomic>
#include <type_traits>

template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value);
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value);
  return expected;  // what was there, in both cases
}

namespace emulated_cuda {

template <typename T, typename Change>
T change_atomically(T* address, Change change) {
  std::atomic_ref<T> held(*address);
  T before = held.load();
  while (!held.compare_exchange_weak(before, change(before))) continue;
  return before;
}

}  // namespace emulated_cuda

#define EMULATED_CUDA_ATOMIC(name, expression)                                                                \
  template <typename T>                                                                                       \
  T name(T* address, std::type_identity_t<T> value) {                                                         \
    return emulated_cuda::change_atomically(address, [value](T before) -> T { return static_cast<T>(expression); }); \
  }
EMULATED_CUDA_ATOMIC(atomicAdd, before + value)
EMULATED_CUDA_ATOMIC(atomicSub, before - value)
EMULATED_CUDA_ATOMIC(atomicMax, before < value ? value : before)
EMULATED_CUDA_ATOMIC(atomicMin, value < before ? value : before)
EMULATED_CUDA_ATOMIC(atomicAnd, before & value)
EMULATED_CUDA_ATOMIC(atomicOr, before | value)
EMULATED_CUDA_ATOMIC(atomicXor, before ^ value)
#undef EMULATED_CUDA_ATOMIC

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
