/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Kernel types, constants and helpers that the recorder uses, declared by hand.
 *
 * Structures have only the members that are read. Their offsets come from the running kernel's BTF
 * when the program is loaded (CO-RE), so a build needs no headers and no BTF.
 */
#ifndef RECORDER_KERNEL_BPF_H
#define RECORDER_KERNEL_BPF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef int s32;
typedef unsigned int u32;
typedef long long s64;
typedef unsigned long long u64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define __array(name, value) typeof(value) *name[]
/* One access, in program order. */
#define READ_ONCE(from) (*(const volatile typeof(from) *)&(from))
#define WRITE_ONCE(to, value) (*(volatile typeof(to) *)&(to) = (value))
#define field_exists(field) __builtin_preserve_field_info(field, 2)

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1 };

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*const bpf_get_current_task)(void) = (void *)35;
static u64 (*const bpf_get_socket_cookie)(void *socket) = (void *)46;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static u64 (*const bpf_ktime_get_boot_ns)(void) = (void *)125;
static void *(*const bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;
static void *(*const bpf_this_cpu_ptr)(const void *percpu) = (void *)154;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
	u64 id;
	const char *name;
};
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct cgroup_root {
	int hierarchy_id;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};
struct css_set {
	struct cgroup_subsys_state *subsys[64];
	struct cgroup *dfl_cgrp;
};
struct sched_entity {
	u64 sum_exec_runtime;
};
struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int exit_state;
	int prio;
	int pid;
	int tgid;
	struct sched_entity se;
	struct css_set *cgroups;
	char comm[16];
};
/* Before Linux 5.14. */
struct task_struct___before_5_14 {
	long state;
};
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10, r9, r8, dx, si, di;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
};
#else
struct pt_regs;
#endif
#pragma clang attribute pop

/* The value is relocated too. */
enum cgroup_subsys_id { cpu_cgrp_id = 1 };
#define CPU_CONTROLLER __builtin_preserve_enum_value(*(enum cgroup_subsys_id *)cpu_cgrp_id, 1)

#define PF_KTHREAD 0x00200000

#endif
