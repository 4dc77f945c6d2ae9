#include <hip/hip_runtime.h>
#include <tl_templates/hip/gemm.h>
#include <tl_templates/hip/copy.h>
#include <tl_templates/hip/reduce.h>
#include <tl_templates/hip/scan.h>
#include <tl_templates/hip/ldsm.h>
#include <tl_templates/hip/threadblock_swizzle.h>
#include <tl_templates/hip/debug.h>

extern "C" __global__ void __launch_bounds__(256) attention_forward_kernel(half_t* __restrict__ K, float* __restrict__ LSE, half_t* __restrict__ O, half_t* __restrict__ Q, half_t* __restrict__ V, int batch, int heads, int kv_heads, int seqlen_k, int seqlen_q, float softmax_scale) {
  extern __shared__ __align__(1024) uchar buf_dyn_shmem[];
  void* k = ((void*)((char*)buf_dyn_shmem + 0));
  void* v = ((void*)((char*)buf_dyn_shmem + 16384));
  void* workspace = ((void*)((char*)buf_dyn_shmem + 32768));
  void* workspace_1 = ((void*)((char*)buf_dyn_shmem + 32768));
  void* workspace_2 = ((void*)((char*)buf_dyn_shmem + 32768));
  void* workspace_3 = ((void*)((char*)buf_dyn_shmem + 33792));
  half_t q[32];
  float out[32];
  float row_sum[1];
  float row_max[1];
  float scores[16];
  float row_max_before[1];
  float rescale[1];
  float tile_sum[1];
  half_t probabilities[16];
  half_t v_rows[32];
  float row_max_clear[1];
  float row_max_clear_1[1];
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    half_t broadcast_var = half_t(0.000000e+00f);
    uint2 condval;
    if (((((((((seqlen_q + 63) >> 6) * 64) + ((((int)threadIdx.x) >> 6) * 16)) + (((int)threadIdx.x) & 15)) - (((int)blockIdx.y) * 64)) < (seqlen_q + 64)) && (1 <= (((seqlen_q + 63) >> 6) - ((int)blockIdx.y))))) {
      condval = *(uint2*)(Q + (((((((((int64_t)((int)blockIdx.z)) * ((int64_t)heads)) * ((int64_t)seqlen_q)) * (int64_t)128) + (((((((((((int64_t)seqlen_q) + (int64_t)63) >> (int64_t)6) * (int64_t)64) + ((((int64_t)((int)threadIdx.x)) >> (int64_t)6) * (int64_t)16)) + (((int64_t)((int)threadIdx.x)) & (int64_t)15)) - (((int64_t)((int)blockIdx.y)) * (int64_t)64)) - (int64_t)64) * ((int64_t)heads)) * (int64_t)128)) + (((int64_t)((int)blockIdx.x)) * (int64_t)128)) + (((int64_t)i) * (int64_t)16)) + (((((int64_t)((int)threadIdx.x)) & (int64_t)63) >> (int64_t)4) * (int64_t)4)));
    } else {
      condval = make_uint2(__pack_half2(broadcast_var, broadcast_var), __pack_half2(broadcast_var, broadcast_var));
    }
    *(uint2*)(q + (i * 4)) = condval;
  }
  #pragma unroll
  for (int i_1 = 0; i_1 < 8; ++i_1) {
    float broadcast_var_1 = 0.000000e+00f;
    *(float4*)(out + (i_1 * 4)) = make_float4(broadcast_var_1, broadcast_var_1, broadcast_var_1, broadcast_var_1);
  }
  row_sum[0] = 0.000000e+00f;
  row_max[0] = -1.000000e+30f;
  #pragma unroll
  for (int i_2 = 0; i_2 < 4; ++i_2) {
    tl::cp_async_gs_conditional<16>((&(((half_t*)k)[((((((((((int)threadIdx.x) & 15) >> 3) * 4096) + (i_2 * 1024)) + ((((int)threadIdx.x) >> 4) * 64)) + (((((((int)threadIdx.x) & 127) >> 6) + ((((int)threadIdx.x) & 7) >> 2)) & 1) * 32)) + (((((((int)threadIdx.x) & 63) >> 5) + ((((int)threadIdx.x) & 3) >> 1)) & 1) * 16)) + (((((((int)threadIdx.x) & 31) >> 4) + (((int)threadIdx.x) & 1)) & 1) * 8))])), (&(K[(((((((int64_t)((int)blockIdx.x)) / (((int64_t)heads) / ((int64_t)kv_heads))) * (int64_t)128) + (((((int64_t)((int)blockIdx.z)) * ((int64_t)kv_heads)) * ((int64_t)seqlen_k)) * (int64_t)128)) + ((((((int64_t)i_2) * (int64_t)16) + (((int64_t)((int)threadIdx.x)) >> (int64_t)4)) * ((int64_t)kv_heads)) * (int64_t)128)) + ((((int64_t)((int)threadIdx.x)) & (int64_t)15) * (int64_t)8))])), ((((i_2 * 16) + (((int)threadIdx.x) >> 4)) < seqlen_k) && (((i_2 * 16) + (((int)threadIdx.x) >> 4)) < seqlen_k)));
  }
  tl::cp_async_commit();
  for (int j = 0; j < (((max(1, min(seqlen_k, ((((((seqlen_q + 63) >> 6) * 64) + seqlen_k) - seqlen_q) - (((int)blockIdx.y) * 64)))) + 63) >> 6) - 1); ++j) {
    #pragma unroll
    for (int i_3 = 0; i_3 < 4; ++i_3) {
      float broadcast_var_2 = 0.000000e+00f;
      *(float4*)(scores + (i_3 * 4)) = make_float4(broadcast_var_2, broadcast_var_2, broadcast_var_2, broadcast_var_2);
    }
    tl::cp_async_wait<0>();
    __syncthreads();
    {
      half_t B_local[16];
      for (int ki = 0; ki < 8; ++ki) {
        for (int j_1 = 0; j_1 < 4; ++j_1) {
          *(uint2*)(B_local + (j_1 * 4)) = *(uint2*)(((half_t*)k) + ((((((((ki >> 2) * 4096) + (j_1 * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 7) >> 2) + ((ki & 3) >> 1)) & 1) * 32)) + (((((((int)threadIdx.x) & 3) >> 1) + (ki & 1)) & 1) * 16)) + (((((((int)threadIdx.x) & 63) >> 5) + (((int)threadIdx.x) & 1)) & 1) * 8)) + (((((int)threadIdx.x) & 31) >> 4) * 4)));
        }
        for (int j_2 = 0; j_2 < 4; ++j_2) {
          {
      *(((float32x4*)scores) + j_2) = __builtin_amdgcn_mfma_f32_16x16x16f16(*(((float16x4*)B_local) + j_2),
                    *(((float16x4*)q) + ki),
                    *(((float32x4*)scores) + j_2), 0, 0, 0);
    };
        }
      }
    }
    __syncthreads();
    #pragma unroll
    for (int i_4 = 0; i_4 < 4; ++i_4) {
      tl::cp_async_gs_conditional<16>((&(((half_t*)k)[((((((((((int)threadIdx.x) & 15) >> 3) * 4096) + (i_4 * 1024)) + ((((int)threadIdx.x) >> 4) * 64)) + (((((((int)threadIdx.x) & 127) >> 6) + ((((int)threadIdx.x) & 7) >> 2)) & 1) * 32)) + (((((((int)threadIdx.x) & 63) >> 5) + ((((int)threadIdx.x) & 3) >> 1)) & 1) * 16)) + (((((((int)threadIdx.x) & 31) >> 4) + (((int)threadIdx.x) & 1)) & 1) * 8))])), (&(K[(((((((int64_t)((int)blockIdx.x)) / (((int64_t)heads) / ((int64_t)kv_heads))) * (int64_t)128) + (((((int64_t)((int)blockIdx.z)) * ((int64_t)kv_heads)) * ((int64_t)seqlen_k)) * (int64_t)128)) + ((((((((int64_t)j) * (int64_t)64) + (((int64_t)i_4) * (int64_t)16)) + (((int64_t)((int)threadIdx.x)) >> (int64_t)4)) + (int64_t)64) * ((int64_t)kv_heads)) * (int64_t)128)) + ((((int64_t)((int)threadIdx.x)) & (int64_t)15) * (int64_t)8))])), ((((((j * 64) + (i_4 * 16)) + (((int)threadIdx.x) >> 4)) + 64) < seqlen_k) && (((((j * 64) + (i_4 * 16)) + (((int)threadIdx.x) >> 4)) + 64) < seqlen_k)));
    }
    tl::cp_async_commit();
    if ((max(0, min(seqlen_k, (((((((seqlen_q + 63) >> 6) * 64) + seqlen_k) - seqlen_q) - (((int)blockIdx.y) * 64)) - 63))) >> 6) <= j) {
      #pragma unroll
      for (int i_5 = 0; i_5 < 16; ++i_5) {
        float condval_1;
        if ((((((((j * 64) + ((i_5 >> 2) * 16)) + (((((int)threadIdx.x) & 63) >> 4) * 4)) + (i_5 & 3)) + 64) <= ((((((((seqlen_q + 63) >> 6) * 64) + ((((int)threadIdx.x) >> 6) * 16)) + seqlen_k) + (((int)threadIdx.x) & 15)) - seqlen_q) - (((int)blockIdx.y) * 64))) & (((((j * 64) + ((i_5 >> 2) * 16)) + (((((int)threadIdx.x) & 63) >> 4) * 4)) + (i_5 & 3)) < seqlen_k))) {
          condval_1 = scores[i_5];
        } else {
          condval_1 = -HUGE_VALF;
        }
        scores[i_5] = condval_1;
      }
    }
    row_max_before[0] = row_max[0];
    row_max_clear[0] = -HUGE_VALF;
    #pragma unroll
    for (int rv = 0; rv < 16; ++rv) {
      row_max_clear[0] = max(row_max_clear[0], scores[(((rv & 3) * 4) + (rv >> 2))]);
    }
    row_max_clear[0] = tl::AllReduce<tl::MaxOp, 64, 16, 0>::run(row_max_clear[0], (&(((float*)workspace_3)[0])));
    row_max[0] = max(row_max[0], row_max_clear[0]);
    row_max[0] = max(row_max[0], row_max_before[0]);
    rescale[0] = __builtin_amdgcn_exp2f(((row_max_before[0] - row_max[0]) * (softmax_scale * 1.442695e+00f)));
    #pragma unroll
    for (int i_6 = 0; i_6 < 16; ++i_6) {
      scores[i_6] = __builtin_amdgcn_exp2f(((scores[i_6] * (softmax_scale * 1.442695e+00f)) - (row_max[0] * (softmax_scale * 1.442695e+00f))));
    }
    tile_sum[0] = 0.000000e+00f;
    #pragma unroll
    for (int rv_1 = 0; rv_1 < 16; ++rv_1) {
      tile_sum[0] = (tile_sum[0] + scores[(((rv_1 & 3) * 4) + (rv_1 >> 2))]);
    }
    tile_sum[0] = tl::AllReduce<tl::SumOp, 64, 16, 0>::run(tile_sum[0], (&(((float*)workspace_2)[0])));
    row_sum[0] = ((row_sum[0] * rescale[0]) + tile_sum[0]);
    #pragma unroll
    for (int i_7 = 0; i_7 < 4; ++i_7) {
      uint2 __1;
      float4 v_ = *(float4*)(scores + (i_7 * 4));
      *((half_t*)(&(((half2*)(&(__1.x)))->x))) = (half_t)(v_.x);
      *((half_t*)(&(((half2*)(&(__1.x)))->y))) = (half_t)(v_.y);
      *((half_t*)(&(((half2*)(&(__1.y)))->x))) = (half_t)(v_.z);
      *((half_t*)(&(((half2*)(&(__1.y)))->y))) = (half_t)(v_.w);
      *(uint2*)(probabilities + (i_7 * 4)) = __1;
    }
    #pragma unroll
    for (int i_8 = 0; i_8 < 8; ++i_8) {
      float4 __2;
        float4 v__1 = *(float4*)(out + (i_8 * 4));
        float4 v__2 = make_float4(rescale[0], rescale[0], rescale[0], rescale[0]);
        __2.x = (v__1.x*v__2.x);
        __2.y = (v__1.y*v__2.y);
        __2.z = (v__1.z*v__2.z);
        __2.w = (v__1.w*v__2.w);
      *(float4*)(out + (i_8 * 4)) = __2;
    }
    #pragma unroll
    for (int i_9 = 0; i_9 < 4; ++i_9) {
      *(uint4*)(v_rows + (i_9 * 8)) = *(uint4*)(V + ((((((((int64_t)((int)blockIdx.z)) * ((int64_t)kv_heads)) * ((int64_t)seqlen_k)) * (int64_t)128) + (((((((int64_t)j) * (int64_t)64) + (((int64_t)i_9) * (int64_t)16)) + (((int64_t)((int)threadIdx.x)) >> (int64_t)4)) * ((int64_t)kv_heads)) * (int64_t)128)) + ((((int64_t)((int)blockIdx.x)) / (((int64_t)heads) / ((int64_t)kv_heads))) * (int64_t)128)) + ((((int64_t)((int)threadIdx.x)) & (int64_t)15) * (int64_t)8)));
    }
    __syncthreads();
    #pragma unroll
    for (int i_10 = 0; i_10 < 32; ++i_10) {
      ((half_t*)v)[(((((((((int)threadIdx.x) & 15) * 512) + ((i_10 & 7) * 64)) + ((((i_10 >> 4) + ((i_10 & 7) >> 2)) & 1) * 32)) + (((((i_10 & 15) >> 3) + ((i_10 & 3) >> 1)) & 1) * 16)) + ((((((int)threadIdx.x) >> 7) + (i_10 & 1)) & 1) * 8)) + ((((int)threadIdx.x) & 127) >> 4))] = v_rows[i_10];
    }
    {
      half_t B_local_1[32];
      __syncthreads();
      for (int ki_1 = 0; ki_1 < 4; ++ki_1) {
        for (int j_3 = 0; j_3 < 8; ++j_3) {
          *(uint2*)(B_local_1 + (j_3 * 4)) = *(uint2*)(((half_t*)v) + ((((((j_3 * 1024) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 7) >> 2) + (ki_1 >> 1)) & 1) * 32)) + (((((((int)threadIdx.x) & 3) >> 1) + (ki_1 & 1)) & 1) * 16)) + (((((((int)threadIdx.x) & 63) >> 5) + (((int)threadIdx.x) & 1)) & 1) * 8)) + (((((int)threadIdx.x) & 31) >> 4) * 4)));
        }
        for (int j_4 = 0; j_4 < 8; ++j_4) {
          {
      *(((float32x4*)out) + j_4) = __builtin_amdgcn_mfma_f32_16x16x16f16(*(((float16x4*)B_local_1) + j_4),
                    *(((float16x4*)probabilities) + ki_1),
                    *(((float32x4*)out) + j_4), 0, 0, 0);
    };
        }
      }
    }
  }
  #pragma unroll
  for (int i_11 = 0; i_11 < 4; ++i_11) {
    float broadcast_var_3 = 0.000000e+00f;
    *(float4*)(scores + (i_11 * 4)) = make_float4(broadcast_var_3, broadcast_var_3, broadcast_var_3, broadcast_var_3);
  }
  tl::cp_async_wait<0>();
  __syncthreads();
  {
    half_t B_local_2[16];
    for (int ki_2 = 0; ki_2 < 8; ++ki_2) {
      for (int j_5 = 0; j_5 < 4; ++j_5) {
        *(uint2*)(B_local_2 + (j_5 * 4)) = *(uint2*)(((half_t*)k) + ((((((((ki_2 >> 2) * 4096) + (j_5 * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 7) >> 2) + ((ki_2 & 3) >> 1)) & 1) * 32)) + (((((((int)threadIdx.x) & 3) >> 1) + (ki_2 & 1)) & 1) * 16)) + (((((((int)threadIdx.x) & 63) >> 5) + (((int)threadIdx.x) & 1)) & 1) * 8)) + (((((int)threadIdx.x) & 31) >> 4) * 4)));
      }
      for (int j_6 = 0; j_6 < 4; ++j_6) {
        {
      *(((float32x4*)scores) + j_6) = __builtin_amdgcn_mfma_f32_16x16x16f16(*(((float16x4*)B_local_2) + j_6),
                    *(((float16x4*)q) + ki_2),
                    *(((float32x4*)scores) + j_6), 0, 0, 0);
    };
      }
    }
  }
  if ((max(0, min(seqlen_k, (((((((seqlen_q + 63) >> 6) * 64) + seqlen_k) - seqlen_q) - (((int)blockIdx.y) * 64)) - 63))) >> 6) < ((max(1, min(seqlen_k, ((((((seqlen_q + 63) >> 6) * 64) + seqlen_k) - seqlen_q) - (((int)blockIdx.y) * 64)))) + 63) >> 6)) {
    #pragma unroll
    for (int i_12 = 0; i_12 < 16; ++i_12) {
      float condval_2;
      if (((((((((max(1, min(seqlen_k, ((((((seqlen_q + 63) >> 6) * 64) + seqlen_k) - seqlen_q) - (((int)blockIdx.y) * 64)))) + 63) >> 6) * 64) + ((i_12 >> 2) * 16)) + (((((int)threadIdx.x) & 63) >> 4) * 4)) + (i_12 & 3)) <= ((((((((seqlen_q + 63) >> 6) * 64) + ((((int)threadIdx.x) >> 6) * 16)) + seqlen_k) + (((int)threadIdx.x) & 15)) - seqlen_q) - (((int)blockIdx.y) * 64))) & (((((((max(1, min(seqlen_k, ((((((seqlen_q + 63) >> 6) * 64) + seqlen_k) - seqlen_q) - (((int)blockIdx.y) * 64)))) + 63) >> 6) * 64) + ((i_12 >> 2) * 16)) + (((((int)threadIdx.x) & 63) >> 4) * 4)) + (i_12 & 3)) < (seqlen_k + 64)))) {
        condval_2 = scores[i_12];
      } else {
        condval_2 = -HUGE_VALF;
      }
      scores[i_12] = condval_2;
    }
  }
  row_max_before[0] = row_max[0];
  row_max_clear_1[0] = -HUGE_VALF;
  #pragma unroll
  for (int rv_2 = 0; rv_2 < 16; ++rv_2) {
    row_max_clear_1[0] = max(row_max_clear_1[0], scores[(((rv_2 & 3) * 4) + (rv_2 >> 2))]);
  }
  __syncthreads();
  row_max_clear_1[0] = tl::AllReduce<tl::MaxOp, 64, 16, 0>::run(row_max_clear_1[0], (&(((float*)workspace_1)[0])));
  row_max[0] = max(row_max[0], row_max_clear_1[0]);
  row_max[0] = max(row_max[0], row_max_before[0]);
  rescale[0] = __builtin_amdgcn_exp2f(((row_max_before[0] - row_max[0]) * (softmax_scale * 1.442695e+00f)));
  #pragma unroll
  for (int i_13 = 0; i_13 < 16; ++i_13) {
    scores[i_13] = __builtin_amdgcn_exp2f(((scores[i_13] * (softmax_scale * 1.442695e+00f)) - (row_max[0] * (softmax_scale * 1.442695e+00f))));
  }
  tile_sum[0] = 0.000000e+00f;
  #pragma unroll
  for (int rv_3 = 0; rv_3 < 16; ++rv_3) {
    tile_sum[0] = (tile_sum[0] + scores[(((rv_3 & 3) * 4) + (rv_3 >> 2))]);
  }
  __syncthreads();
  tile_sum[0] = tl::AllReduce<tl::SumOp, 64, 16, 0>::run(tile_sum[0], (&(((float*)workspace)[0])));
  row_sum[0] = ((row_sum[0] * rescale[0]) + tile_sum[0]);
  #pragma unroll
  for (int i_14 = 0; i_14 < 4; ++i_14) {
    uint2 __3;
    float4 v__3 = *(float4*)(scores + (i_14 * 4));
    *((half_t*)(&(((half2*)(&(__3.x)))->x))) = (half_t)(v__3.x);
    *((half_t*)(&(((half2*)(&(__3.x)))->y))) = (half_t)(v__3.y);
    *((half_t*)(&(((half2*)(&(__3.y)))->x))) = (half_t)(v__3.z);
    *((half_t*)(&(((half2*)(&(__3.y)))->y))) = (half_t)(v__3.w);
    *(uint2*)(probabilities + (i_14 * 4)) = __3;
  }
  #pragma unroll
  for (int i_15 = 0; i_15 < 8; ++i_15) {
    float4 __4;
      float4 v__4 = *(float4*)(out + (i_15 * 4));
      float4 v__5 = make_float4(rescale[0], rescale[0], rescale[0], rescale[0]);
      __4.x = (v__4.x*v__5.x);
      __4.y = (v__4.y*v__5.y);
      __4.z = (v__4.z*v__5.z);
      __4.w = (v__4.w*v__5.w);
    *(float4*)(out + (i_15 * 4)) = __4;
  }
  #pragma unroll
  for (int i_16 = 0; i_16 < 4; ++i_16) {
    half_t broadcast_var_4 = half_t(0.000000e+00f);
    uint4 condval_3;
    if (((((((max(1, min(seqlen_k, ((((((seqlen_q + 63) >> 6) * 64) + seqlen_k) - seqlen_q) - (((int)blockIdx.y) * 64)))) + 63) >> 6) * 64) + (i_16 * 16)) + (((int)threadIdx.x) >> 4)) < (seqlen_k + 64))) {
      condval_3 = *(uint4*)(V + ((((((((int64_t)((int)blockIdx.z)) * ((int64_t)kv_heads)) * ((int64_t)seqlen_k)) * (int64_t)128) + ((((((((max((int64_t)1, min(((int64_t)seqlen_k), ((((((((int64_t)seqlen_q) + (int64_t)63) >> (int64_t)6) * (int64_t)64) + ((int64_t)seqlen_k)) - ((int64_t)seqlen_q)) - (((int64_t)((int)blockIdx.y)) * (int64_t)64)))) + (int64_t)63) >> (int64_t)6) * (int64_t)64) + (((int64_t)i_16) * (int64_t)16)) + (((int64_t)((int)threadIdx.x)) >> (int64_t)4)) - (int64_t)64) * ((int64_t)kv_heads)) * (int64_t)128)) + ((((int64_t)((int)blockIdx.x)) / (((int64_t)heads) / ((int64_t)kv_heads))) * (int64_t)128)) + ((((int64_t)((int)threadIdx.x)) & (int64_t)15) * (int64_t)8)));
    } else {
      condval_3 = make_uint4(__pack_half2(broadcast_var_4, broadcast_var_4), __pack_half2(broadcast_var_4, broadcast_var_4), __pack_half2(broadcast_var_4, broadcast_var_4), __pack_half2(broadcast_var_4, broadcast_var_4));
    }
    *(uint4*)(v_rows + (i_16 * 8)) = condval_3;
  }
  __syncthreads();
  #pragma unroll
  for (int i_17 = 0; i_17 < 32; ++i_17) {
    ((half_t*)v)[(((((((((int)threadIdx.x) & 15) * 512) + ((i_17 & 7) * 64)) + ((((i_17 >> 4) + ((i_17 & 7) >> 2)) & 1) * 32)) + (((((i_17 & 15) >> 3) + ((i_17 & 3) >> 1)) & 1) * 16)) + ((((((int)threadIdx.x) >> 7) + (i_17 & 1)) & 1) * 8)) + ((((int)threadIdx.x) & 127) >> 4))] = v_rows[i_17];
  }
  {
    half_t B_local_3[32];
    __syncthreads();
    for (int ki_3 = 0; ki_3 < 4; ++ki_3) {
      for (int j_7 = 0; j_7 < 8; ++j_7) {
        *(uint2*)(B_local_3 + (j_7 * 4)) = *(uint2*)(((half_t*)v) + ((((((j_7 * 1024) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 7) >> 2) + (ki_3 >> 1)) & 1) * 32)) + (((((((int)threadIdx.x) & 3) >> 1) + (ki_3 & 1)) & 1) * 16)) + (((((((int)threadIdx.x) & 63) >> 5) + (((int)threadIdx.x) & 1)) & 1) * 8)) + (((((int)threadIdx.x) & 31) >> 4) * 4)));
      }
      for (int j_8 = 0; j_8 < 8; ++j_8) {
        {
      *(((float32x4*)out) + j_8) = __builtin_amdgcn_mfma_f32_16x16x16f16(*(((float16x4*)B_local_3) + j_8),
                    *(((float16x4*)probabilities) + ki_3),
                    *(((float32x4*)out) + j_8), 0, 0, 0);
    };
      }
    }
  }
  #pragma unroll
  for (int i_18 = 0; i_18 < 8; ++i_18) {
    float broadcast_var_5 = 0.000000e+00f;
    float4 condval_4;
    if ((row_sum[0] == 0.000000e+00f)) {
      condval_4 = make_float4(broadcast_var_5, broadcast_var_5, broadcast_var_5, broadcast_var_5);
    } else {
      float4 __5;
        float4 v__6 = *(float4*)(out + (i_18 * 4));
        float4 v__7 = make_float4(row_sum[0], row_sum[0], row_sum[0], row_sum[0]);
        __5.x = (v__6.x/v__7.x);
        __5.y = (v__6.y/v__7.y);
        __5.z = (v__6.z/v__7.z);
        __5.w = (v__6.w/v__7.w);
      condval_4 = __5;
    }
    *(float4*)(out + (i_18 * 4)) = condval_4;
  }
  #pragma unroll
  for (int i_19 = 0; i_19 < 8; ++i_19) {
    half_t O_local_cast[4];
    if (((((((seqlen_q + 63) >> 6) * 64) + ((((int)threadIdx.x) >> 6) * 16)) + (((int)threadIdx.x) & 15)) - (((int)blockIdx.y) * 64)) < (seqlen_q + 64)) {
      uint2 __6;
      float4 v__8 = *(float4*)(out + (i_19 * 4));
      *((half_t*)(&(((half2*)(&(__6.x)))->x))) = (half_t)(v__8.x);
      *((half_t*)(&(((half2*)(&(__6.x)))->y))) = (half_t)(v__8.y);
      *((half_t*)(&(((half2*)(&(__6.y)))->x))) = (half_t)(v__8.z);
      *((half_t*)(&(((half2*)(&(__6.y)))->y))) = (half_t)(v__8.w);
      *(uint2*)(O_local_cast + 0) = __6;
      *(uint2*)(O + (((((((((int64_t)((int)blockIdx.z)) * ((int64_t)heads)) * ((int64_t)seqlen_q)) * (int64_t)128) + (((((((((((int64_t)seqlen_q) + (int64_t)63) >> (int64_t)6) * (int64_t)64) + ((((int64_t)((int)threadIdx.x)) >> (int64_t)6) * (int64_t)16)) + (((int64_t)((int)threadIdx.x)) & (int64_t)15)) - (((int64_t)((int)blockIdx.y)) * (int64_t)64)) - (int64_t)64) * ((int64_t)heads)) * (int64_t)128)) + (((int64_t)((int)blockIdx.x)) * (int64_t)128)) + (((int64_t)i_19) * (int64_t)16)) + (((((int64_t)((int)threadIdx.x)) & (int64_t)63) >> (int64_t)4) * (int64_t)4))) = *(uint2*)(O_local_cast + 0);
    }
  }
  if (((((int)threadIdx.x) & 63) >> 4) == 0) {
    if (((((((seqlen_q + 63) >> 6) * 64) + ((((int)threadIdx.x) >> 6) * 16)) + (((int)threadIdx.x) & 15)) - (((int)blockIdx.y) * 64)) < (seqlen_q + 64)) {
      LSE[(((((((((((int64_t)seqlen_q) + (int64_t)63) >> (int64_t)6) * (int64_t)64) + ((((int64_t)((int)threadIdx.x)) >> (int64_t)6) * (int64_t)16)) + ((((int64_t)((int)blockIdx.z)) * ((int64_t)seqlen_q)) * ((int64_t)heads))) + (((int64_t)((int)blockIdx.x)) * ((int64_t)seqlen_q))) + (((int64_t)((int)threadIdx.x)) & (int64_t)15)) - (((int64_t)((int)blockIdx.y)) * (int64_t)64)) - (int64_t)64)] = ((row_max[0] * softmax_scale) + log1pf((row_sum[0] - 1.000000e+00f)));
    }
  }
}

