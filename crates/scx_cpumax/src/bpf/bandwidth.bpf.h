/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPU bandwidth control (cpu.max) for sched_ext schedulers, enforced where a task returns to user
 * mode.
 *
 * A group out of runtime stops no task inside the kernel: a task completes its system call, drops
 * its locks, and is parked on its way out. The rules are those of the fair class from 6.18 on
 * (kernel/sched/fair.c): each group has one pool, from which CPUs take slices. Unused runtime goes
 * back, overrun becomes the group's debt, and nothing expires.
 *
 * Contract. The scheduler calls, in the operation of the same name:
 *   cgroup_init (sleepable)  cbw_group_init(); its error must be returned, as a group without a
 *                            record would have no limit
 *   cgroup_exit (sleepable)  cbw_group_exit()
 *   cgroup_set_bandwidth     cbw_group_set_limit()
 *   cgroup_move              cbw_task_move()
 *   init_task, exit_task     cbw_task_init() (its error must be returned), cbw_task_exit()
 *   running, tick, stopping  cbw_running(), cbw_tick(), cbw_stopping()
 *   enable, disable          cbw_enable(), cbw_disable()
 *   cpu_online, cpu_offline  cbw_cpu_online(), cbw_cpu_offline(); no kick while !cbw_may_kick()
 *   set_cpumask              cbw_set_cpumask()
 *   enqueue, first of all    cbw_enqueue(). CBW_RUN: queue the task as you like, with a turn no
 *                            longer than cbw_turn_of(). CBW_HEAD: the task must run next on this
 *                            CPU, so insert it at the head of the local queue. CBW_PARKED: done.
 *   init                     cbw_init()
 *   dispatch                 may extend prev's slice only if !cbw_wants_out(t)
 * It defines cbw_requeue(), which says where a released task goes, and cbw_rescue_all(), which
 * calls cbw_rescue() for each of its queues. It must set SCX_OPS_ENQ_LAST, put such tasks on the
 * local queue and kick the CPU, and set SCX_OPS_ENQ_MIGRATION_DISABLED. It may insert directly from
 * select_cpu: a waking task is in the kernel, and its runtime is checked when it runs.
 *
 * Cost. A task without a limit above it: one comparison in each hook. With limits: one charge for
 * each level at each tick and switch, and one atomic operation on the pool for each slice. Parking:
 * two extra passes through the scheduler (see bandwidth/boundary.bpf.h). Memory: a page for each
 * group (and one more for each 55 CPUs), 200 bytes for each task.
 */
#ifndef CPUMAX_BANDWIDTH_BPF_H
#define CPUMAX_BANDWIDTH_BPF_H

#include "kernel.bpf.h"
#include "intf.h"

enum cbw_verdict { CBW_RUN, CBW_HEAD, CBW_PARKED };

/* Defined by the scheduler: queue (in vtime order) and turn, at most slice_ns, of a released
 * task. */
static void cbw_requeue(struct task_struct *p, struct cbw_task *t, u64 *dsq, u64 *vtime, u64 *slice_ns);

/* Defined by the scheduler: calls cbw_rescue() for each of its queues. */
static __noinline int cbw_rescue_all(void);

typedef struct cbw_group __arena cbw_group_t;
typedef struct cbw_cpu __arena cbw_cpu_t;

/* Set by the loader. */
const volatile u32 nr_cpus = 1;
const volatile u64 tick_ns = 4000000;
/* For comparison only: parks every task that is queued, lock holders too. */
const volatile bool park_at_enqueue = false;
/* Cures to leave out, so that tests can show the effect of each. */
const volatile u32 without = 0;
enum cure {
	CURE_REFILL_RACE = 1 << 0,
	CURE_SECOND_SLOT = 1 << 1,
	CURE_WATCHDOG_PASS = 1 << 2,
	CURE_EXHAUST_TIMER = 1 << 3,
	CURE_SECOND_HOP = 1 << 4,
	CURE_UNPARK_FIRST = 1 << 5,
	CURE_LEAVING_CPU = 1 << 6,
	CURE_KILLED = 1 << 7,
	CURE_LATE_CHARGE = 1 << 8,
	CURE_RESCUE = 1 << 9,
	CURE_IO_WORKER = 1 << 10,
	CURE_READER = 1 << 11,
	CURE_NO_ROOM = 1 << 12,
	CURE_HELP = 1 << 13,
};
/* Most groups that users may make: below a directory of theirs, and all of them. The rest is
 * root's. */
const volatile u32 delegated_max = 1 << 13;
const volatile u32 all_delegated_max = 3 << 14;
/* Sizes that the loader compares with those of its own records. */
const volatile u32 group_size = sizeof(struct cbw_group);
const volatile u32 task_size = sizeof(struct cbw_task);
const volatile u32 cpu_size = sizeof(struct cbw_cpu);

#define CBW_SLICE_NS 5000000LL
#define CBW_KEEP_NS 1000000LL	    /* runtime kept by a CPU that the group leaves */
#define CBW_RELEASE_BATCH 64	    /* tasks that one call of a timer moves; more need help */
#define CBW_SHARE_MIN_NS 500000 /* less costs more than the way to the boundary */
#define CBW_TURN_MIN_NS 1000000 /* shortest turn of a released task */
#define CBW_DARK_QUOTAS 4 /* a group with more debt gets no runtime */
#define CBW_CONTINUE_NS 100000	    /* until the next batch */
#define CBW_EXHAUSTION_SLACK_NS 10000 /* a timer that fires early must be set again */
#define CBW_PASS_AFTER_NS 15000000000ULL /* half of the time that the watchdog allows */
#define CBW_PASS_EVERY_NS 100000000ULL
#define CBW_PASS_BATCH 256
#define CBW_PARK_DSQ (1ULL << 48)

struct refusal refusal;
/*
 * Set by the loader once the scheduler runs, and cleared before it ends. Before and after, no task
 * is throttled or charged, and parked tasks are released.
 */
u32 cbw_in_charge;
u64 cbw_limits_seq = 1;
#define CBW_CPUS_MAX 8192
u8 cbw_leaving[CBW_CPUS_MAX]; /* CPUs that are offline or go offline */
s32 cbw_going; /* number plus one of a CPU that may be about to go offline */
u64 cbw_next_dsq;
/* The group whose release needs help of other CPUs (0: none), and the id that it had. */
u64 cbw_helped, cbw_helped_id;
u64 cbw_all_delegated; /* groups below directories that users own */

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 16);
} arena SEC(".maps");

struct cbw_group_entry {
	struct bpf_timer timer;
	u64 group;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, u64);
	__type(value, struct cbw_group_entry);
} cbw_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct cbw_task);
} cbw_tasks SEC(".maps");

/* Tells the verifier that a program uses the arena. */
#define CBW_USES_ARENA() __asm__ volatile("" : : "r"(&arena))

#define cbw_read(x) (*(volatile typeof(x) *)&(x))
#define cbw_write(x, v) (*(volatile typeof(x) *)&(x) = (v))
/* An atomic operation with a result is a full barrier. */
#define cbw_barrier()                                    \
	({                                               \
		u64 ____b = 0;                           \
		__sync_fetch_and_add(&____b, 1);         \
	})

static __always_inline bool cbw_is_leaving(s32 cpu)
{
	return cbw_read(cbw_leaving[cpu & (CBW_CPUS_MAX - 1)]);
}

/*
 * The kernel does a kick in an interrupt of the CPU that asks for it. A CPU that goes offline wakes
 * other tasks (to report that it is stopped) when it has no interrupts any more. Such a kick is
 * never done, nor is all later work of that CPU, the start of timers included, and the end of the
 * scheduler waits for it for ever (seen on 7.3).
 */
static __always_inline bool cbw_may_kick(void)
{
	return (without & CURE_LEAVING_CPU) || !cbw_is_leaving(bpf_get_smp_processor_id());
}

static __always_inline void cbw_cpu_online(s32 cpu)
{
	cbw_write(cbw_leaving[cpu & (CBW_CPUS_MAX - 1)], 0);
}

/*
 * A CPU that goes offline takes no task from shared queues, but waits for all tasks of its own.
 * Tasks that may run only there, by affinity or because they cannot migrate, would wait for ever.
 * The core pushes tasks away from the CPU's own queue.
 */
static __noinline int cbw_rescue(u64 dsq)
{
	struct task_struct *p;
	s32 cpu;

	if (without & CURE_RESCUE)
		return 0;
	bpf_for_each(scx_dsq, p, dsq, 0) {
		cpu = task_cpu(p);
		if ((cbw_is_leaving(cpu) || cpu + 1 == cbw_read(cbw_going)) && scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, DSQ_LOCAL_ON | cpu, 0))
			scx_bpf_kick_cpu(cpu, 0);
	}
	return 0;
}

struct cbw_going_timer {
	struct bpf_timer timer;
	s32 cpu;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cbw_going_timer);
} cbw_going_timers SEC(".maps");

/* CPUs go offline one at a time. For an announced one the kernel calls cbw_cpu_offline(). */
static int cbw_rescue_going(void *map, u32 *key, struct cbw_going_timer *value)
{
	if (!cbw_may_kick())
		return 0;
	cbw_write(cbw_going, value->cpu + 1);
	cbw_rescue_all();
	cbw_write(cbw_going, 0);
	return 0;
}

/*
 * A CPU that goes offline stops taking from shared queues, then waits for all RCU readers, and only
 * then is the scheduler told. It waits for ever if a preempted reader is in such a queue and may
 * run nowhere else (up to 7.0). The thread that waits is the CPU's own, so a timer is started when
 * that thread falls asleep. If the CPU stays after all, no harm is done.
 */
static __always_inline void cbw_look_if_going(struct task_struct *p)
{
	struct cbw_going_timer *timer;
	u32 zero = 0;

	if (!(p->flags & PF_KTHREAD) || p->nr_cpus_allowed != 1 || (without & CURE_READER))
		return;
	if (p->comm[0] != 'c' || p->comm[1] != 'p' || p->comm[2] != 'u' || p->comm[3] != 'h' || p->comm[4] != 'p' ||
	    p->comm[5] != '/')
		return;
	timer = bpf_map_lookup_elem(&cbw_going_timers, &zero);
	if (!timer)
		return;
	timer->cpu = task_cpu(p);
	bpf_timer_start(&timer->timer, CBW_CONTINUE_NS, 0);
}

/* Later the core puts tasks on the CPU's own queue; for released tasks see cbw_release(). */
static __always_inline void cbw_cpu_offline(s32 cpu)
{
	cbw_write(cbw_leaving[cpu & (CBW_CPUS_MAX - 1)], 1);
	cbw_barrier();
	cbw_rescue_all();
}

static __always_inline cbw_group_t *cbw_group_at(u64 address)
{
	return (cbw_group_t *)address;
}

static __always_inline struct cbw_task *cbw_task(struct task_struct *p)
{
	return bpf_task_storage_get(&cbw_tasks, p, 0, 0);
}

static __always_inline s64 min_s64(s64 a, s64 b)
{
	return a < b ? a : b;
}

static __always_inline bool cbw_limited(cbw_group_t *g)
{
	return cbw_read(g->quota_ns) != CBW_UNLIMITED;
}

static __always_inline bool cbw_enforced(cbw_group_t *g)
{
	return cbw_limited(g) && cbw_read(cbw_in_charge);
}

static __always_inline cbw_cpu_t *cbw_cpu_of(cbw_group_t *g, u32 cpu)
{
	return &g->cpu[cpu];
}

/* The nearest group with a limit, g or above. Cached until a limit appears or goes. */
static __noinline u64 cbw_find_limited(u64 address)
{
	cbw_group_t *g = cbw_group_at(address), *at = g;
	u64 seq = cbw_read(cbw_limits_seq);
	int i;

	CBW_USES_ARENA();
	bpf_for(i, 0, CBW_DEPTH_MAX + 2) {
		if (!at || cbw_limited(at))
			break;
		at = cbw_group_at(at->parent);
	}
	cbw_write(g->limited, (u64)at);
	cbw_write(g->limited_seq, seq);
	return (u64)at;
}

static __always_inline cbw_group_t *cbw_nearest_limited(cbw_group_t *g)
{
	if (!g)
		return NULL;
	if (cbw_read(g->limited_seq) == cbw_read(cbw_limits_seq))
		return cbw_group_at(cbw_read(g->limited));
	return cbw_group_at(cbw_find_limited((u64)g));
}

static __always_inline cbw_group_t *cbw_next_limited(cbw_group_t *g)
{
	return cbw_nearest_limited(cbw_group_at(g->parent));
}

static __always_inline cbw_group_t *cbw_task_limit(struct cbw_task *t)
{
	cbw_group_t *g = cbw_group_at(t->group);

	/* A group can be gone before its last dying task, and its memory may be used again. */
	if (!g || g->id != t->group_id)
		return NULL;
	return cbw_nearest_limited(g);
}

/*
 * Visits every limited level from l up, as g. An open-coded iterator: the verifier then checks one
 * iteration, instead of all paths through 33 of them.
 */
#define cbw_for_each_limited(i, l, g) \
	bpf_for(i, 0, CBW_DEPTH_MAX + 1) \
		if (!((g) = (l))) \
			break; \
		else if (((l) = cbw_next_limited(g)), true)

/* The kernel sends SIGKILL to each thread that must die, by kill(), by an exec or by another's
 * exit. */
static __always_inline bool cbw_killed(struct task_struct *p)
{
	return !(without & CURE_KILLED) && (p->pending.signal.sig[0] & (1UL << (SIGKILL - 1)));
}

/*
 * Threads that the kernel makes in a process never reach the boundary. io_uring workers do their
 * task work between two requests, where they hold no more than a task at the boundary. The poller
 * of io_uring, which may search for requests for ever, does so between two looks, with the lock of
 * its polling held, as under the fair class.
 */
static __always_inline bool cbw_never_comes_by(struct task_struct *p)
{
	if ((p->flags & PF_IO_WORKER) && !(without & CURE_IO_WORKER))
		return false;
	return p->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER);
}

/* Whether p never waits at the boundary: it has none, or is exiting. */
static __always_inline bool cbw_exempt(struct task_struct *p)
{
	return (p->flags & PF_EXITING) || cbw_never_comes_by(p) || cbw_killed(p);
}

static __always_inline bool cbw_wants_out(struct cbw_task *t)
{
	return t->at_boundary || t->no_room;
}

static __noinline int cbw_start(u64 address);
static __noinline int cbw_poke(u64 address);
/* Starts the period timer if needed; returns whether it runs. */
static __always_inline bool cbw_activate(cbw_group_t *g)
{
	return cbw_read(g->timer_active) || cbw_start((u64)g);
}

/* Points at which tests hold races open (src/bpf/stretched.bpf.h). */
#ifndef CBW_TIMER_FLAGS
#define CBW_POINT_BEFORE_QUEUE(g)
#define CBW_POINT_AFTER_RELEASE(t)
#define CBW_TIMER_FLAGS BPF_F_TIMER_ABS
#endif

#include "bandwidth/pool.bpf.h"
#include "bandwidth/release.bpf.h"
#include "bandwidth/period.bpf.h"
#include "bandwidth/boundary.bpf.h"
#include "bandwidth/group.bpf.h"

#endif
