// Functions of the CUDA runtime.
#pragma once

#include "emulated/types.h"

#define EMULATED_CUDA_API extern "C" __attribute__((visibility("default")))

EMULATED_CUDA_API const char* cudaGetErrorName(cudaError_t error);
EMULATED_CUDA_API const char* cudaGetErrorString(cudaError_t error);
EMULATED_CUDA_API cudaError_t cudaGetLastError();
EMULATED_CUDA_API cudaError_t cudaPeekAtLastError();

EMULATED_CUDA_API cudaError_t cudaGetDeviceCount(int* count);
EMULATED_CUDA_API cudaError_t cudaGetDevice(int* device);
EMULATED_CUDA_API cudaError_t cudaSetDevice(int device);
EMULATED_CUDA_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
EMULATED_CUDA_API cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer);
EMULATED_CUDA_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
EMULATED_CUDA_API cudaError_t cudaDeviceSynchronize();

EMULATED_CUDA_API cudaError_t cudaMalloc(void** memory, size_t bytes);
EMULATED_CUDA_API cudaError_t cudaFree(void* memory);
EMULATED_CUDA_API cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
EMULATED_CUDA_API cudaError_t cudaFreeHost(void* memory);
EMULATED_CUDA_API cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
EMULATED_CUDA_API cudaError_t cudaHostUnregister(void* memory);
EMULATED_CUDA_API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
EMULATED_CUDA_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory);
EMULATED_CUDA_API cudaError_t cudaMemsetAsync(void* memory, int byte, size_t bytes, cudaStream_t stream);

EMULATED_CUDA_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
EMULATED_CUDA_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
EMULATED_CUDA_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
EMULATED_CUDA_API cudaError_t cudaStreamDestroy(cudaStream_t stream);
EMULATED_CUDA_API cudaError_t cudaStreamSynchronize(cudaStream_t stream);
EMULATED_CUDA_API cudaError_t cudaStreamQuery(cudaStream_t stream);
EMULATED_CUDA_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
EMULATED_CUDA_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);
EMULATED_CUDA_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
EMULATED_CUDA_API cudaError_t cudaEventDestroy(cudaEvent_t event);
EMULATED_CUDA_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
EMULATED_CUDA_API cudaError_t cudaEventQuery(cudaEvent_t event);
EMULATED_CUDA_API cudaError_t cudaEventSynchronize(cudaEvent_t event);
EMULATED_CUDA_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
