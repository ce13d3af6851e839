/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPU bandwidth control (cpu.max) for sched_ext schedulers, enforced where a task returns to user mode.
 *
 * A group out of runtime stops nobody inside the kernel: a task goes on through its system call, drops its locks, and is
 * parked on its way out. The rules are those of the fair class since 6.18 (kernel/sched/fair.c), with one pool a group from
 * which CPUs take slices; what is left over goes back, what was overrun is the group's debt, nothing expires.
 *
 * Contract. The scheduler calls, from the operation of the same name:
 *   cgroup_init (sleepable)  cbw_group_init(): an error must be returned, for what has no record here would have no limit
 *   cgroup_exit (sleepable)  cbw_group_exit()
 *   cgroup_set_bandwidth     cbw_group_set_limit()
 *   cgroup_move              cbw_task_move()
 *   init_task, exit_task     cbw_task_init() (its error must be returned), cbw_task_exit()
 *   running, tick, stopping  cbw_running(), cbw_tick(), cbw_stopping()
 *   enable, disable          cbw_enable(), cbw_disable()
 *   cpu_online, cpu_offline  cbw_cpu_online(), cbw_cpu_offline(); and kick no CPU while !cbw_may_kick()
 *   set_cpumask              cbw_set_cpumask()
 *   enqueue, first of all    cbw_enqueue(): CBW_RUN queue it as you like; CBW_HEAD it must run here and next, insert it at the
 *                            head of the local queue; CBW_PARKED it has been taken care of.
 *                            A turn of CBW_RUN should be no longer than cbw_turn_of() says
 *   init                     cbw_init()
 *   dispatch                 may extend prev's slice only if !cbw_wants_out(t)
 * and defines cbw_requeue(): where a released task goes, and cbw_rescue_all(): cbw_rescue() for each queue it made. It must
 * set SCX_OPS_ENQ_LAST, put such tasks on the local queue and kick the CPU, and set SCX_OPS_ENQ_MIGRATION_DISABLED. Direct
 * insertion from select_cpu is fine: a task that wakes up is in the kernel, and is asked for its runtime when it runs.
 *
 * Cost. A task without a limit above it: one comparison a hook. With limits: one charge a level at each tick and switch, and
 * an atomic operation on the pool a slice. Parking: two extra passes through the scheduler (see bandwidth/boundary.bpf.h).
 * Memory: a page a group (and one more for each 55 CPUs), 200 bytes a task.
 */
#ifndef CPUMAX_BANDWIDTH_BPF_H
#define CPUMAX_BANDWIDTH_BPF_H

#include "kernel.bpf.h"
#include "intf.h"

enum cbw_verdict { CBW_RUN, CBW_HEAD, CBW_PARKED };

/* Where a task that is released goes: a queue in vtime order; and for how long, at most what slice_ns says. The scheduler's. */
static void cbw_requeue(struct task_struct *p, struct cbw_task *t, u64 *dsq, u64 *vtime, u64 *slice_ns);

/* Calls cbw_rescue() for each queue of the scheduler's. */
static __noinline int cbw_rescue_all(void);

typedef struct cbw_group __arena cbw_group_t;
typedef struct cbw_cpu __arena cbw_cpu_t;

/* Set by the loader. */
const volatile u32 nr_cpus = 1;
const volatile u64 tick_ns = 4000000;
const volatile bool park_at_enqueue = false; /* for comparison only: parks whoever is queued, lock holders too */
const volatile u32 without = 0;		     /* cures to leave out, so that tests can show what they cure */
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
/* Groups that users may make: below a directory that is theirs, and all of them. Root may make the rest. */
const volatile u32 delegated_max = 1 << 13;
const volatile u32 all_delegated_max = 3 << 14;
/* So that the loader can tell whether it and this program mean the same records. */
const volatile u32 group_size = sizeof(struct cbw_group);
const volatile u32 task_size = sizeof(struct cbw_task);
const volatile u32 cpu_size = sizeof(struct cbw_cpu);

#define CBW_SLICE_NS 5000000LL
#define CBW_KEEP_NS 1000000LL	    /* kept by a CPU the group leaves */
#define CBW_RELEASE_BATCH 64	    /* tasks moved by one call of a timer; where more wait other CPUs help */
#define CBW_SHARE_MIN_NS 500000 /* less would not pay for the way to the boundary and back */
#define CBW_TURN_MIN_NS 1000000 /* of a released task */
#define CBW_DARK_QUOTAS 4 /* a group that owes more gets nothing until it owes less */
#define CBW_CONTINUE_NS 100000	    /* until the next batch */
#define CBW_EXHAUSTION_SLACK_NS 10000 /* a timer that is early has to come again */
#define CBW_PASS_AFTER_NS 15000000000ULL /* half of what the watchdog allows */
#define CBW_PASS_EVERY_NS 100000000ULL
#define CBW_PASS_BATCH 256
#define CBW_PARK_DSQ (1ULL << 48)

struct refusal refusal;
/*
 * Set by the loader when the scheduler is in charge, and cleared before it ends: what runs before and after is neither
 * throttled nor owed, and who is parked is let go.
 */
u32 cbw_in_charge;
u64 cbw_limits_seq = 1;
#define CBW_CPUS_MAX 8192
u8 cbw_leaving[CBW_CPUS_MAX]; /* CPUs that go offline or are */
s32 cbw_going; /* the number of a CPU that may be about to, and one */
u64 cbw_next_dsq;
/* The group that has more to release than one CPU should do alone, 0 for none; and whose address that was. */
u64 cbw_helped, cbw_helped_id;
u64 cbw_all_delegated; /* groups below directories that are users' */

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

/* Tells the verifier that a program uses the arena, which it otherwise would not know. */
#define CBW_USES_ARENA() __asm__ volatile("" : : "r"(&arena))

#define cbw_read(x) (*(volatile typeof(x) *)&(x))
#define cbw_write(x, v) (*(volatile typeof(x) *)&(x) = (v))
/* An atomic operation that returns a value is a full barrier. */
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
 * A kick is work that the kernel leaves to an interrupt of the CPU that asks for it. A CPU that goes offline wakes others (it
 * tells that it is stopped) when its interrupts are gone already: the work then stays undone, all later work of that CPU
 * behind it, the starting of timers too, and the end of the scheduler waits for it for ever (seen on 7.3).
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
 * A CPU that goes offline takes nothing from queues that it shares, and does not go before all tasks that are its own have.
 * Those that nobody else may run, for their affinity or because they may not migrate, would wait there for ever. From its
 * own queue the core pushes them away.
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

/* CPUs go one at a time. One that has been told comes by cbw_cpu_offline(). */
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
 * Before anybody is told that a CPU goes offline, and after it takes nothing from shared queues any more, it waits for all readers
 * of RCU: for ever, if one that was preempted as such waits there and may run nowhere else (up to 7.0). It is the CPU's own thread
 * that waits, so when that falls asleep a timer has a look. If the CPU stays after all nothing is lost.
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

/* What is enqueued from now on the core puts on the CPU's own queue; what is released, see cbw_release(). */
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

/* The nearest group with a limit, g or above. Remembered until a limit appears or goes. */
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

	/* A group can be gone before its last dying task; its memory may be another's by now. */
	if (!g || g->id != t->group_id)
		return NULL;
	return cbw_nearest_limited(g);
}

/*
 * Every limited level from l up, in g. An open-coded iterator: the verifier then looks at one round, not at 33 of them times
 * the ways through each.
 */
#define cbw_for_each_limited(i, l, g) \
	bpf_for(i, 0, CBW_DEPTH_MAX + 1) \
		if (!((g) = (l))) \
			break; \
		else if (((l) = cbw_next_limited(g)), true)

/* The kernel gives each thread that has to die the signal of its own, be it of kill(), of an exec or of another's exit. */
static __always_inline bool cbw_killed(struct task_struct *p)
{
	return !(without & CURE_KILLED) && (p->pending.signal.sig[0] & (1UL << (SIGKILL - 1)));
}

/*
 * Threads that the kernel makes in a process have no boundary. Those of io_uring do their task work between two requests, where
 * they hold no more than a task at the boundary does, and its poller, which may look for requests for ever, between two looks:
 * with the lock of its polling held, as under the fair class.
 */
static __always_inline bool cbw_never_comes_by(struct task_struct *p)
{
	if ((p->flags & PF_IO_WORKER) && !(without & CURE_IO_WORKER))
		return false;
	return p->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER);
}

/* Who never waits at the boundary: it has none, or leaves for good. */
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
/* Whether the period timer is running afterwards. */
static __always_inline bool cbw_activate(cbw_group_t *g)
{
	return cbw_read(g->timer_active) || cbw_start((u64)g);
}

/* Where tests hold races open (src/bpf/stretched.bpf.h). */
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
