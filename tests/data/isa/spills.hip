// More values alive at once than 1,024 threads leave registers for: 160 products of what was loaded before a barrier.
#include <hip/hip_runtime.h>

extern "C" __global__ void __launch_bounds__(1024) spills_kernel(const float *__restrict__ in, float *__restrict__ out,
                                                                 int stride) {
  float kept[160];
#pragma unroll
  for (int i = 0; i < 160; ++i) kept[i] = in[i * stride + threadIdx.x];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 160; ++i) sum += kept[i] * kept[159 - i];
#pragma unroll
  for (int i = 0; i < 160; ++i) out[i * stride + threadIdx.x] = kept[i] + sum;
}
