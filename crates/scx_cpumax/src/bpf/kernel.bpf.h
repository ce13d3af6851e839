/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kernel types, constants and functions that cpumax uses, declared by hand.
 *
 * The build machine lacks the BTF of the kernel that runs the program, and no BTF is fetched. Each
 * structure has only the members that are read, and each access is relocated by the running
 * kernel's BTF when the program is loaded (CO-RE), so order and size mean nothing. Kernel functions
 * are weak: their existence is checked at load time, not deduced from a version number.
 */
#ifndef CPUMAX_KERNEL_BPF_H
#define CPUMAX_KERNEL_BPF_H

typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_ARENA = 33,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1U << 0, BPF_F_MMAPABLE = 1U << 10 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_F_TIMER_ABS = 1ULL << 0, BPF_F_TIMER_CPU_PIN = 1ULL << 1 };
#define CLOCK_MONOTONIC 1
#define EBUSY 16
#define ENOMEM 12
#define E2BIG 7
#define ENOSPC 28
#define SIGKILL 9
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000

/* Opaque members of map values, which the kernel finds by type. */
struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));
struct bpf_task_work {
	__u64 __opaque;
} __attribute__((aligned(8)));
struct bpf_iter_scx_dsq {
	__u64 __opaque[6];
} __attribute__((aligned(8)));
struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

enum scx_exit_kind { SCX_EXIT_NONE = 0 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* Not read, but without a body the type would not match the kernel's signatures. */
struct cpumask {
	unsigned long bits[1];
};
struct bpf_map {
	u32 id;
};
struct sched_entity {
	u64 sum_exec_runtime;
};
struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};
struct thread_info {
	u32 cpu;
};
typedef struct {
	unsigned long sig[1];
} sigset_t;
struct sigpending {
	sigset_t signal;
};
struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	unsigned short migration_disabled;
	int pid;
	int tgid;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	struct cpumask cpus_mask;
	struct sched_entity se;
	struct sched_ext_entity scx;
	struct sigpending pending;
	char comm[16];
};
typedef struct {
	u32 val;
} kuid_t;
struct kernfs_iattrs {
	kuid_t ia_uid;
};
struct kernfs_node {
	u64 id;
	struct kernfs_iattrs *iattr;
};
struct cgroup {
	int level;
	struct kernfs_node *kn;
};
struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};
struct scx_exit_task_args {
	bool cancelled;
};
struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us;
	u64 bw_quota_us;
	u64 bw_burst_us;
};
struct scx_dump_ctx {
	u64 at_ns;
};
struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
};
enum scx_cpu_preempt_reason { SCX_CPU_PREEMPT_STOP = 2 };
struct scx_cpu_release_args {
	enum scx_cpu_preempt_reason reason;
};
#pragma clang attribute pop

/* The members that are set; libbpf matches them to the kernel's by name. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*dump)(struct scx_dump_ctx *ctx);
	void (*dump_task)(struct scx_dump_ctx *ctx, struct task_struct *p);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	u32 exit_dump_len;
	u64 hotplug_seq;
	char name[128];
};

/* Values differ between kernels: read them with bpf_core_enum_value() only. */
enum scx_enq_flags { SCX_ENQ_WAKEUP = 1, SCX_ENQ_HEAD = 16, SCX_ENQ_CPU_SELECTED = 32, SCX_ENQ_REENQ = 1ULL << 40, SCX_ENQ_LAST = 1ULL << 41 };
enum scx_ent_flags { SCX_TASK_QUEUED = 1 };
enum scx_dsq_id_flags { SCX_DSQ_LOCAL = 1ULL << 63 | 2, SCX_DSQ_LOCAL_ON = 3ULL << 62 };
enum scx_kick_flags { SCX_KICK_IDLE = 1, SCX_KICK_PREEMPT = 2 };
enum scx_public_consts { SCX_SLICE_DFL = 20000000 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define KERNEL_CONST(type, name) bpf_core_enum_value(enum type, name)
#define ENQ_WAKEUP KERNEL_CONST(scx_enq_flags, SCX_ENQ_WAKEUP)
#define ENQ_HEAD KERNEL_CONST(scx_enq_flags, SCX_ENQ_HEAD)
#define ENQ_CPU_SELECTED KERNEL_CONST(scx_enq_flags, SCX_ENQ_CPU_SELECTED)
#define ENQ_REENQ KERNEL_CONST(scx_enq_flags, SCX_ENQ_REENQ)
#define ENQ_LAST KERNEL_CONST(scx_enq_flags, SCX_ENQ_LAST)
#define CPU_PREEMPT_STOP KERNEL_CONST(scx_cpu_preempt_reason, SCX_CPU_PREEMPT_STOP)
#define TASK_QUEUED KERNEL_CONST(scx_ent_flags, SCX_TASK_QUEUED)
#define DSQ_LOCAL KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL)
#define DSQ_LOCAL_ON KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON)
#define KICK_IDLE KERNEL_CONST(scx_kick_flags, SCX_KICK_IDLE)
#define KICK_PREEMPT KERNEL_CONST(scx_kick_flags, SCX_KICK_PREEMPT)

#define KFUNC extern
#define KSYM __ksym __weak
#define BPF_FOR_EACH_ITER (&___it)

KFUNC s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) KSYM;
KFUNC void scx_bpf_destroy_dsq(u64 dsq_id) KSYM;
KFUNC void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) KSYM;
KFUNC void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) KSYM;
KFUNC bool scx_bpf_dsq_move_to_local(u64 dsq_id) KSYM;
KFUNC s32 scx_bpf_dsq_nr_queued(u64 dsq_id) KSYM;
KFUNC void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it__iter, u64 slice) KSYM;
KFUNC void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it__iter, u64 vtime) KSYM;
KFUNC bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags) KSYM;
KFUNC bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
				  u64 enq_flags) KSYM;
KFUNC int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) KSYM;
KFUNC struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) KSYM;
KFUNC void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) KSYM;
KFUNC s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) KSYM;
KFUNC s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) KSYM;
KFUNC void scx_bpf_kick_cpu(s32 cpu, u64 flags) KSYM;
KFUNC u32 scx_bpf_reenqueue_local(void) KSYM;
KFUNC s32 scx_bpf_task_cpu(const struct task_struct *p) KSYM;
KFUNC bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) KSYM;
KFUNC void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data__sz) KSYM;
KFUNC void scx_bpf_dump_bstr(char *fmt, unsigned long long *data, u32 data__sz) KSYM;
KFUNC int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) KSYM;
KFUNC int *bpf_iter_num_next(struct bpf_iter_num *it) KSYM;
KFUNC void bpf_iter_num_destroy(struct bpf_iter_num *it) KSYM;
KFUNC struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level) KSYM;
KFUNC void bpf_cgroup_release(struct cgroup *cgrp) KSYM;

/* From 7.0 on; 6.18 and 6.19 have the second form, with one more argument. */
KFUNC int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *tw, void *map__map,
					int (*callback)(struct bpf_map *map, void *key, void *value)) KSYM;
KFUNC int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw, void *map__map,
					     int (*callback)(struct bpf_map *map, void *key, void *value),
					     void *aux__prog) KSYM;

/* Reads the CPU without a call, where thread_info has it. */
static __always_inline s32 task_cpu(const struct task_struct *p)
{
	if (bpf_core_field_exists(p->thread_info.cpu))
		return p->thread_info.cpu;
	return scx_bpf_task_cpu(p);
}

/* Memory shared with the loader. To the verifier, pointers into it are plain numbers. */
#define __arena __attribute__((address_space(1)))
KFUNC void __arena *bpf_arena_alloc_pages(void *map, void __arena *addr, __u32 page_cnt, int node_id, __u64 flags) KSYM;
KFUNC void bpf_arena_free_pages(void *map, void __arena *ptr, __u32 page_cnt) KSYM;

#define PAGE_SIZE 4096

#define bpf_printf_to(func, fmt, args...)                                              \
	({                                                                             \
		static char ____fmt[] = fmt;                                           \
		unsigned long long ____args[___bpf_narg(args) + !___bpf_narg(args)];   \
		___bpf_fill(____args, args);                                           \
		func((char *)____fmt, ____args, ___bpf_narg(args) * 8);                \
	})
#define dump(fmt, args...) bpf_printf_to(scx_bpf_dump_bstr, fmt, args)

#endif
