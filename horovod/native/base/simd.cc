#include "base/simd.h"

#include "base/error.h"
#include "base/text.h"

namespace hvd {

std::string_view name_of(SimdLevel level) {
  constexpr std::string_view kNames[] = {"scalar", "baseline", "x86-64-v3", "x86-64-v4"};
  return kNames[static_cast<size_t>(level)];
}

std::vector<SimdLevel> available_simd_levels() {
  std::vector<SimdLevel> levels = {SimdLevel::kScalar, SimdLevel::kBaseline};
#if defined(HVD_HAVE_X86_64_V3)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    levels.push_back(SimdLevel::kX86_64_V3);
  }
#endif
#if defined(HVD_HAVE_X86_64_V4)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")) {
    levels.push_back(SimdLevel::kX86_64_V4);
  }
#endif
  return levels;
}

SimdLevel resolve_simd_level(const std::string& name) {
  const std::vector<SimdLevel> levels = available_simd_levels();
  if (name.empty() || name == "auto") return levels.back();
  for (SimdLevel level : levels) {
    if (name == name_of(level)) return level;
  }
  const std::string available = joined(levels, " ", [](SimdLevel level) { return std::string(name_of(level)); });
  throw InvalidArgument(Said::no_simd_level, {.others = {{"value", name}, {"choices", available}}});
}

}  // namespace hvd
