// A driver in name only, for tests of what is said where none can be used: FAKE_CUDA_VERSION is the CUDA version it
// claims (12020 for 12.2), FAKE_CUDA_INIT what cuInit returns (100: no device).
#include <stdlib.h>
#include <string.h>

static int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != NULL ? atoi(text) : otherwise;
}

int cuInit(unsigned flags) {
  (void)flags;
  return number("FAKE_CUDA_INIT", 0);
}

int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}

int cuGetProcAddress_v2(const char* symbol, void** function, int version, unsigned long long flags, int* found);

int cuGetProcAddress(const char* symbol, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

static int refuse(void) { return 100; }

int cuGetProcAddress_v2(const char* symbol, void** function, int version, unsigned long long flags, int* found) {
  (void)version, (void)flags;
  *function = (void*)refuse;
  if (strcmp(symbol, "cuInit") == 0) *function = (void*)cuInit;
  if (strcmp(symbol, "cuDriverGetVersion") == 0) *function = (void*)cuDriverGetVersion;
  if (strcmp(symbol, "cuDeviceGetCount") == 0) *function = (void*)cuDeviceGetCount;
  if (strcmp(symbol, "cuGetProcAddress") == 0 ) *function = (void*)cuGetProcAddress_v2;
  if (found != NULL) *found = 0;
  return 0;
}
