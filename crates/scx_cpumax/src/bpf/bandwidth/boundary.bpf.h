/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The boundary: how a task of a group without runtime comes to wait just before its return to user
 * mode.
 *
 * 1. Charging finds a level out of runtime. Task work is scheduled on the running task, which goes
 *    on in kernel mode for as long as it has to.
 * 2. On its way to user mode the task runs cbw_boundary(). If it is still throttled, it is marked
 *    and its CPU is kicked, which preempts it right there.
 * 3. First hop: BPF callbacks run with migration disabled. A task parked like that could not change
 *    its affinity, nor leave a CPU that goes offline. So cbw_enqueue() sends it back to the head of
 *    the local queue, each time it comes: up to 6.18 the core enqueues it again at once, when it
 *    notes that the task may not migrate.
 * 4. Second hop: when the task enables migration again, the core calls set_cpumask, which kicks
 * once
 *    more. cbw_enqueue() now finds the mark and no obstacle, and parks the task.
 *
 * The mark means that the task holds nothing. It is cleared at the first enqueue that could have
 * parked, and when the task sleeps or exits. The kernel's slot for task work is busy until the
 * callback has returned, which is after the release. So there are two slots, used in turn. A task
 * without room for them is stopped in another way, see cbw_request().
 */

struct cbw_work {
	struct bpf_task_work work;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17); /* set by the loader */
	__type(key, u64);
	__type(value, struct cbw_work);
} cbw_work_a SEC(".maps"), cbw_work_b SEC(".maps");

struct cbw_cpu_timer {
	struct bpf_timer timer;
	u64 at_ns; /* when it fires, 0 if it is not set */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cbw_cpu_timer);
} cbw_cpu_timers SEC(".maps");

/* Starts the timer, unless it fires earlier anyway: an early timer looks again by itself. */
static __always_inline void cbw_start_exhaustion(struct cbw_cpu_timer *timer, u64 now, s64 left)
{
	u64 at = now + (left > 0 ? left : 0) + CBW_EXHAUSTION_SLACK_NS;

	if (timer->at_ns > now && timer->at_ns <= at)
		return;
	timer->at_ns = at;
	bpf_timer_start(&timer->timer, at, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

/* Time left of a short turn; the core checks slices only at ticks. */
static __always_inline s64 cbw_turn_left(struct cbw_task *t, u64 now)
{
	if (!t->turn_ends_ns)
		return tick_ns * 2;
	return t->turn_ends_ns - t->exec_ns - (now - t->charged_at_ns);
}

/* t runs after a charge: arms the timer if the CPU uses up its runtime before the next tick. */
static __always_inline void cbw_arm_exhaustion(struct cbw_task *t, cbw_group_t *l, u32 cpu)
{
	struct cbw_cpu_timer *timer;
	u64 now = bpf_ktime_get_ns();
	u32 key = cpu;
	s64 left;

	if ((without & CURE_EXHAUST_TIMER) || cpu != bpf_get_smp_processor_id())
		return;
	left = min_s64(cbw_lasts((u64)l, cpu, now - t->charged_at_ns, false), cbw_turn_left(t, now));
	if (left >= tick_ns)
		return;
	timer = bpf_map_lookup_elem(&cbw_cpu_timers, &key);
	if (timer)
		cbw_start_exhaustion(timer, now, left);
}

/* Runs in the task's context, on its way to user mode. */
static int cbw_boundary(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct cbw_task *t = cbw_task(p);
	u32 cpu = bpf_get_smp_processor_id();
	cbw_group_t *l;
	u64 now;

	CBW_USES_ARENA();
	if (!t)
		return 0;
	t->requested = 0;
	t->boundary_visits++;
	if (cbw_exempt(p) || !cbw_read(cbw_in_charge) || !cbw_may_kick())
		return 0;
	l = cbw_task_limit(t);
	if (!l)
		return 0;
	now = bpf_ktime_get_ns();
	/* Counts the time since the last charge, which is charged only when the task is stopped. */
	if (cbw_left(l, cpu) > (s64)(now - t->charged_at_ns)) {
		cbw_arm_exhaustion(t, l, cpu);
		return 0;
	}
	t->visited_at_ns = now;
	t->hopped = 0;
	t->at_boundary = 1;
	scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
	return 0;
}

static __always_inline int cbw_schedule_work(struct task_struct *p, struct cbw_work *w, bool first)
{
	if (bpf_ksym_exists(bpf_task_work_schedule_resume)) {
		if (first)
			return bpf_task_work_schedule_resume(p, &w->work, &cbw_work_a, cbw_boundary);
		return bpf_task_work_schedule_resume(p, &w->work, &cbw_work_b, cbw_boundary);
	}
	if (first)
		return bpf_task_work_schedule_resume_impl(p, &w->work, &cbw_work_a, cbw_boundary, NULL);
	return bpf_task_work_schedule_resume_impl(p, &w->work, &cbw_work_b, cbw_boundary, NULL);
}

/* The slot is allocated when first needed, or at fork into a group with a limit. */
static __always_inline struct cbw_work *cbw_work_of(struct task_struct *p, bool first)
{
	struct cbw_work *w, none = {};
	u64 key = (u64)p;

	if (first) {
		w = bpf_map_lookup_elem(&cbw_work_a, &key);
		if (w)
			return w;
		bpf_map_update_elem(&cbw_work_a, &key, &none, BPF_NOEXIST);
		return bpf_map_lookup_elem(&cbw_work_a, &key);
	}
	w = bpf_map_lookup_elem(&cbw_work_b, &key);
	if (w)
		return w;
	bpf_map_update_elem(&cbw_work_b, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&cbw_work_b, &key);
}

/* 0, or an error: -EBUSY while this slot's work is pending or its callback has not returned. */
static __always_inline int cbw_try_slot(struct task_struct *p, bool first)
{
	struct cbw_work *w = cbw_work_of(p, first);

	return w ? cbw_schedule_work(p, w, first) : -ENOMEM;
}

/*
 * Asks p, which runs or is about to, to visit the boundary. A task without room for that is parked
 * as soon as it is queued without having slept, even in the kernel, where it may hold locks: no
 * task runs on for want of memory. A running task is kicked for that now, one that is about to run
 * after a moment: a task that cannot be parked would never get any further.
 */
static __always_inline void cbw_request(struct task_struct *p, struct cbw_task *t, cbw_group_t *l, bool runs)
{
	struct cbw_cpu_timer *timer;
	int one, other = -EBUSY;
	u32 cpu = bpf_get_smp_processor_id();

	if (park_at_enqueue || t->requested || cbw_exempt(p))
		return;
	t->requested = 1;
	if (t->slot & 1) {
		one = cbw_try_slot(p, false);
		if (one)
			other = cbw_try_slot(p, true);
	} else {
		one = cbw_try_slot(p, true);
		if (one && !(without & CURE_SECOND_SLOT))
			other = cbw_try_slot(p, false);
	}
	if (!(without & CURE_SECOND_SLOT))
		t->slot++;
	if (!one || !other)
		return;
	/* The next tick asks again. */
	t->requested = 0;
	l->refused++;
	if (one == -EBUSY || other == -EBUSY || (without & CURE_NO_ROOM) || !cbw_may_kick())
		return;
	t->no_room = 1;
	timer = bpf_map_lookup_elem(&cbw_cpu_timers, &cpu);
	if (runs)
		scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
	else if (timer)
		cbw_start_exhaustion(timer, bpf_ktime_get_ns(), 0);
}

/* Fires when the running task should have used up the runtime of its CPU. */
static int cbw_exhausted(void *map, u32 *key, struct cbw_cpu_timer *value)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct cbw_task *t = cbw_task(p);
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();
	cbw_group_t *l;
	s64 left;

	CBW_USES_ARENA();
	value->at_ns = 0;
	if (!t || !t->charged_at_ns || t->requested)
		return 0;
	l = cbw_task_limit(t);
	if (!l)
		return 0;
	left = cbw_lasts((u64)l, cpu, now - t->charged_at_ns, true);
	if (left <= 0) {
		cbw_request(p, t, l, true);
		return 0;
	}
	if (cbw_turn_left(t, now) <= 0) {
		t->turn_ends_ns = 0;
		if (cbw_may_kick())
			scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
	}
	left = min_s64(left, cbw_turn_left(t, now));
	if (left < tick_ns)
		cbw_start_exhaustion(value, now, left);
	return 0;
}


/*
 * Charges the time that p ran since it was stopped: for a task that falls asleep, the core counts
 * on until the CPU has chosen the next one.
 */
static __always_inline void cbw_running(struct task_struct *p, struct cbw_task *t)
{
	u64 exec = p->se.sum_exec_runtime, late = cbw_read(cbw_in_charge) ? exec - t->exec_ns : 0;
	cbw_group_t *l, *at, *g;
	bool ok = true;
	u32 cpu;
	int i;

	cbw_offer_help();
	t->exec_ns = exec;
	if (without & CURE_LATE_CHARGE)
		late = 0;
	if (t->parked)
		cbw_unpark(t, bpf_ktime_get_ns());
	l = cbw_task_limit(t);
	if (!l)
		return;
	cpu = task_cpu(p);
	t->charged_at_ns = bpf_ktime_get_ns();
	at = l;
	cbw_for_each_limited(i, at, g) {
		cbw_cpu_t *c = cbw_cpu_of(g, cpu);

		cbw_cpu_follow_limit(g, c);
		c->usage_ns += late;
		c->rem_ns -= late;
		if (!cbw_cpu_fill(g, c))
			ok = false;
	}
	if (!ok) {
		cbw_request(p, t, l, false);
		return;
	}
	/* It has its turn now. */
	t->waits_since_ns = 0;
	t->passing = 0;
	t->turn_ends_ns = t->turn_ns ? t->exec_ns + t->turn_ns : 0;
	t->turn_ns = 0;
	cbw_arm_exhaustion(t, l, cpu);
}

static __always_inline void cbw_tick(struct task_struct *p, struct cbw_task *t)
{
	cbw_group_t *l = cbw_task_limit(t);
	u32 cpu;

	cbw_offer_help();
	if (!l)
		return;
	cpu = task_cpu(p);
	if (!cbw_charge(p, t, l, cpu))
		cbw_request(p, t, l, true);
	else
		cbw_arm_exhaustion(t, l, cpu);
}

static __always_inline void cbw_stopping(struct task_struct *p, struct cbw_task *t, bool runnable)
{
	cbw_group_t *l = cbw_task_limit(t);
	u32 cpu;

	if (!runnable)
		cbw_look_if_going(p);
	/*
	 * A task that has slept may hold anything when it wakes up. Not being runnable is not enough: the
	 * core dequeues a task for a moment to change it, for example to let it migrate.
	 */
	if (!runnable && p->__state) {
		t->at_boundary = 0;
		t->no_room = 0;
		t->waits_since_ns = 0;
		t->passing = 0;
	}
	if (!l) {
		t->exec_ns = p->se.sum_exec_runtime;
		return;
	}
	cpu = task_cpu(p);
	cbw_charge(p, t, l, cpu);
	t->charged_at_ns = 0;
	cbw_give_back(l, cpu);
}

/*
 * BPF callbacks, enqueue too, run with migration disabled. That counts once if p is the current
 * task, and twice if cpu_release enqueues p again.
 */
static __always_inline bool cbw_cannot_migrate(struct task_struct *p, u64 enq_flags)
{
	u32 ours = p == bpf_get_current_task_btf();

	if (ours && (enq_flags & ENQ_REENQ))
		ours++;
	return p->migration_disabled > ours;
}

static __always_inline bool cbw_park(struct task_struct *p, struct cbw_task *t, cbw_group_t *l, u32 cpu, bool no_room,
				     u64 enq_flags)
{
	cbw_group_t *g = cbw_group_at(cbw_where_to_wait((u64)l, cpu)), *at;
	u64 now, seq;
	int i;

	if (!g)
		return false;
	/* Count first, then read the pool again: either this sees the refill, or the refill this
	 * count. */
	__sync_fetch_and_add(&g->nr_parked, 1);
	if (!cbw_out(g, cpu) && !(without & CURE_REFILL_RACE)) {
		__sync_fetch_and_add(&g->nr_parked, -1);
		return false;
	}
	/* A timer that stops reads the count once more afterwards. Without a timer no task may
	 * wait. */
	if (!cbw_activate(g)) {
		__sync_fetch_and_add(&g->nr_parked, -1);
		return false;
	}
	now = bpf_ktime_get_ns();
	CBW_POINT_BEFORE_QUEUE(g);
	t->parked_at_ns = now;
	if (!t->waits_since_ns)
		t->waits_since_ns = now;
	t->passing = 0;
	t->parked = (u64)g;
	t->parks++;
	if (t->visited_at_ns)
		t->boundary_ns += now - t->visited_at_ns;
	t->visited_at_ns = 0;
	__sync_fetch_and_add(&g->parks, 1);
	if (no_room)
		__sync_fetch_and_add(&g->parks_queued, 1);
	cbw_for_each_limited(i, l, at) {
		cbw_cpu_t *c = cbw_cpu_of(at, cpu);

		seq = cbw_read(at->parked_seq) + 1;
		if (cbw_read(at->pool_ns) <= 0 && c->parked_seq != seq) {
			c->parked_seq = seq;
			__sync_fetch_and_add(&at->throttled_since_sum_ns, now);
			__sync_fetch_and_add(&at->throttled_cpus, 1);
		}
	}
	scx_bpf_dsq_insert_vtime(p, g->park_dsq, CBW_SLICE_NS, t->waits_since_ns, enq_flags);
	return true;
}

static __always_inline enum cbw_verdict cbw_enqueue(struct task_struct *p, struct cbw_task *t, u64 enq_flags)
{
	bool was_parked = t->parked, no_room = t->no_room, stuck;
	cbw_group_t *l;

	if (was_parked) /* dequeued to change its affinity, priority or group */
		cbw_unpark(t, bpf_ktime_get_ns());
	if (!t->at_boundary && !t->no_room && !was_parked && !park_at_enqueue)
		return CBW_RUN;
	/* A task parked without a second hop waits on as it was. */
	stuck = cbw_cannot_migrate(p, enq_flags) && !was_parked && !(without & CURE_SECOND_HOP);
	if (t->at_boundary && stuck) {
		t->hops += !t->hopped;
		t->hopped = 1;
		return CBW_HEAD;
	}
	t->at_boundary = 0;
	t->no_room = 0;
	if (cbw_exempt(p) || stuck)
		return CBW_RUN;
	l = cbw_task_limit(t);
	if (!l || !cbw_park(p, t, l, task_cpu(p), no_room, enq_flags))
		return CBW_RUN;
	return CBW_PARKED;
}

/* The longest turn: no longer than that of released tasks while others of the group wait. */
static __always_inline u64 cbw_turn_of(struct cbw_task *t, u64 ns)
{
	cbw_group_t *l = cbw_task_limit(t);

	t->turn_ns = 0;
	if (!l || !cbw_read(l->nr_parked) || cbw_turn(l) >= (s64)ns)
		return ns;
	t->turn_ns = cbw_turn(l);
	return t->turn_ns;
}

static __always_inline void cbw_set_cpumask(struct task_struct *p)
{
	struct cbw_task *t;

	if (p != bpf_get_current_task_btf())
		return;
	t = cbw_task(p);
	if (!t || !t->at_boundary || !t->hopped)
		return;
	if (cbw_may_kick())
		scx_bpf_kick_cpu(bpf_get_smp_processor_id(), KICK_PREEMPT);
	else
		t->at_boundary = 0;
}

/* Time in another scheduling class is not charged. */
static __always_inline void cbw_enable(struct task_struct *p, struct cbw_task *t)
{
	t->exec_ns = p->se.sum_exec_runtime;
}

static __always_inline void cbw_disable(struct cbw_task *t)
{
	if (t->parked)
		cbw_unpark(t, bpf_ktime_get_ns());
	t->at_boundary = 0;
	t->no_room = 0;
}
