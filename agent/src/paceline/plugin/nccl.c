#include "nccl.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef int (*version_function)(int *version);
typedef int (*device_function)(int *device);

static int ask_version(void *symbol) {
  int version = 0;
  if (!symbol) return 0;
  version_function function;
  *(void **)&function = symbol;
  return function(&version) == 0 ? version : 0;
}

static int version_near(const void *address) {
  Dl_info found;
  if (!address || !dladdr(address, &found) || !found.dli_fname) return 0;
  void *library = dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return 0;
  int version = ask_version(dlsym(library, "ncclGetVersion"));
  dlclose(library);
  return version;
}

int nccl_version(const void *near, const void *or_near) {
  int version = version_near(near);
  if (!version) version = version_near(or_near);
  if (!version) version = ask_version(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  return version;
}

static bool is_in_rccl(const void *address) {
  Dl_info found;
  if (!address || !dladdr(address, &found) || !found.dli_fname) return false;
  const char *name = strrchr(found.dli_fname, '/');
  return strstr(name ? name : found.dli_fname, "rccl") != NULL;
}

bool nccl_is_amds(const void *near, const void *or_near) {
  return is_in_rccl(near) || is_in_rccl(or_near);
}

int cuda_device(void) {
  int device = -1;
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) return -1;
  void *symbol = dlsym(driver, "cuCtxGetDevice");
  device_function function;
  *(void **)&function = symbol;
  if (!symbol || function(&device) != 0) device = -1;
  dlclose(driver);
  return device;
}
