/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A group's timer: refills, the first batch of a release, and passes for the kernel's watchdog.
 *
 * It runs in soft interrupts with interrupts on. The first CPU that takes from the pool arms it. It
 * fires each period, and in between while there is more to release. It stops after a period in
 * which nothing was taken, no task waits and no debt is left.
 */

/* Starts the period timer if it is not running; returns whether it runs. Pauses keep its phase. */
static __noinline int cbw_start(u64 address)
{
	cbw_group_t *g = cbw_group_at(address);
	u64 now = bpf_ktime_get_ns(), period = cbw_read(g->period_ns), next = cbw_read(g->refill_at_ns), id = g->id;
	struct cbw_group_entry *entry;

	CBW_USES_ARENA();
	if (__sync_val_compare_and_swap(&g->timer_active, 0, 1) != 0)
		return 1;
	entry = bpf_map_lookup_elem(&cbw_groups, &id);
	if (!entry || !period) {
		__sync_lock_test_and_set(&g->timer_active, 0);
		return 0;
	}
	if (next <= now) {
		next += (now - next) / period * period + period;
		cbw_write(g->refill_at_ns, next);
	}
	/* With interrupts off the kernel needs memory to start a timer. */
	if (bpf_timer_start(&entry->timer, next, CBW_TIMER_FLAGS)) {
		__sync_lock_test_and_set(&g->timer_active, 0);
		return 0;
	}
	return 1;
}

/* Makes the timer fire soon: runtime came back while tasks wait, or the limit changed. */
static __noinline int cbw_poke(u64 address)
{
	cbw_group_t *g = cbw_group_at(address);
	struct cbw_group_entry *entry;
	u64 id = g->id;

	CBW_USES_ARENA();
	entry = bpf_map_lookup_elem(&cbw_groups, &id);
	if (entry)
		bpf_timer_start(&entry->timer, bpf_ktime_get_ns() + CBW_CONTINUE_NS, CBW_TIMER_FLAGS);
	return 0;
}

/*
 * Part of a refill that pays debt: half of it, so that a long system call does not stop its
 * siblings for as many periods as it was long; from four quotas of debt on all of it, so that the
 * average use is the quota.
 */
static __always_inline s64 cbw_repay(cbw_group_t *g, s64 due)
{
	s64 debt = cbw_read(g->debt_ns), paid;

	if (debt <= 0)
		return 0;
	paid = min_s64(debt, debt > (s64)(g->quota_ns * CBW_DARK_QUOTAS) ? due : (s64)((u64)due / 2));
	__sync_fetch_and_add(&g->debt_ns, -paid);
	return paid;
}

static __always_inline s64 cbw_part(s64 pool, u64 parts, s64 least)
{
	s64 part = parts ? (u64)pool / parts : pool;

	return part < least ? least : min_s64(part, CBW_SLICE_NS);
}

static __always_inline void cbw_refill(cbw_group_t *g, u64 periods)
{
	s64 pool = 0, full = 0, cap, used, burst, paid, share, came = 0, due = g->quota_ns * periods;
	u64 parked = cbw_read(g->nr_parked);
	bool throttled = cbw_read(g->pool_ns) <= 0 && (parked || g->throttled_cpus);
	int i;

	g->nr_periods += periods;
	if (throttled)
		g->nr_throttled += periods;
	cap = g->quota_ns + g->burst_ns;
	paid = cbw_repay(g, due);
	due -= paid;
	bpf_for(i, 0, 16) {
		pool = cbw_read(g->pool_ns);
		full = min_s64(pool + due, cap);
		if (__sync_val_compare_and_swap(&g->pool_ns, pool, full) == pool) {
			came = full - pool;
			break;
		}
	}
	__sync_fetch_and_add(&g->refilled_ns, paid + came);
	/* Burst is use beyond the quota from saved runtime, never debt. */
	used = g->pool_after_refill_ns - pool;
	burst = min_s64(used, g->pool_after_refill_ns) - (s64)g->quota_ns;
	if (burst > 0) {
		g->nr_bursts++;
		g->burst_used_ns += burst;
	}
	g->pool_after_refill_ns = full;
	cbw_write(g->feed_ns, full);
	cbw_write(g->edge_ns, bpf_ktime_get_ns());
	cbw_write(g->release_took_ns, 0);
	/*
	 * Each waiting task gets a turn, if that is not too short, and each CPU a share, so that no CPU
	 * takes all. A share is no longer than a turn: what is returned of it would release tasks for
	 * which there is no runtime.
	 */
	cbw_write(g->turn_ns, cbw_part(full, parked, CBW_TURN_MIN_NS));
	share = cbw_part(full, parked < nr_cpus ? parked : nr_cpus, CBW_SHARE_MIN_NS);
	cbw_write(g->share_ns, min_s64(share, cbw_read(g->turn_ns)));
}

static __always_inline void cbw_close_throttled_time(cbw_group_t *g, u64 now)
{
	u64 cpus = __sync_lock_test_and_set(&g->throttled_cpus, 0);
	u64 since = __sync_lock_test_and_set(&g->throttled_since_sum_ns, 0);

	__sync_fetch_and_add(&g->parked_seq, 1);
	if (cpus * now > since)
		g->throttled_ns += cpus * now - since;
}

/*
 * Lets a task pass that has been parked for half of the watchdog's time. It parks again without
 * reaching user mode, keeps its place and is charged nothing; otherwise a thousand tasks under a
 * small limit would use it up. Tasks on a CPU that goes offline pass too, as that waits for them.
 *
 * Killed tasks leave for good: they never reach user mode again, and others wait for their memory
 * and their end. Nothing reports a signal to a scheduler, so this checks the first tasks of the
 * queue; when they are gone, the next.
 */
static __noinline int cbw_let_pass(u64 address)
{
	cbw_group_t *g = cbw_group_at(address);
	u64 now = bpf_ktime_get_ns(), park_dsq = g->park_dsq;
	bool rescue = false, leaves;
	struct task_struct *p;

	CBW_USES_ARENA();
	/* As plain variables the compiler would merge them with arena pointers. */
	cbw_write(g->passed_in_walk, 0);
	cbw_write(g->looked_at_in_walk, 0);
	bpf_for_each(scx_dsq, p, park_dsq, 0) {
		struct cbw_task *t = cbw_task(p);
		bool killed = cbw_killed(p);

		if (!t)
			continue;
		if (cbw_read(g->passed_in_walk) >= CBW_PASS_BATCH)
			break;
		cbw_write(g->looked_at_in_walk, g->looked_at_in_walk + 1);
		/* The queue is in this order, and no task was parked before it began to wait. */
		if (now - t->waits_since_ns < CBW_PASS_AFTER_NS && cbw_read(g->looked_at_in_walk) > CBW_PASS_BATCH)
			break;
		leaves = cbw_is_leaving(task_cpu(p));
		if (now - t->parked_at_ns < CBW_PASS_AFTER_NS && !killed && !leaves)
			continue;
		if (!cbw_unpark(t, now))
			continue;
		rescue |= leaves;
		cbw_write(g->passed_in_walk, g->passed_in_walk + 1);
		if (!killed) {
			t->passing = 1;
			g->watchdog_passes++;
		}
		cbw_let_go(BPF_FOR_EACH_ITER, p, t, CBW_SLICE_NS);
	}
	if (rescue)
		cbw_rescue_all();
	g->passes_next_ns = g->passed_in_walk >= CBW_PASS_BATCH ? now : now + CBW_PASS_EVERY_NS;
	return 0;
}

/* Nothing was taken, no task waits, no debt is left: the next refill may wait for the next user. */
static __always_inline bool cbw_idle(cbw_group_t *g)
{
	return !cbw_read(g->taken) && !cbw_read(g->nr_parked) && cbw_read(g->debt_ns) <= 0;
}

/* The timer has fired: refills if it is time, releases, and arms the timer again. */
static __always_inline void cbw_round(cbw_group_t *g, struct bpf_timer *timer, u64 now, bool release)
{
	u64 next, soon, periods = 0;
	bool more;

	next = cbw_read(g->refill_at_ns);
	if (now >= next && g->period_ns) {
		bool idle = cbw_idle(g);

		periods = (now - next) / g->period_ns + 1;
		next += periods * g->period_ns;
		cbw_write(g->refill_at_ns, next);
		cbw_write(g->taken, 0);
		cbw_refill(g, periods);
		if (idle) {
			__sync_lock_test_and_set(&g->timer_active, 0);
			/* A CPU may have taken runtime in between, and seen the timer as active. */
			if (cbw_idle(g) || __sync_val_compare_and_swap(&g->timer_active, 0, 1) != 0)
				return;
		}
	}
	if (cbw_read(g->pool_ns) > 0) {
		cbw_close_throttled_time(g, now);
		if (release && cbw_read(g->nr_parked))
			cbw_release((u64)g, false);
		cbw_ask_for_help(g);
	}
	if (release && cbw_read(g->nr_parked) && now >= g->passes_next_ns && !(without & CURE_WATCHDOG_PASS))
		cbw_let_pass((u64)g);
	/*
	 * A task that is counted as parked but was not in the queue is being queued now, by a CPU that
	 * read the pool just before the refill: look again soon, not in a period. Also look soon if there
	 * is runtime for more than a batch; and after a turn if released tasks left runtime.
	 */
	more = cbw_read(g->pool_ns) > 0 && cbw_read(g->nr_parked);
	if (without & CURE_REFILL_RACE)
		more = more && scx_bpf_dsq_nr_queued(g->park_dsq) > 0;
	soon = min_s64(cbw_read(g->feed_ns), cbw_read(g->pool_ns)) >= cbw_turn(g) ? CBW_CONTINUE_NS : CBW_SLICE_NS;
	now = bpf_ktime_get_ns();
	if (more && now + soon < next)
		next = now + soon;
	bpf_timer_start(timer, next, CBW_TIMER_FLAGS);
}

static int cbw_timer(void *map, u64 *key, struct cbw_group_entry *entry)
{
	u64 address = entry->group, now = bpf_ktime_get_ns();
	cbw_group_t *g = cbw_group_at(address);

	CBW_USES_ARENA();
	if (!g)
		return 0;
	if (!cbw_enforced(g)) {
		cbw_close_throttled_time(g, now);
		cbw_release(address, false);
		cbw_ask_for_help(g);
		if (cbw_read(g->nr_parked)) {
			bpf_timer_start(&entry->timer, now + CBW_CONTINUE_NS, CBW_TIMER_FLAGS);
			return 0;
		}
		__sync_lock_test_and_set(&g->timer_active, 0);
		if (!cbw_read(g->nr_parked) || __sync_val_compare_and_swap(&g->timer_active, 0, 1) != 0)
			return 0;
		bpf_timer_start(&entry->timer, now + CBW_CONTINUE_NS, CBW_TIMER_FLAGS);
		return 0;
	}
	cbw_round(g, &entry->timer, now, true);
	return 0;
}
