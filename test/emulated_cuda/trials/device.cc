// device/device.h as C functions, for tests in Python. Each returns null, or an error: its kind and its message.
#include <map>
#include <mutex>

#include "attempt.h"
#include "device/device_library.h"

namespace {

using trials::attempt;

std::mutex mutex;
std::map<void*, hvd::DeviceMemory> memories;       // guarded by mutex, and the next two too
std::map<void*, std::shared_ptr<void>> pins;
std::map<void*, hvd::Event> events;

hvd::Device& gpu(int index) { return hvd::device_library().at(index); }

hvd::Event event_of(void* handle) {
  std::lock_guard lock(mutex);
  return events.at(handle);
}

}  // namespace

#define TRIAL extern "C" __attribute__((visibility("default")))

TRIAL const char* device_use(const char* path) {
  return attempt([&] { hvd::use_device_library(path); });
}
TRIAL int device_is_installed() { return hvd::device_library_is_installed() ? 1 : 0; }
TRIAL const char* device_count(int* count) {
  return attempt([&] { *count = hvd::device_library().count(); });
}
TRIAL const char* device_describe(int index, const char** identity, const char** name) {
  return attempt([&] {
    *identity = gpu(index).identity().c_str();
    *name = gpu(index).name().c_str();
  });
}
TRIAL const char* device_reaches(int index, const char* identity, int* result) {
  return attempt([&] { *result = gpu(index).reaches(identity) ? 1 : 0; });
}
TRIAL const char* device_make_stream(int index, int is_urgent, void** stream) {
  return attempt([&] { *stream = gpu(index).make_stream(is_urgent != 0); });
}

TRIAL const char* device_record(int index, void* stream, void** handle) {
  return attempt([&] {
    hvd::Event event = gpu(index).record(stream);
    std::lock_guard lock(mutex);
    *handle = event.get();
    events[*handle] = std::move(event);
  });
}
TRIAL void device_forget_event(void* handle) {
  std::lock_guard lock(mutex);
  events.erase(handle);
}
TRIAL const char* device_wait(int index, void* stream, void* event) {
  return attempt([&] { gpu(index).wait(stream, event_of(event)); });
}
TRIAL const char* device_is_done(int index, void* event, int* result) {
  return attempt([&] { *result = gpu(index).is_done(event_of(event)) ? 1 : 0; });
}
TRIAL const char* device_synchronize(int index, void* event) {
  return attempt([&] { gpu(index).synchronize(event_of(event)); });
}
TRIAL const char* device_milliseconds(int index, void* begin, void* end, double* result) {
  return attempt([&] { *result = gpu(index).milliseconds_between(event_of(begin), event_of(end)); });
}

TRIAL const char* device_allocate(int index, size_t bytes, int is_pinned, void** address) {
  return attempt([&] {
    hvd::DeviceMemory memory = is_pinned != 0 ? gpu(index).allocate_pinned(bytes) : gpu(index).allocate(bytes);
    std::lock_guard lock(mutex);
    *address = memory.get();
    memories[*address] = std::move(memory);
  });
}
TRIAL void device_free(void* address) {
  hvd::DeviceMemory memory;  // freed without the lock, because that may wait
  std::lock_guard lock(mutex);
  memory = std::move(memories.at(address));
  memories.erase(address);
}
TRIAL const char* device_pin(int index, void* address, size_t bytes, int* is_new) {
  return attempt([&] {
    std::shared_ptr<void> pin = gpu(index).pin(address, bytes);
    *is_new = pin != nullptr ? 1 : 0;
    std::lock_guard lock(mutex);
    if (pin != nullptr) pins[address] = std::move(pin);
  });
}
TRIAL void device_unpin(void* address) {
  std::lock_guard lock(mutex);
  pins.erase(address);
}
TRIAL const char* device_copy(int index, void* stream, void* to, const void* from, size_t bytes) {
  return attempt([&] { gpu(index).copy(stream, to, from, bytes); });
}
TRIAL const char* device_fill(int index, void* stream, void* memory, int byte, size_t bytes) {
  return attempt([&] { gpu(index).fill(stream, memory, byte, bytes); });
}
