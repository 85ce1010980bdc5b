// What allreduces on the host's route have taken, stage by stage.
#pragma once

#include <cstdint>

namespace hvd {

// Microseconds. Stages overlap: where the pipeline is good, `whole` is little more than the longest of the others.
struct HostTimes {
  int64_t encode = 0;        // on the GPU
  int64_t copy_to_host = 0;  // by its copy engine
  int64_t reduce = 0;        // by this thread, without waiting for others
  int64_t copy_back = 0;
  int64_t decode = 0;
  int64_t whole = 0;  // on the stream that allreduces are ordered on, from before the first step to after the last
};

}  // namespace hvd
