// Atomic operations. They must be atomic, because streams run in parallel.
#pragma once

#include <atomic>
#include <type_traits>

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value);
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> held(*address);
  T before = held.load();
  while (before < value && !held.compare_exchange_weak(before, value)) continue;
  return before;
}
