// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>

#include "kernels/cuda/runtime/shared_memory.h"

namespace baton::gpu {
namespace {

// Of the driver, found at run time: the plugin links the runtime alone.
struct Driver {
  decltype(&cuDeviceGetAttribute) device_get_attribute;
  decltype(&cuGetErrorString) get_error_string;
  decltype(&cuMemGetAllocationGranularity) get_granularity;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemExportToShareableHandle) export_handle;
  decltype(&cuMemImportFromShareableHandle) import_handle;
  decltype(&cuMemAddressReserve) address_reserve;
  decltype(&cuMemAddressFree) address_free;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  bool complete;
};

template <typename Function>
bool Find(const char* name, Function& function) {
  constexpr unsigned kVersion = 11000;  // of the functions' signatures
  void* found = nullptr;
  cudaDriverEntryPointQueryResult state{};
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &state);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &state);
#endif
  cudaGetLastError();  // told by the answer
  function = reinterpret_cast<Function>(found);
  return error == cudaSuccess && state == cudaDriverEntryPointSuccess && found != nullptr;
}

const Driver& TheDriver() {
  static const Driver driver = [] {
    Driver found{};
    found.complete = Find("cuDeviceGetAttribute", found.device_get_attribute) &&
                     Find("cuGetErrorString", found.get_error_string) &&
                     Find("cuMemGetAllocationGranularity", found.get_granularity) &&
                     Find("cuMemCreate", found.create) && Find("cuMemRelease", found.release) &&
                     Find("cuMemExportToShareableHandle", found.export_handle) &&
                     Find("cuMemImportFromShareableHandle", found.import_handle) &&
                     Find("cuMemAddressReserve", found.address_reserve) &&
                     Find("cuMemAddressFree", found.address_free) && Find("cuMemMap", found.map) &&
                     Find("cuMemUnmap", found.unmap) && Find("cuMemSetAccess", found.set_access);
    return found;
  }();
  return driver;
}

const char* Text(CUresult result) {
  if (result == CUDA_SUCCESS) return nullptr;
  const char* text = nullptr;
  TheDriver().get_error_string(result, &text);
  return text == nullptr ? "unknown error of the driver" : text;
}

const char* CheckDevice(int device) {
  const Driver& driver = TheDriver();
  if (!driver.complete) return "the driver has no virtual memory management";
  for (const CUdevice_attribute needed :
       {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int yes = 0;
    if (driver.device_get_attribute(&yes, needed, device) != CUDA_SUCCESS || yes == 0) {
      return "the device cannot share memory by descriptors";
    }
  }
  return nullptr;
}

const char* CurrentDevice(int* device) {
  const cudaError_t error = cudaGetDevice(device);
  return error == cudaSuccess ? CheckDevice(*device) : cudaGetErrorString(error);
}

// A range of addresses for `handle`, which the device may access as one of `rights`,
// the first that the driver grants.
const char* MapHandle(CUmemGenericAllocationHandle handle, size_t bytes, int device,
                      const CUmemAccess_flags* rights, int count, CUdeviceptr* address) {
  const Driver& driver = TheDriver();
  CUresult result = driver.address_reserve(address, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return Text(result);
  result = driver.map(*address, bytes, 0, handle, 0);
  if (result == CUDA_SUCCESS) {
    for (int i = 0; i < count; ++i) {
      CUmemAccessDesc access{};
      access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access.location.id = device;
      access.flags = rights[i];
      result = driver.set_access(*address, bytes, &access, 1);
      if (result == CUDA_SUCCESS) return nullptr;
    }
    driver.unmap(*address, bytes);
  }
  driver.address_free(*address, bytes);
  return Text(result);
}

void Unmap(CUdeviceptr address, size_t bytes) {
  TheDriver().unmap(address, bytes);
  TheDriver().address_free(address, bytes);
}

}  // namespace

const char* AllocateSharedMemory(size_t bytes, SharedMemory* memory) {
  int device = 0;
  if (const char* problem = CurrentDevice(&device)) return problem;
  const Driver& driver = TheDriver();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t unit = 0;
  CUresult result =
      driver.get_granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS) return Text(result);
  memory->bytes = (bytes + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle handle{};
  result = driver.create(&handle, memory->bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return Text(result);
  result = driver.export_handle(&memory->fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  const char* problem = Text(result);
  if (problem == nullptr) {
    fcntl(memory->fd, F_SETFD, FD_CLOEXEC);
    constexpr CUmemAccess_flags kRights[] = {CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = 0;
    problem = MapHandle(handle, memory->bytes, device, kRights, 1, &address);
    memory->data = reinterpret_cast<void*>(address);
    if (problem != nullptr) close(memory->fd);
  }
  driver.release(handle);  // the mapping, and who imports it, keep the memory
  return problem;
}

void ReleaseSharedMemory(const SharedMemory& memory) {
  cudaDeviceSynchronize();  // unmapping does not wait for who uses it
  Unmap(reinterpret_cast<CUdeviceptr>(memory.data), memory.bytes);
  close(memory.fd);
}

const char* MapSharedMemory(int fd, size_t bytes, const void** memory) {
  int device = 0;
  if (const char* problem = CurrentDevice(&device)) return problem;
  const Driver& driver = TheDriver();
  CUmemGenericAllocationHandle handle{};
  const CUresult result =
      driver.import_handle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return Text(result);
  constexpr CUmemAccess_flags kRights[] = {CU_MEM_ACCESS_FLAGS_PROT_READ,
                                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr address = 0;
  const char* problem = MapHandle(handle, bytes, device, kRights, 2, &address);
  driver.release(handle);
  *memory = reinterpret_cast<const void*>(address);
  return problem;
}

void UnmapSharedMemory(const void* memory, size_t bytes) {
  Unmap(reinterpret_cast<CUdeviceptr>(memory), bytes);
}

}  // namespace baton::gpu
