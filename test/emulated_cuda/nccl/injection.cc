#include "injection.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

namespace emulated_nccl {
namespace {

using hvd::nccl::Result;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

Result async_error_in(const std::string& words, int rank, uint64_t operation) {
  std::istringstream all(words);
  for (std::string word; std::getline(all, word, ',');) {
    int of_rank = 0, error = 0;
    unsigned long long of_operation = 0;
    if (std::sscanf(word.c_str(), "%d:%llu:%d", &of_rank, &of_operation, &error) != 3) continue;  // perhaps half written
    if (of_rank == rank && of_operation == operation) return static_cast<Result>(error);
  }
  return hvd::nccl::kSuccess;
}

}  // namespace

Result injected_failure(const char* function) {
  static std::mutex mutex;
  static std::map<std::string, unsigned long> calls;
  const std::string words = variable("EMULATED_NCCL_FAIL");
  if (words.empty()) return hvd::nccl::kSuccess;
  std::lock_guard lock(mutex);
  const unsigned long call = ++calls[function];
  std::istringstream all(words);
  for (std::string word; std::getline(all, word, ',');) {
    const size_t first = word.find(':'), second = word.find(':', first + 1);
    if (second == std::string::npos) std::abort();  // a test that injects nothing must not pass
    if (word.substr(0, first) == function && std::strtoul(word.c_str() + first + 1, nullptr, 10) == call) {
      return static_cast<Result>(std::atoi(word.c_str() + second + 1));
    }
  }
  return hvd::nccl::kSuccess;
}

Result injected_async_error(int rank, uint64_t operation) {
  const Result by_variable = async_error_in(variable("EMULATED_NCCL_ASYNC"), rank, operation);
  const std::string path = variable("EMULATED_NCCL_ASYNC_FILE");
  if (by_variable != hvd::nccl::kSuccess || path.empty()) return by_variable;
  std::string words;
  std::getline(std::ifstream(path), words);
  return async_error_in(words, rank, operation);
}

bool connects_late() { return !variable("EMULATED_NCCL_CONNECTS_LATE").empty(); }

int claimed_version() {
  const std::string version = variable("EMULATED_NCCL_VERSION");
  return version.empty() ? 22809 : std::atoi(version.c_str());
}

}  // namespace emulated_nccl
