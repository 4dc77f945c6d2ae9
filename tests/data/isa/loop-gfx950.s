	.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
	.amdhsa_code_object_version 6
	.text
	.protected	loop_kernel             ; -- Begin function loop_kernel
	.globl	loop_kernel
	.p2align	8
	.type	loop_kernel,@function
loop_kernel:                            ; @loop_kernel
; %bb.0:
	s_load_dwordx4 s[4:7], s[0:1], 0x10
	s_load_dwordx2 s[8:9], s[0:1], 0x8
	v_mov_b32_e32 v5, 0
	v_mov_b32_e32 v4, 0
	v_mov_b32_e32 v3, 0
	s_waitcnt lgkmcnt(0)
	s_cmp_lt_i32 s4, 1
	v_mov_b32_e32 v2, 0
	s_cbranch_scc1 .LBB0_11
; %bb.1:
	v_xor_b32_e32 v1, 1, v0
	v_lshlrev_b32_e32 v10, 3, v1
	v_mbcnt_lo_u32_b32 v1, -1, 0
	v_mbcnt_hi_u32_b32 v1, -1, v1
	s_load_dwordx2 s[0:1], s[0:1], 0x0
	v_and_b32_e32 v3, 64, v1
	v_xor_b32_e32 v2, 16, v1
	v_add_u32_e32 v3, 64, v3
	v_cmp_lt_i32_e32 vcc, v2, v3
	v_mul_u32_u24_e32 v11, 5, v0
	s_add_i32 s3, s4, -1
	v_cndmask_b32_e32 v1, v1, v2, vcc
	v_lshlrev_b32_e32 v6, 4, v0
	s_mov_b32 s7, 0
	v_lshlrev_b32_e32 v1, 2, v1
	v_mov_b32_e32 v7, 0
	s_cmp_eq_u32 s3, 0
	v_mov_b32_e32 v5, 0
	v_mov_b32_e32 v4, 0
	v_mov_b32_e32 v3, 0
	v_mov_b32_e32 v2, 0
	v_lshlrev_b32_e32 v12, 1, v11
	v_add_u32_e32 v13, 64, v11
	s_cbranch_scc1 .LBB0_7
; %bb.2:
	v_and_b32_e32 v2, 0x7ff, v13
	v_lshlrev_b32_e32 v14, 1, v2
	v_add_u32_e32 v2, 0x80, v11
	v_and_b32_e32 v2, 0x7ff, v2
	v_lshlrev_b32_e32 v15, 1, v2
	v_add_u32_e32 v2, 0xc0, v11
	v_and_b32_e32 v2, 0x7ff, v2
	s_waitcnt lgkmcnt(0)
	v_lshl_add_u64 v[8:9], s[0:1], 0, v[6:7]
	v_mov_b32_e32 v7, 0
	v_lshlrev_b32_e32 v16, 1, v2
	s_mov_b32 s4, 0
	v_mov_b32_e32 v2, 0
	v_mov_b32_e32 v3, 0
	v_mov_b32_e32 v4, 0
	s_mov_b32 s7, 0x5040100
	s_mov_b64 s[10:11], 0x1000
	v_mov_b32_e32 v17, v0
	v_mov_b32_e32 v5, v7
	s_branch .LBB0_4
.LBB0_3:                                ;   in Loop: Header=BB0_4 Depth=1
	s_or_b64 exec, exec, s[12:13]
	s_barrier
	s_waitcnt vmcnt(0)
	ds_write_b128 v6, v[18:21]
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read_b64 v[22:23], v10
	ds_read_u16 v18, v12
	ds_read_u16 v19, v15
	ds_read_u16 v20, v16
	ds_read_u16 v21, v14
	s_add_i32 s4, s4, 1
	v_lshl_add_u64 v[8:9], v[8:9], 0, s[10:11]
	s_cmp_eq_u32 s3, s4
	s_waitcnt lgkmcnt(1)
	v_perm_b32 v19, v20, v19, s7
	s_waitcnt lgkmcnt(0)
	v_perm_b32 v18, v21, v18, s7
	v_add_u32_e32 v17, 0x100, v17
	s_nop 0
	v_mfma_f32_16x16x16_f16 v[2:5], v[22:23], v[18:19], v[2:5]
	s_nop 7
	ds_bpermute_b32 v18, v1, v3
	v_mul_f32_e32 v2, s6, v2
	v_exp_f32_e32 v2, v2
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v2, v2, v18
	s_cbranch_scc1 .LBB0_6
.LBB0_4:                                ; =>This Inner Loop Header: Depth=1
	v_cmp_gt_i32_e32 vcc, s5, v17
	v_mov_b32_e32 v18, v7
	v_mov_b32_e32 v19, v7
	v_mov_b32_e32 v20, v7
	v_mov_b32_e32 v21, v7
	s_and_saveexec_b64 s[12:13], vcc
	s_cbranch_execz .LBB0_3
; %bb.5:                                ;   in Loop: Header=BB0_4 Depth=1
	global_load_dwordx4 v[18:21], v[8:9], off
	s_branch .LBB0_3
.LBB0_6:
	s_mov_b32 s7, s3
.LBB0_7:
	v_lshl_or_b32 v8, s7, 8, v0
	v_cmp_gt_i32_e32 vcc, s5, v8
	v_mov_b32_e32 v9, 0
	v_mov_b32_e32 v14, 0
	v_mov_b32_e32 v15, 0
	v_mov_b32_e32 v16, 0
	v_mov_b32_e32 v17, 0
	s_and_saveexec_b64 s[4:5], vcc
	s_cbranch_execz .LBB0_9
; %bb.8:
	s_waitcnt lgkmcnt(0)
	v_lshl_add_u64 v[8:9], v[8:9], 4, s[0:1]
	global_load_dwordx4 v[14:17], v[8:9], off
.LBB0_9:
	s_or_b64 exec, exec, s[4:5]
	v_add_u32_e32 v7, 0x80, v11
	v_add_u32_e32 v8, 0xc0, v11
	s_waitcnt lgkmcnt(0)
	s_barrier
	s_waitcnt vmcnt(0)
	ds_write_b128 v6, v[14:17]
	v_and_b32_e32 v6, 0x7ff, v13
	v_and_b32_e32 v7, 0x7ff, v7
	v_and_b32_e32 v8, 0x7ff, v8
	v_lshlrev_b32_e32 v6, 1, v6
	v_lshlrev_b32_e32 v7, 1, v7
	v_lshlrev_b32_e32 v8, 1, v8
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read_b64 v[10:11], v10
	ds_read_u16 v9, v12
	ds_read_u16 v7, v7
	ds_read_u16 v8, v8
	ds_read_u16 v6, v6
	s_mov_b32 s0, 0x5040100
	s_cmp_lg_u32 s7, s3
	s_waitcnt lgkmcnt(1)
	v_perm_b32 v7, v8, v7, s0
	s_waitcnt lgkmcnt(0)
	v_perm_b32 v6, v6, v9, s0
	s_nop 1
	v_mfma_f32_16x16x16_f16 v[2:5], v[10:11], v[6:7], v[2:5]
	s_nop 7
	ds_bpermute_b32 v1, v1, v3
	v_mul_f32_e32 v2, s6, v2
	v_exp_f32_e32 v2, v2
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v2, v2, v1
	s_cbranch_scc1 .LBB0_11
; %bb.10:
	v_mov_b32_e32 v1, s6
	v_cmp_lt_f32_e32 vcc, s6, v2
	s_nop 1
	v_cndmask_b32_e32 v2, v2, v1, vcc
	v_cmp_lt_f32_e32 vcc, s6, v3
	s_nop 1
	v_cndmask_b32_e32 v3, v3, v1, vcc
	v_cmp_lt_f32_e32 vcc, s6, v4
	s_nop 1
	v_cndmask_b32_e32 v4, v4, v1, vcc
	v_cmp_lt_f32_e32 vcc, s6, v5
	s_nop 1
	v_cndmask_b32_e32 v5, v5, v1, vcc
.LBB0_11:
	v_lshl_or_b32 v0, s2, 8, v0
	v_mov_b32_e32 v1, 0
	v_lshl_add_u64 v[0:1], v[0:1], 4, s[8:9]
	global_store_dwordx4 v[0:1], v[2:5], off
	s_endpgm
	.section	.rodata,"a",@progbits
	.p2align	6, 0x0
	.amdhsa_kernel loop_kernel
		.amdhsa_group_segment_fixed_size 4096
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 28
		.amdhsa_user_sgpr_count 2
		.amdhsa_user_sgpr_dispatch_ptr 0
		.amdhsa_user_sgpr_queue_ptr 0
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_dispatch_id 0
		.amdhsa_user_sgpr_kernarg_preload_length 0
		.amdhsa_user_sgpr_kernarg_preload_offset 0
		.amdhsa_user_sgpr_private_segment_size 0
		.amdhsa_uses_dynamic_stack 0
		.amdhsa_enable_private_segment 0
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_sgpr_workgroup_info 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 24
		.amdhsa_next_free_sgpr 14
		.amdhsa_accum_offset 24
		.amdhsa_reserve_vcc 1
		.amdhsa_float_round_mode_32 0
		.amdhsa_float_round_mode_16_64 0
		.amdhsa_float_denorm_mode_32 3
		.amdhsa_float_denorm_mode_16_64 3
		.amdhsa_dx10_clamp 1
		.amdhsa_ieee_mode 1
		.amdhsa_fp16_overflow 0
		.amdhsa_tg_split 0
		.amdhsa_exception_fp_ieee_invalid_op 0
		.amdhsa_exception_fp_denorm_src 0
		.amdhsa_exception_fp_ieee_div_zero 0
		.amdhsa_exception_fp_ieee_overflow 0
		.amdhsa_exception_fp_ieee_underflow 0
		.amdhsa_exception_fp_ieee_inexact 0
		.amdhsa_exception_int_div_zero 0
	.end_amdhsa_kernel
	.text
.Lfunc_end0:
	.size	loop_kernel, .Lfunc_end0-loop_kernel
                                        ; -- End function
	.set loop_kernel.num_vgpr, 24
	.set loop_kernel.num_agpr, 0
	.set loop_kernel.numbered_sgpr, 14
	.set loop_kernel.num_named_barrier, 0
	.set loop_kernel.private_seg_size, 0
	.set loop_kernel.uses_vcc, 1
	.set loop_kernel.uses_flat_scratch, 0
	.set loop_kernel.has_dyn_sized_stack, 0
	.set loop_kernel.has_recursion, 0
	.set loop_kernel.has_indirect_call, 0
	.section	.AMDGPU.csdata,"",@progbits
; Kernel info:
; codeLenInByte = 816
; TotalNumSgprs: 20
; NumVgprs: 24
; NumAgprs: 0
; TotalNumVgprs: 24
; ScratchSize: 0
; MemoryBound: 1
; FloatMode: 240
; IeeeMode: 1
; LDSByteSize: 4096 bytes/workgroup (compile time only)
; SGPRBlocks: 2
; VGPRBlocks: 2
; NumSGPRsForWavesPerEU: 20
; NumVGPRsForWavesPerEU: 24
; AccumOffset: 24
; Occupancy: 8
; WaveLimiterHint : 0
; COMPUTE_PGM_RSRC2:SCRATCH_EN: 0
; COMPUTE_PGM_RSRC2:USER_SGPR: 2
; COMPUTE_PGM_RSRC2:TRAP_HANDLER: 0
; COMPUTE_PGM_RSRC2:TGID_X_EN: 1
; COMPUTE_PGM_RSRC2:TGID_Y_EN: 0
; COMPUTE_PGM_RSRC2:TGID_Z_EN: 0
; COMPUTE_PGM_RSRC2:TIDIG_COMP_CNT: 0
; COMPUTE_PGM_RSRC3_GFX90A:ACCUM_OFFSET: 5
; COMPUTE_PGM_RSRC3_GFX90A:TG_SPLIT: 0
	.text
	.p2alignl 6, 3212836864
	.fill 256, 4, 3212836864
	.section	.AMDGPU.gpr_maximums,"",@progbits
	.set amdgpu.max_num_vgpr, 0
	.set amdgpu.max_num_agpr, 0
	.set amdgpu.max_num_sgpr, 0
	.set amdgpu.max_num_named_barrier, 0
	.text
	.type	__hip_cuid_d4de22cbc528238c,@object ; @__hip_cuid_d4de22cbc528238c
	.section	.bss,"aw",@nobits
	.globl	__hip_cuid_d4de22cbc528238c
__hip_cuid_d4de22cbc528238c:
	.byte	0                               ; 0x0
	.size	__hip_cuid_d4de22cbc528238c, 1

	.ident	"Debian clang version 22.1.8 (1~deb12u1)"
	.section	".note.GNU-stack","",@progbits
	.addrsig
	.addrsig_sym __hip_cuid_d4de22cbc528238c
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .actual_access:  read_only
        .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .actual_access:  write_only
        .address_space:  global
        .offset:         8
        .size:           8
        .value_kind:     global_buffer
      - .offset:         16
        .size:           4
        .value_kind:     by_value
      - .offset:         20
        .size:           4
        .value_kind:     by_value
      - .offset:         24
        .size:           4
        .value_kind:     by_value
    .group_segment_fixed_size: 4096
    .kernarg_segment_align: 8
    .kernarg_segment_size: 28
    .max_flat_workgroup_size: 256
    .name:           loop_kernel
    .private_segment_fixed_size: 0
    .sgpr_count:     20
    .sgpr_spill_count: 0
    .symbol:         loop_kernel.kd
    .uniform_work_group_size: 1
    .uses_dynamic_stack: false
    .vgpr_count:     24
    .vgpr_spill_count: 0
    .wavefront_size: 64
amdhsa.target:   amdgcn-amd-amdhsa--gfx950
amdhsa.version:
  - 1
  - 2
...

	.end_amdgpu_metadata
