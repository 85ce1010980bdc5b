// How the core sees that memory it was lent is still there. Frameworks let a program free or replace a tensor's memory at any
// moment, and keep its address in a record of their own: as long as the word there is what it was, so is the memory.
#pragma once

#include <cstdint>

namespace hvd {

struct Witness {
  const uintptr_t* word = nullptr;  // readable as long as the operation is under way; null: nobody tells
  uintptr_t value = 0;

  // The word may be written by any thread meanwhile.
  bool holds() const { return word == nullptr || __atomic_load_n(word, __ATOMIC_RELAXED) == value; }
};

inline Witness witness_at(const uintptr_t* word) { return {word, word == nullptr ? 0 : *word}; }

}  // namespace hvd
