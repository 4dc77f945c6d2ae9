// One of everything that the analysis counts, in a loop: guarded loads, LDS in three widths, a barrier, matrix
// instructions, an exponential, a lane exchange, and work that only the last round does.
#include <hip/hip_runtime.h>

using half4 = _Float16 __attribute__((ext_vector_type(4)));
using float4v = float __attribute__((ext_vector_type(4)));

extern "C" __global__ void __launch_bounds__(256) loop_kernel(const uint4 *__restrict__ in, float4v *__restrict__ out,
                                                              int rounds, int rows, float scale) {
  __shared__ uint4 tile[256];
  const half4 *quads = reinterpret_cast<const half4 *>(tile);
  const _Float16 *halves = reinterpret_cast<const _Float16 *>(tile);
  float4v sum = {0, 0, 0, 0};
  for (int round = 0; round < rounds; ++round) {
    uint4 loaded = {0, 0, 0, 0};
    if (round * 256 + static_cast<int>(threadIdx.x) < rows) loaded = in[round * 256 + threadIdx.x];
    __syncthreads();
    tile[threadIdx.x] = loaded;
    __syncthreads();
    const half4 a = quads[threadIdx.x ^ 1];
    half4 b;
    for (int i = 0; i < 4; ++i) b[i] = halves[(threadIdx.x * 5 + i * 64) & 2047];
    sum = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, sum, 0, 0, 0);
    sum[0] = __builtin_amdgcn_exp2f(sum[0] * scale) + __shfl_xor(sum[1], 16);
    if (round == rounds - 1) {
      for (int i = 0; i < 4; ++i) sum[i] = sum[i] > scale ? scale : sum[i];
    }
  }
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
