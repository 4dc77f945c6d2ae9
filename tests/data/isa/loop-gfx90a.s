	.text
	.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"
	.amdhsa_code_object_version 5
	.protected	loop_kernel             ; -- Begin function loop_kernel
	.globl	loop_kernel
	.p2align	8
	.type	loop_kernel,@function
loop_kernel:                            ; @loop_kernel
; %bb.0:
	s_load_dwordx4 s[0:3], s[4:5], 0x10
	s_load_dwordx2 s[8:9], s[4:5], 0x8
	v_mov_b32_e32 v2, 0
	v_accvgpr_write_b32 a1, 0
	v_accvgpr_write_b32 a2, 0
	s_waitcnt lgkmcnt(0)
	s_cmp_lt_i32 s0, 1
	v_accvgpr_write_b32 a3, 0
	s_cbranch_scc1 .LBB0_7
; %bb.1:
	v_xor_b32_e32 v2, 1, v0
	v_lshlrev_b32_e32 v12, 3, v2
	v_mul_u32_u24_e32 v2, 5, v0
	v_lshlrev_b32_e32 v14, 1, v2
	v_mad_u32_u24 v2, v0, 5, 64
	v_and_b32_e32 v2, 0x7ff, v2
	v_lshlrev_b32_e32 v15, 1, v2
	v_mov_b32_e32 v2, 0x80
	s_load_dwordx2 s[4:5], s[4:5], 0x0
	v_mbcnt_lo_u32_b32 v3, -1, 0
	v_mad_u32_u24 v2, v0, 5, v2
	v_mbcnt_hi_u32_b32 v3, -1, v3
	v_and_b32_e32 v2, 0x7ff, v2
	v_and_b32_e32 v5, 64, v3
	v_lshlrev_b32_e32 v16, 1, v2
	v_mov_b32_e32 v2, 0xc0
	v_xor_b32_e32 v4, 16, v3
	v_add_u32_e32 v5, 64, v5
	v_mad_u32_u24 v2, v0, 5, v2
	v_lshlrev_b32_e32 v1, 4, v0
	v_cmp_lt_i32_e32 vcc, v4, v5
	v_and_b32_e32 v2, 0x7ff, v2
	v_cndmask_b32_e32 v3, v3, v4, vcc
	v_lshlrev_b32_e32 v17, 1, v2
	s_waitcnt lgkmcnt(0)
	v_mov_b32_e32 v2, s5
	v_add_co_u32_e32 v10, vcc, s4, v1
	v_addc_co_u32_e32 v11, vcc, 0, v2, vcc
	v_mov_b32_e32 v2, 0
	v_lshlrev_b32_e32 v13, 2, v3
	v_accvgpr_write_b32 a3, v2
	v_accvgpr_write_b32 a2, v2
	v_accvgpr_write_b32 a1, v2
	s_mov_b32 s3, 0x5040100
	v_mov_b32_e32 v18, v0
	s_branch .LBB0_3
.LBB0_2:                                ;   in Loop: Header=BB0_3 Depth=1
	s_add_i32 s0, s0, -1
	v_add_co_u32_e32 v10, vcc, 0x1000, v10
	v_addc_co_u32_e32 v11, vcc, 0, v11, vcc
	s_cmp_eq_u32 s0, 0
	v_add_u32_e32 v18, 0x100, v18
	s_cbranch_scc1 .LBB0_7
.LBB0_3:                                ; =>This Inner Loop Header: Depth=1
	v_accvgpr_read_b32 v5, a3
	v_accvgpr_read_b32 v4, a2
	v_accvgpr_read_b32 v3, a1
	v_cmp_gt_i32_e32 vcc, s1, v18
	v_mov_b32_e32 v6, 0
	v_mov_b32_e32 v7, 0
	v_mov_b32_e32 v8, 0
	v_mov_b32_e32 v9, 0
	s_and_saveexec_b64 s[4:5], vcc
	s_cbranch_execz .LBB0_5
; %bb.4:                                ;   in Loop: Header=BB0_3 Depth=1
	global_load_dwordx4 v[6:9], v[10:11], off
.LBB0_5:                                ;   in Loop: Header=BB0_3 Depth=1
	s_or_b64 exec, exec, s[4:5]
	s_barrier
	s_waitcnt vmcnt(0)
	ds_write_b128 v1, v[6:9]
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read_u16 v8, v16
	ds_read_u16 v9, v17
	ds_read_b64 v[6:7], v12
	ds_read_u16 v19, v14
	ds_read_u16 v20, v15
	v_accvgpr_write_b32 a0, v2
	s_waitcnt lgkmcnt(3)
	v_perm_b32 v9, v9, v8, s3
	v_accvgpr_write_b32 a1, v3
	v_accvgpr_write_b32 a2, v4
	s_waitcnt lgkmcnt(0)
	v_perm_b32 v8, v20, v19, s3
	v_accvgpr_write_b32 a3, v5
	s_cmp_lg_u32 s0, 1
	s_nop 0
	v_mfma_f32_16x16x16f16 a[0:3], v[6:7], v[8:9], a[0:3]
	s_nop 7
	s_nop 2
	v_accvgpr_read_b32 v2, a0
	v_accvgpr_read_b32 v3, a1
	v_mul_f32_e32 v2, s2, v2
	ds_bpermute_b32 v3, v13, v3
	v_exp_f32_e32 v2, v2
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v2, v2, v3
	s_cbranch_scc1 .LBB0_2
; %bb.6:                                ;   in Loop: Header=BB0_3 Depth=1
	v_accvgpr_read_b32 v7, a3
	v_accvgpr_read_b32 v5, a1
	v_mov_b32_e32 v3, s2
	v_cmp_lt_f32_e32 vcc, s2, v2
	v_accvgpr_read_b32 v6, a2
	v_accvgpr_read_b32 v4, a0
	v_cndmask_b32_e32 v2, v2, v3, vcc
	v_cmp_lt_f32_e32 vcc, s2, v5
	v_cndmask_b32_e32 v4, v5, v3, vcc
	v_cmp_lt_f32_e32 vcc, s2, v6
	v_accvgpr_write_b32 a1, v4
	v_cndmask_b32_e32 v4, v6, v3, vcc
	v_cmp_lt_f32_e32 vcc, s2, v7
	v_cndmask_b32_e32 v3, v7, v3, vcc
	v_accvgpr_write_b32 a2, v4
	v_accvgpr_write_b32 a3, v3
	s_branch .LBB0_2
.LBB0_7:
	v_lshl_or_b32 v0, s6, 8, v0
	v_mov_b32_e32 v1, 0
	v_lshlrev_b64 v[0:1], 4, v[0:1]
	v_mov_b32_e32 v6, s9
	v_add_co_u32_e32 v0, vcc, s8, v0
	v_accvgpr_read_b32 v3, a1
	v_accvgpr_read_b32 v4, a2
	v_accvgpr_read_b32 v5, a3
	v_addc_co_u32_e32 v1, vcc, v6, v1, vcc
	global_store_dwordx4 v[0:1], v[2:5], off
	s_endpgm
	.section	.rodata,"a",@progbits
	.p2align	6, 0x0
	.amdhsa_kernel loop_kernel
		.amdhsa_group_segment_fixed_size 4096
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 28
		.amdhsa_user_sgpr_count 6
		.amdhsa_user_sgpr_private_segment_buffer 1
		.amdhsa_user_sgpr_dispatch_ptr 0
		.amdhsa_user_sgpr_queue_ptr 0
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_dispatch_id 0
		.amdhsa_user_sgpr_flat_scratch_init 0
		.amdhsa_user_sgpr_kernarg_preload_length 0
		.amdhsa_user_sgpr_kernarg_preload_offset 0
		.amdhsa_user_sgpr_private_segment_size 0
		.amdhsa_uses_dynamic_stack 0
		.amdhsa_system_sgpr_private_segment_wavefront_offset 0
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_sgpr_workgroup_info 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 28
		.amdhsa_next_free_sgpr 10
		.amdhsa_accum_offset 24
		.amdhsa_reserve_vcc 1
		.amdhsa_reserve_flat_scratch 0
		.amdhsa_reserve_xnack_mask 1
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
	.section	.AMDGPU.csdata,"",@progbits
; Kernel info:
; codeLenInByte = 708
; NumSgprs: 14
; NumVgprs: 21
; NumAgprs: 4
; TotalNumVgprs: 28
; ScratchSize: 0
; MemoryBound: 1
; FloatMode: 240
; IeeeMode: 1
; LDSByteSize: 4096 bytes/workgroup (compile time only)
; SGPRBlocks: 1
; VGPRBlocks: 3
; NumSGPRsForWavesPerEU: 14
; NumVGPRsForWavesPerEU: 28
; AccumOffset: 24
; Occupancy: 8
; WaveLimiterHint : 0
; COMPUTE_PGM_RSRC2:SCRATCH_EN: 0
; COMPUTE_PGM_RSRC2:USER_SGPR: 6
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
	.type	__hip_cuid_5c94cafa163758fa,@object ; @__hip_cuid_5c94cafa163758fa
	.section	.bss,"aw",@nobits
	.globl	__hip_cuid_5c94cafa163758fa
__hip_cuid_5c94cafa163758fa:
	.byte	0                               ; 0x0
	.size	__hip_cuid_5c94cafa163758fa, 1

	.ident	"Debian clang version 19.1.7 (3~deb12u1)"
	.section	".note.GNU-stack","",@progbits
	.addrsig
	.addrsig_sym __hip_cuid_5c94cafa163758fa
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     4
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
    .sgpr_count:     14
    .sgpr_spill_count: 0
    .symbol:         loop_kernel.kd
    .uniform_work_group_size: 1
    .uses_dynamic_stack: false
    .vgpr_count:     28
    .vgpr_spill_count: 0
    .wavefront_size: 64
amdhsa.target:   amdgcn-amd-amdhsa--gfx90a
amdhsa.version:
  - 1
  - 2
...

	.end_amdgpu_metadata
