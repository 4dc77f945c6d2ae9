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
  void* v = ((void*)((char*)buf_dyn_shmem + 0));
  void* workspace = ((void*)((char*)buf_dyn_shmem + 0));
  void* workspace_1 = ((void*)((char*)buf_dyn_shmem + 0));
  half_t q[32];
  float out[32];
  float row_sum[1];
  float row_max[1];
  float scores[16];
  float row_max_before[1];
  float row_max_clear[1];
  float rescale[1];
  float tile_sum[1];
  half_t probabilities[16];
  half_t v_rows[32];
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
  for (int j = 0; j < ((max(1, min(seqlen_k, ((((((seqlen_q + 63) >> 6) * 64) + seqlen_k) - seqlen_q) - (((int)blockIdx.y) * 64)))) + 63) >> 6); ++j) {
    __syncthreads();
    #pragma unroll
    for (int i_2 = 0; i_2 < 4; ++i_2) {
      half_t broadcast_var_2 = half_t(0.000000e+00f);
      uint4 condval_1;
      if (((((j * 64) + (i_2 * 16)) + (((int)threadIdx.x) >> 4)) < seqlen_k)) {
        condval_1 = *(uint4*)(K + ((((((((int64_t)((int)blockIdx.z)) * ((int64_t)kv_heads)) * ((int64_t)seqlen_k)) * (int64_t)128) + (((((((int64_t)j) * (int64_t)64) + (((int64_t)i_2) * (int64_t)16)) + (((int64_t)((int)threadIdx.x)) >> (int64_t)4)) * ((int64_t)kv_heads)) * (int64_t)128)) + ((((int64_t)((int)blockIdx.x)) / (((int64_t)heads) / ((int64_t)kv_heads))) * (int64_t)128)) + ((((int64_t)((int)threadIdx.x)) & (int64_t)15) * (int64_t)8)));
      } else {
        condval_1 = make_uint4(__pack_half2(broadcast_var_2, broadcast_var_2), __pack_half2(broadcast_var_2, broadcast_var_2), __pack_half2(broadcast_var_2, broadcast_var_2), __pack_half2(broadcast_var_2, broadcast_var_2));
      }
      *(uint4*)(((half_t*)k) + ((((((((((int)threadIdx.x) & 15) >> 3) * 4096) + (i_2 * 1024)) + ((((int)threadIdx.x) >> 4) * 64)) + (((((((int)threadIdx.x) & 127) >> 6) + ((((int)threadIdx.x) & 7) >> 2)) & 1) * 32)) + (((((((int)threadIdx.x) & 63) >> 5) + ((((int)threadIdx.x) & 3) >> 1)) & 1) * 16)) + (((((((int)threadIdx.x) & 31) >> 4) + (((int)threadIdx.x) & 1)) & 1) * 8))) = condval_1;
    }
    #pragma unroll
    for (int i_3 = 0; i_3 < 4; ++i_3) {
      float broadcast_var_3 = 0.000000e+00f;
      *(float4*)(scores + (i_3 * 4)) = make_float4(broadcast_var_3, broadcast_var_3, broadcast_var_3, broadcast_var_3);
    }
    {
      half_t B_local[16];
      __syncthreads();
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
    if ((max(0, min(seqlen_k, (((((((seqlen_q + 63) >> 6) * 64) + seqlen_k) - seqlen_q) - (((int)blockIdx.y) * 64)) - 63))) >> 6) <= j) {
      #pragma unroll
      for (int i_4 = 0; i_4 < 16; ++i_4) {
        float condval_2;
        if ((((((((j * 64) + ((i_4 >> 2) * 16)) + (((((int)threadIdx.x) & 63) >> 4) * 4)) + (i_4 & 3)) + 64) <= ((((((((seqlen_q + 63) >> 6) * 64) + ((((int)threadIdx.x) >> 6) * 16)) + seqlen_k) + (((int)threadIdx.x) & 15)) - seqlen_q) - (((int)blockIdx.y) * 64))) & (((((j * 64) + ((i_4 >> 2) * 16)) + (((((int)threadIdx.x) & 63) >> 4) * 4)) + (i_4 & 3)) < seqlen_k))) {
          condval_2 = scores[i_4];
        } else {
          condval_2 = -HUGE_VALF;
        }
        scores[i_4] = condval_2;
      }
    }
    row_max_before[0] = row_max[0];
    row_max_clear[0] = -HUGE_VALF;
    #pragma unroll
    for (int rv = 0; rv < 16; ++rv) {
      row_max_clear[0] = max(row_max_clear[0], scores[(((rv & 3) * 4) + (rv >> 2))]);
    }
    __syncthreads();
    row_max_clear[0] = tl::AllReduce<tl::MaxOp, 64, 16, 0>::run(row_max_clear[0], (&(((float*)workspace)[0])));
    row_max[0] = max(row_max[0], row_max_clear[0]);
    row_max[0] = max(row_max[0], row_max_before[0]);
    rescale[0] = __builtin_amdgcn_exp2f(((row_max_before[0] - row_max[0]) * (softmax_scale * 1.442695e+00f)));
    #pragma unroll
    for (int i_5 = 0; i_5 < 16; ++i_5) {
      scores[i_5] = __builtin_amdgcn_exp2f(((scores[i_5] * (softmax_scale * 1.442695e+00f)) - (row_max[0] * (softmax_scale * 1.442695e+00f))));
    }
    tile_sum[0] = 0.000000e+00f;
    #pragma unroll
    for (int rv_1 = 0; rv_1 < 16; ++rv_1) {
      tile_sum[0] = (tile_sum[0] + scores[(((rv_1 & 3) * 4) + (rv_1 >> 2))]);
    }
    __syncthreads();
    tile_sum[0] = tl::AllReduce<tl::SumOp, 64, 16, 0>::run(tile_sum[0], (&(((float*)workspace_1)[0])));
    row_sum[0] = ((row_sum[0] * rescale[0]) + tile_sum[0]);
    #pragma unroll
    for (int i_6 = 0; i_6 < 4; ++i_6) {
      uint2 __1;
      float4 v_ = *(float4*)(scores + (i_6 * 4));
      *((half_t*)(&(((half2*)(&(__1.x)))->x))) = (half_t)(v_.x);
      *((half_t*)(&(((half2*)(&(__1.x)))->y))) = (half_t)(v_.y);
      *((half_t*)(&(((half2*)(&(__1.y)))->x))) = (half_t)(v_.z);
      *((half_t*)(&(((half2*)(&(__1.y)))->y))) = (half_t)(v_.w);
      *(uint2*)(probabilities + (i_6 * 4)) = __1;
    }
    #pragma unroll
    for (int i_7 = 0; i_7 < 8; ++i_7) {
      float4 __2;
        float4 v__1 = *(float4*)(out + (i_7 * 4));
        float4 v__2 = make_float4(rescale[0], rescale[0], rescale[0], rescale[0]);
        __2.x = (v__1.x*v__2.x);
        __2.y = (v__1.y*v__2.y);
        __2.z = (v__1.z*v__2.z);
        __2.w = (v__1.w*v__2.w);
      *(float4*)(out + (i_7 * 4)) = __2;
    }
    #pragma unroll
    for (int i_8 = 0; i_8 < 4; ++i_8) {
      half_t broadcast_var_4 = half_t(0.000000e+00f);
      uint4 condval_3;
      if (((((j * 64) + (i_8 * 16)) + (((int)threadIdx.x) >> 4)) < seqlen_k)) {
        condval_3 = *(uint4*)(V + ((((((((int64_t)((int)blockIdx.z)) * ((int64_t)kv_heads)) * ((int64_t)seqlen_k)) * (int64_t)128) + (((((((int64_t)j) * (int64_t)64) + (((int64_t)i_8) * (int64_t)16)) + (((int64_t)((int)threadIdx.x)) >> (int64_t)4)) * ((int64_t)kv_heads)) * (int64_t)128)) + ((((int64_t)((int)blockIdx.x)) / (((int64_t)heads) / ((int64_t)kv_heads))) * (int64_t)128)) + ((((int64_t)((int)threadIdx.x)) & (int64_t)15) * (int64_t)8)));
      } else {
        condval_3 = make_uint4(__pack_half2(broadcast_var_4, broadcast_var_4), __pack_half2(broadcast_var_4, broadcast_var_4), __pack_half2(broadcast_var_4, broadcast_var_4), __pack_half2(broadcast_var_4, broadcast_var_4));
      }
      *(uint4*)(v_rows + (i_8 * 8)) = condval_3;
    }
    __syncthreads();
    #pragma unroll
    for (int i_9 = 0; i_9 < 32; ++i_9) {
      ((half_t*)v)[(((((((((int)threadIdx.x) & 15) * 512) + ((i_9 & 7) * 64)) + ((((i_9 >> 4) + ((i_9 & 7) >> 2)) & 1) * 32)) + (((((i_9 & 15) >> 3) + ((i_9 & 3) >> 1)) & 1) * 16)) + ((((((int)threadIdx.x) >> 7) + (i_9 & 1)) & 1) * 8)) + ((((int)threadIdx.x) & 127) >> 4))] = v_rows[i_9];
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
  for (int i_10 = 0; i_10 < 8; ++i_10) {
    float broadcast_var_5 = 0.000000e+00f;
    float4 condval_4;
    if ((row_sum[0] == 0.000000e+00f)) {
      condval_4 = make_float4(broadcast_var_5, broadcast_var_5, broadcast_var_5, broadcast_var_5);
    } else {
      float4 __3;
        float4 v__3 = *(float4*)(out + (i_10 * 4));
        float4 v__4 = make_float4(row_sum[0], row_sum[0], row_sum[0], row_sum[0]);
        __3.x = (v__3.x/v__4.x);
        __3.y = (v__3.y/v__4.y);
        __3.z = (v__3.z/v__4.z);
        __3.w = (v__3.w/v__4.w);
      condval_4 = __3;
    }
    *(float4*)(out + (i_10 * 4)) = condval_4;
  }
  #pragma unroll
  for (int i_11 = 0; i_11 < 8; ++i_11) {
    half_t O_local_cast[4];
    if (((((((seqlen_q + 63) >> 6) * 64) + ((((int)threadIdx.x) >> 6) * 16)) + (((int)threadIdx.x) & 15)) - (((int)blockIdx.y) * 64)) < (seqlen_q + 64)) {
      uint2 __4;
      float4 v__5 = *(float4*)(out + (i_11 * 4));
      *((half_t*)(&(((half2*)(&(__4.x)))->x))) = (half_t)(v__5.x);
      *((half_t*)(&(((half2*)(&(__4.x)))->y))) = (half_t)(v__5.y);
      *((half_t*)(&(((half2*)(&(__4.y)))->x))) = (half_t)(v__5.z);
      *((half_t*)(&(((half2*)(&(__4.y)))->y))) = (half_t)(v__5.w);
      *(uint2*)(O_local_cast + 0) = __4;
      *(uint2*)(O + (((((((((int64_t)((int)blockIdx.z)) * ((int64_t)heads)) * ((int64_t)seqlen_q)) * (int64_t)128) + (((((((((((int64_t)seqlen_q) + (int64_t)63) >> (int64_t)6) * (int64_t)64) + ((((int64_t)((int)threadIdx.x)) >> (int64_t)6) * (int64_t)16)) + (((int64_t)((int)threadIdx.x)) & (int64_t)15)) - (((int64_t)((int)blockIdx.y)) * (int64_t)64)) - (int64_t)64) * ((int64_t)heads)) * (int64_t)128)) + (((int64_t)((int)blockIdx.x)) * (int64_t)128)) + (((int64_t)i_11) * (int64_t)16)) + (((((int64_t)((int)threadIdx.x)) & (int64_t)63) >> (int64_t)4) * (int64_t)4))) = *(uint2*)(O_local_cast + 0);
    }
  }
  if (((((int)threadIdx.x) & 63) >> 4) == 0) {
    if (((((((seqlen_q + 63) >> 6) * 64) + ((((int)threadIdx.x) >> 6) * 16)) + (((int)threadIdx.x) & 15)) - (((int)blockIdx.y) * 64)) < (seqlen_q + 64)) {
      LSE[(((((((((((int64_t)seqlen_q) + (int64_t)63) >> (int64_t)6) * (int64_t)64) + ((((int64_t)((int)threadIdx.x)) >> (int64_t)6) * (int64_t)16)) + ((((int64_t)((int)blockIdx.z)) * ((int64_t)seqlen_q)) * ((int64_t)heads))) + (((int64_t)((int)blockIdx.x)) * ((int64_t)seqlen_q))) + (((int64_t)((int)threadIdx.x)) & (int64_t)15)) - (((int64_t)((int)blockIdx.y)) * (int64_t)64)) - (int64_t)64)] = ((row_max[0] * softmax_scale) + log1pf((row_sum[0] - 1.000000e+00f)));
    }
  }
}

