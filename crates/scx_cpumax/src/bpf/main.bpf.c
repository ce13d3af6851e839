/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_cpumax: a weighted, hierarchical scheduler that enforces cpu.max where tasks return to user
 * mode.
 *
 * Each last-level cache has one queue, ordered by virtual time. Groups, not tasks, get turns: each
 * queued task gets its group's tag, and advances it by the length of the turn divided by the
 * group's share of the machine. So a group's share does not depend on its number of tasks, and its
 * tasks take turns. Shares follow cpu.weight down the hierarchy, among siblings that ran recently.
 * Bandwidth control is in bandwidth.bpf.h.
 */
#include "kernel.bpf.h"
#include "stretched.bpf.h"

char _license[] SEC("license") = "GPL";

/* Set by the loader. */
const volatile u64 slice_ns = 5000000;
const volatile u32 nr_llcs = 1;
const volatile u16 llc_of_cpu[8192];

struct exit_record exit_record;

#define SHARE_ALL (1 << 20)
#define WEIGHT_DEFAULT 100
/* Of enum scx_ops_flags. Initialisers cannot be relocated, but these two never changed their
 * values. */
#define OPS_ENQ_LAST (1ULL << 1)
#define OPS_ENQ_MIGRATION_DISABLED (1ULL << 4)
#define EPOCH_SHIFT 26 /* ns: 67 ms */
#define PREEMPT_LAG_NS 500000
#define DUMP_GROUPS_MAX 64
/* Most virtual time of a turn ahead: the kernel ejects a scheduler under which a task waits for
 * 30 s. */
#define AHEAD_MAX_NS 4000000000ULL

/* Virtual time of each queue, and of the task that runs on each CPU. */
u64 llc_now[LLC_MAX];
u64 epoch; /* advanced by ticks, which come more often than epochs */
u64 cpu_vtime[8192];

static __always_inline u32 llc_of(s32 cpu)
{
	return llc_of_cpu[cpu & 8191] & (LLC_MAX - 1);
}

/* Computes a share, once an epoch: a running group adds its weight to its parent, level by
 * level. */
static __noinline int renew_share(u64 address, u64 epoch)
{
	cbw_group_t *g = cbw_group_at(address), *parent, *chain;
	u64 share, sum;
	int i;

	CBW_USES_ARENA();
	chain = g;
	bpf_for(i, 0, CBW_DEPTH_MAX + 1) {
		parent = cbw_group_at(chain->parent);
		if (!parent || chain->share_epoch == (u32)epoch)
			break;
		if (parent->sum_epoch != epoch) {
			parent->sum_weight_old = parent->sum_epoch + 1 == epoch ? parent->sum_weight : 0;
			parent->sum_weight = 0;
			parent->sum_epoch = epoch;
		}
		__sync_fetch_and_add(&parent->sum_weight, chain->weight);
		chain->share_epoch = epoch;
		chain = parent;
	}
	share = SHARE_ALL;
	chain = g;
	bpf_for(i, 0, CBW_DEPTH_MAX + 1) {
		parent = cbw_group_at(chain->parent);
		if (!parent)
			break;
		sum = parent->sum_weight > parent->sum_weight_old ? parent->sum_weight : parent->sum_weight_old;
		if (sum > chain->weight)
			share = share * chain->weight / sum;
		chain = parent;
	}
	cbw_write(g->share, share ? share : 1);
	return 0;
}

static __always_inline u64 share_of(cbw_group_t *g)
{
	u64 now = cbw_read(epoch);

	if (g->share_epoch != (u32)now || !g->share)
		renew_share((u64)g, now);
	return g->share ? g->share : 1;
}

/*
 * Time that p runs while no task waits costs its group nothing. The queue's virtual time stands
 * still meanwhile: a group that paid would fall behind groups that slept, and its tasks would wait
 * for whole turns of theirs at each wakeup.
 */
static __always_inline void forget_if_alone(struct task_struct *p, struct cbw_task *t)
{
	if (!scx_bpf_dsq_nr_queued(llc_of(task_cpu(p))))
		t->ran_from_ns = p->se.sum_exec_runtime;
}

/* Refunds a turn that was paid for and not used, because p was taken off the queue. */
static __always_inline void refund_turn(cbw_group_t *g, struct cbw_task *t)
{
	if (t->prepaid)
		g->tag[t->queued_llc & (LLC_MAX - 1)] -= t->prepaid;
	t->prepaid = 0;
}

static __always_inline u64 turn_ns(struct task_struct *p)
{
	u64 ns = slice_ns * p->scx.weight / WEIGHT_DEFAULT;

	if (ns < slice_ns / 5)
		return slice_ns / 5;
	return ns > slice_ns * 4 ? slice_ns * 4 : ns;
}

/*
 * Takes the next turn of p's group on the queue of `llc`. Returns its virtual time, at most
 * `credit` behind that of the queue, however long the group has not run.
 */
static __always_inline u64 take_turn(struct cbw_task *t, u32 llc, u64 turn, u64 credit)
{
	cbw_group_t *g = cbw_group_at(t->group);
	u64 now = llc_now[llc], vtime, cost;

	if (!g || g->id != t->group_id)
		return now;
	refund_turn(g, t);
	cost = turn * SHARE_ALL / share_of(g);
	vtime = g->tag[llc];
	if ((s64)(vtime - (now - credit)) < 0)
		vtime = now - credit;
	else if ((s64)(vtime - now) > (s64)AHEAD_MAX_NS)
		vtime = now + AHEAD_MAX_NS;
	g->tag[llc] = vtime + cost;
	t->prepaid = cost;
	t->queued_llc = llc;
	return vtime;
}

/* A throttled group did not sleep and has no credit: tasks that woke before the release go
 * first. */
static void cbw_requeue(struct task_struct *p, struct cbw_task *t, u64 *dsq, u64 *vtime, u64 *slice)
{
	u32 llc = llc_of(task_cpu(p));

	*dsq = llc;
	*slice = min_s64(*slice, turn_ns(p));
	*vtime = take_turn(t, llc, *slice, 0);
}

static __noinline int cbw_rescue_all(void)
{
	int i;

	bpf_for(i, 0, nr_llcs)
		cbw_rescue(i);
	return 0;
}

/* For tests: a kick at every place where one is possible. */
static __always_inline void kick_for_test(s32 cpu)
{
	if ((stretched & RACE_KICK_AND_LEAVE) && cbw_may_kick())
		scx_bpf_kick_cpu(cpu, 0);
}

SEC("struct_ops/cpumax_select_cpu")
s32 BPF_PROG(cpumax_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	kick_for_test(cpu);
	if (idle && !park_at_enqueue)
		scx_bpf_dsq_insert(p, DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

/*
 * Puts p on its CPU's own queue. The last runnable task comes here when the core has chosen to go
 * idle. Up to 7.0 it does so although p is queued now, and looks again at the next interrupt.
 */
static __always_inline void insert_local(struct task_struct *p, s32 cpu, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, DSQ_LOCAL, slice_ns, enq_flags);
	if ((enq_flags & ENQ_LAST) && cbw_may_kick())
		scx_bpf_kick_cpu(cpu, 0);
}

SEC("struct_ops/cpumax_enqueue")
void BPF_PROG(cpumax_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct cbw_task *t = cbw_task(p);
	s32 cpu = task_cpu(p), idle;
	u32 llc = llc_of(cpu);
	u64 vtime, turn;

	CBW_USES_ARENA();
	kick_for_test(cpu);
	if (!t) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	switch (cbw_enqueue(p, t, enq_flags)) {
	case CBW_HEAD:
		insert_local(p, cpu, enq_flags | ENQ_HEAD);
		return;
	case CBW_PARKED:
		return;
	case CBW_RUN:
		break;
	}
	/*
	 * The last task, or one that cannot go elsewhere, goes to this CPU's own queue. So does a kernel
	 * thread that wakes up. One that runs on and on, as ksoftirqd can, takes turns with the others:
	 * tasks that may run only here would never get one.
	 */
	if ((enq_flags & ENQ_LAST) || cbw_cannot_migrate(p, enq_flags) ||
	    ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1 && (enq_flags & ENQ_WAKEUP))) {
		insert_local(p, cpu, enq_flags);
		return;
	}
	turn = cbw_turn_of(t, turn_ns(p));
	vtime = take_turn(t, llc, turn, slice_ns);
	scx_bpf_dsq_insert_vtime(p, llc, turn, vtime, enq_flags);
	if (!cbw_may_kick())
		return;
	/* For a waking task select_cpu has just found no idle CPU. */
	idle = (enq_flags & ENQ_CPU_SELECTED) ? -1 : scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, KICK_IDLE);
	else if ((enq_flags & ENQ_WAKEUP) && (s64)(cpu_vtime[cpu & 8191] - vtime) > PREEMPT_LAG_NS)
		scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
}

SEC("struct_ops/cpumax_dispatch")
void BPF_PROG(cpumax_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 own = llc_of(cpu), i;
	struct cbw_task *t;

	if (scx_bpf_dsq_move_to_local(own))
		return;
	if (nr_llcs > 1) {
		bpf_for(i, 1, nr_llcs) {
			if (scx_bpf_dsq_move_to_local((own + i) % nr_llcs))
				return;
		}
	}
	/* No other task: prev goes on without enqueue, unless it is to leave. */
	if (prev && (prev->scx.flags & TASK_QUEUED)) {
		t = cbw_task(prev);
		if (!t || cbw_wants_out(t) || park_at_enqueue)
			return;
		if (bpf_ksym_exists(scx_bpf_task_set_slice))
			scx_bpf_task_set_slice(prev, slice_ns);
		else
			prev->scx.slice = slice_ns;
	}
}

SEC("struct_ops/cpumax_tick")
void BPF_PROG(cpumax_tick, struct task_struct *p)
{
	struct cbw_task *t = cbw_task(p);

	CBW_USES_ARENA();
	cbw_write(epoch, bpf_ktime_get_ns() >> EPOCH_SHIFT);
	if (!t)
		return;
	forget_if_alone(p, t);
	cbw_tick(p, t);
}

SEC("struct_ops/cpumax_running")
void BPF_PROG(cpumax_running, struct task_struct *p)
{
	struct cbw_task *t = cbw_task(p);
	s32 cpu = task_cpu(p);
	u64 vtime = p->scx.dsq_vtime;
	u32 llc = llc_of(cpu);

	CBW_USES_ARENA();
	if (!t)
		return;
	cbw_running(p, t);
	t->ran_from_ns = t->exec_ns;
	if (t->prepaid && (s64)(vtime - llc_now[llc]) > 0)
		llc_now[llc] = vtime;
	cpu_vtime[cpu & 8191] = llc_now[llc];
}

SEC("struct_ops/cpumax_stopping")
void BPF_PROG(cpumax_stopping, struct task_struct *p, bool runnable)
{
	struct cbw_task *t = cbw_task(p);
	cbw_group_t *g;
	u64 used;

	CBW_USES_ARENA();
	if (!t)
		return;
	cbw_stopping(p, t, runnable);
	g = cbw_group_at(t->group);
	if (!g || g->id != t->group_id)
		return;
	/* The turn costs the time that was run. */
	forget_if_alone(p, t);
	used = p->se.sum_exec_runtime - t->ran_from_ns;
	if (!t->prepaid)
		t->queued_llc = llc_of(task_cpu(p));
	g->tag[t->queued_llc & (LLC_MAX - 1)] += used * SHARE_ALL / (g->share ? g->share : SHARE_ALL) - t->prepaid;
	t->prepaid = 0;
}

/* p comes from another scheduling class. */
SEC("struct_ops/cpumax_enable")
void BPF_PROG(cpumax_enable, struct task_struct *p)
{
	struct cbw_task *t = cbw_task(p);

	if (t)
		cbw_enable(p, t);
}

/* p goes to another scheduling class. */
SEC("struct_ops/cpumax_disable")
void BPF_PROG(cpumax_disable, struct task_struct *p)
{
	struct cbw_task *t = cbw_task(p);

	CBW_USES_ARENA();
	if (t)
		cbw_disable(t);
}

SEC("struct_ops/cpumax_set_cpumask")
void BPF_PROG(cpumax_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	cbw_set_cpumask(p);
}

SEC("struct_ops.s/cpumax_init_task")
s32 BPF_PROG(cpumax_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return cbw_task_init(p, args->cgroup->kn->id) ? 0 : -ENOMEM;
}

SEC("struct_ops/cpumax_exit_task")
void BPF_PROG(cpumax_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	cbw_task_exit(p);
}

SEC("struct_ops.s/cpumax_cgroup_init")
s32 BPF_PROG(cpumax_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	struct cgroup *parent;
	cbw_group_t *g;
	u64 parent_id = 0;
	s32 err;

	if (cgrp->level > 0) {
		parent = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
		if (!parent)
			return -ENOMEM;
		parent_id = parent->kn->id;
		bpf_cgroup_release(parent);
	}
	err = cbw_group_init(cgrp, parent_id, args->bw_period_us, args->bw_quota_us, args->bw_burst_us);
	if (err)
		return err;
	g = cbw_group_by_id(cgrp->kn->id);
	if (g)
		g->weight = args->weight;
	return 0;
}

SEC("struct_ops.s/cpumax_cgroup_exit")
void BPF_PROG(cpumax_cgroup_exit, struct cgroup *cgrp)
{
	cbw_group_exit(cgrp);
}

SEC("struct_ops/cpumax_cgroup_move")
void BPF_PROG(cpumax_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct cbw_task *t = cbw_task(p);
	cbw_group_t *g;

	CBW_USES_ARENA();
	if (!t)
		return;
	g = cbw_group_at(t->group);
	if (g && g->id == t->group_id)
		refund_turn(g, t);
	t->prepaid = 0;
	cbw_task_move(p, to->kn->id);
}

SEC("struct_ops/cpumax_cgroup_set_weight")
void BPF_PROG(cpumax_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	cbw_group_t *g = cbw_group_by_id(cgrp->kn->id);

	CBW_USES_ARENA();
	if (g)
		g->weight = weight;
}

SEC("struct_ops/cpumax_cgroup_set_bandwidth")
void BPF_PROG(cpumax_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	cbw_group_set_limit(cgrp, period_us, quota_us, burst_us);
}

/* Without these two operations the kernel would unload the scheduler at CPU hotplug. */
SEC("struct_ops/cpumax_cpu_online")
void BPF_PROG(cpumax_cpu_online, s32 cpu)
{
	cbw_cpu_online(cpu);
}

SEC("struct_ops/cpumax_cpu_offline")
void BPF_PROG(cpumax_cpu_offline, s32 cpu)
{
	cbw_cpu_offline(cpu);
}

/*
 * A real-time task takes the CPU for any time: tasks queued there go to other CPUs. The loader
 * omits this operation where the kernel has a server for such tasks (7.0), as it is deprecated
 * there.
 */
SEC("struct_ops/cpumax_cpu_release")
void BPF_PROG(cpumax_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	if (args->reason != CPU_PREEMPT_STOP)
		scx_bpf_reenqueue_local();
}

struct dump_count {
	u32 shown;
	u32 left_out;
};

static int dump_group(void *map, u64 *key, struct cbw_group_entry *entry, struct dump_count *count)
{
	cbw_group_t *g = cbw_group_at(entry->group);

	CBW_USES_ARENA();
	if (!g || !cbw_limited(g))
		return 0;
	if (cbw_idle(g) || count->shown >= DUMP_GROUPS_MAX) {
		count->left_out++;
		return 0;
	}
	count->shown++;
	dump("group=%llu level=%u quota=%llu period=%llu burst=%llu pool=%lld debt=%lld parked=%llu\n", g->id, g->level,
	     g->quota_ns, g->period_ns, g->burst_ns, g->pool_ns, g->debt_ns, g->nr_parked);
	return 0;
}

/* Dumps groups whose limits matter now; parked tasks are dumped as tasks. A dump has little
 * room. */
SEC("struct_ops/cpumax_dump")
void BPF_PROG(cpumax_dump, struct scx_dump_ctx *dump_ctx)
{
	struct dump_count count = {};

	CBW_USES_ARENA();
	dump("limits were changed %llu times\n", cbw_limits_seq - 1);
	bpf_for_each_map_elem(&cbw_groups, dump_group, &count, 0);
	dump("%u groups with limits in use, %u more with limits\n", count.shown, count.left_out);
}

SEC("struct_ops/cpumax_dump_task")
void BPF_PROG(cpumax_dump_task, struct scx_dump_ctx *dump_ctx, struct task_struct *p)
{
	struct cbw_task *t = cbw_task(p);
	cbw_group_t *g;

	CBW_USES_ARENA();
	if (!t)
		return;
	dump("    group=%llu requested=%u at_boundary=%u parked_at=%llu parks=%llu\n", t->group_id, t->requested,
	     t->at_boundary, t->parked ? t->parked_at_ns : 0, t->parks);
	g = cbw_group_at(t->parked);
	if (g)
		dump("    waits for group=%llu quota=%llu period=%llu pool=%lld debt=%lld parked=%llu\n", g->id, g->quota_ns,
		     g->period_ns, g->pool_ns, g->debt_ns, g->nr_parked);
}

SEC("struct_ops.s/cpumax_init")
s32 BPF_PROG(cpumax_init)
{
	s32 err;
	u32 i;

	bpf_for(i, 0, nr_llcs) {
		err = scx_bpf_create_dsq(i, -1);
		if (err)
			return err;
	}
	return cbw_init();
}

SEC("struct_ops.s/cpumax_exit")
void BPF_PROG(cpumax_exit, struct scx_exit_info *info)
{
	exit_record.kind = info->kind;
	exit_record.code = info->exit_code;
	bpf_probe_read_kernel_str(exit_record.reason, sizeof(exit_record.reason), info->reason);
	bpf_probe_read_kernel_str(exit_record.message, sizeof(exit_record.message), info->msg);
	bpf_probe_read_kernel_str(exit_record.dump, sizeof(exit_record.dump), info->dump);
	__sync_fetch_and_add(&exit_record.recorded, 1);
}

SEC(".struct_ops.link")
struct sched_ext_ops cpumax_ops = {
	.select_cpu = (void *)cpumax_select_cpu,
	.enqueue = (void *)cpumax_enqueue,
	.dispatch = (void *)cpumax_dispatch,
	.tick = (void *)cpumax_tick,
	.running = (void *)cpumax_running,
	.stopping = (void *)cpumax_stopping,
	.enable = (void *)cpumax_enable,
	.disable = (void *)cpumax_disable,
	.set_cpumask = (void *)cpumax_set_cpumask,
	.init_task = (void *)cpumax_init_task,
	.exit_task = (void *)cpumax_exit_task,
	.cgroup_init = (void *)cpumax_cgroup_init,
	.cgroup_exit = (void *)cpumax_cgroup_exit,
	.cgroup_move = (void *)cpumax_cgroup_move,
	.cgroup_set_weight = (void *)cpumax_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)cpumax_cgroup_set_bandwidth,
	.cpu_online = (void *)cpumax_cpu_online,
	.cpu_offline = (void *)cpumax_cpu_offline,
	.cpu_release = (void *)cpumax_cpu_release,
	.dump = (void *)cpumax_dump,
	.dump_task = (void *)cpumax_dump_task,
	.init = (void *)cpumax_init,
	.exit = (void *)cpumax_exit,
	.flags = OPS_ENQ_LAST | OPS_ENQ_MIGRATION_DISABLED,
	.timeout_ms = 30000,
	.exit_dump_len = 32768,
	.name = "cpumax",
};
