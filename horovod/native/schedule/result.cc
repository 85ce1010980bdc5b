#include "schedule/result.h"

#include <string>

#include "base/error.h"

namespace hvd {

void Result::order(Stream stream) const {
  if (device != nullptr) device->wait(stream, done);
}

void Result::copy_to(size_t offset, void* to, size_t count, Stream stream) const {
  if (device == nullptr)
    throw InvalidArgument("copy_to() is for results on a GPU, and this one is in CPU memory; use buffer()");
  if (offset > bytes || count > bytes - offset) {
    throw InvalidArgument("the result has " + std::to_string(bytes) + " bytes, not " + std::to_string(count) + " from byte " +
                          std::to_string(offset) + " on");
  }
  order(stream);
  if (count == 0) return;
  device->copy(stream, to, data.get() + offset, count);
  lent->keep(*device, device->record(stream), data);
}

}  // namespace hvd
