/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A group's timer: refill, release of parked tasks, and the pass that keeps the watchdog quiet.
 *
 * It runs in soft interrupt context with interrupts on. It is armed by the first who takes from the pool, goes off each
 * period, in between when there is more to release, and stops after a period in which nobody took and nobody waits.
 */

/* Where the window after a release is held open the timer stays on the CPU that started it, for the task is on another. */
#define CBW_TIMER_FLAGS (BPF_F_TIMER_ABS | ((stretched & RACE_RELEASE_AND_PARK) ? BPF_F_TIMER_CPU_PIN : 0))

/* Starts the period timer if it is not running; says whether it is. The phase is kept across pauses. */
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

/* Has the timer look soon: runtime came back while somebody waits, or the limit changed. */
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

static __always_inline void cbw_refill(cbw_group_t *g, u64 periods)
{
	s64 pool = 0, full = 0, cap, used, burst;
	bool throttled = cbw_read(g->pool_ns) <= 0 && (cbw_read(g->nr_parked) || g->throttled_cpus);
	int i;

	g->nr_periods += periods;
	if (throttled)
		g->nr_throttled += periods;
	cap = g->quota_ns + g->burst_ns;
	bpf_for(i, 0, 16) {
		pool = cbw_read(g->pool_ns);
		full = min_s64(pool + (s64)(g->quota_ns * periods), cap);
		if (__sync_val_compare_and_swap(&g->pool_ns, pool, full) == pool)
			break;
	}
	/* Burst is what was used beyond the quota out of what had been saved up, never debt. */
	used = g->pool_after_refill_ns - pool;
	burst = min_s64(used, g->pool_after_refill_ns) - (s64)g->quota_ns;
	if (burst > 0) {
		g->nr_bursts++;
		g->burst_used_ns += burst;
	}
	g->pool_after_refill_ns = full;
}

/* p waits no longer at the boundary of a group; whoever finds out first does the books. */
static __always_inline void cbw_unpark(struct cbw_task *t, u64 now)
{
	u64 at = __sync_lock_test_and_set(&t->parked, 0);
	cbw_group_t *g = cbw_group_at(at);

	if (!at)
		return;
	__sync_fetch_and_add(&g->nr_parked, -1);
	if (now > t->parked_at_ns) {
		t->parked_ns += now - t->parked_at_ns;
		__sync_fetch_and_add(&g->parked_ns, now - t->parked_at_ns);
	}
}

/* The throttled level at which p would have to wait longest, if any. */
static __noinline u64 cbw_where_to_wait(u64 address, u32 cpu)
{
	cbw_group_t *l = cbw_group_at(address), *g;
	u64 until, worst = 0, worst_until = 0;
	s64 pool;
	int i;

	CBW_USES_ARENA();
	cbw_for_each_limited(i, l, g) {
		if (cbw_out(g, cpu)) {
			pool = cbw_read(g->pool_ns);
			until = cbw_read(g->refill_at_ns);
			if (pool < 0 && g->quota_ns)
				until += (u64)-pool / g->quota_ns * g->period_ns;
			if (!worst || until > worst_until) {
				worst = (u64)g;
				worst_until = until;
			}
		}
	}
	return worst;
}

static __always_inline void cbw_close_throttled_time(cbw_group_t *g, u64 now)
{
	u64 cpus = __sync_lock_test_and_set(&g->throttled_cpus, 0);
	u64 since = __sync_lock_test_and_set(&g->throttled_since_sum_ns, 0);

	__sync_fetch_and_add(&g->parked_seq, 1);
	if (cpus * now > since)
		g->throttled_ns += cpus * now - since;
}

/* For tests: holds the window of a race open until a number has changed. */
static __always_inline void cbw_await_change(u64 *number)
{
	u64 before = cbw_read(*number), until = bpf_ktime_get_ns() + CBW_STRETCH_MAX_NS;
	int i;

	bpf_for(i, 0, 1 << 22) {
		if (cbw_read(*number) != before || bpf_ktime_get_ns() >= until)
			break;
	}
}

/* Moves parked tasks on, oldest first: all of them as far as there is runtime, or only those that waited `older_than_ns`. */
static __noinline int cbw_release(u64 address, u64 older_than_ns)
{
	cbw_group_t *g = cbw_group_at(address);
	u64 now = bpf_ktime_get_ns(), dsq, vtime, slice, before = now, park_dsq = g->park_dsq;
	struct task_struct *p;
	s64 budget = CBW_RELEASE_BATCH;

	CBW_USES_ARENA();
	if (!older_than_ns && cbw_enforced(g)) {
		s64 pool = cbw_read(g->pool_ns);

		budget = pool > CBW_RELEASE_WORTH_NS ? (u64)pool / CBW_RELEASE_WORTH_NS : 1;
		if (budget > CBW_RELEASE_BATCH)
			budget = CBW_RELEASE_BATCH;
	}
	g->released_in_walk = 0;
	bpf_for_each(scx_dsq, p, park_dsq, 0) {
		struct cbw_task *t;

		if (cbw_read(g->released_in_walk) >= budget)
			break;
		t = cbw_task(p);
		if (!t)
			continue;
		if (older_than_ns && now - t->parked_at_ns < older_than_ns)
			break;
		cbw_write(g->released_in_walk, g->released_in_walk + 1);
		if (older_than_ns)
			g->watchdog_passes++;
		dsq = 0, vtime = 0, slice = CBW_SLICE_NS;
		cbw_requeue(p, t, &dsq, &vtime, &slice);
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, slice);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, vtime);
		/*
		 * Before it is moved: on another CPU it may run at once and park again, and that would be undone. If the move fails
		 * the core has taken it off the queue, to put it back as one that is not parked.
		 */
		if (!(without & CURE_UNPARK_FIRST))
			cbw_unpark(t, now);
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, dsq, 0)) {
			s32 cpu;

			/* One that is just becoming idle is not idle yet; kicked, it looks once more before it is. */
			if (cbw_may_kick()) {
				cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
				scx_bpf_kick_cpu(cpu >= 0 ? cpu : task_cpu(p), KICK_IDLE);
			}
			if (stretched & RACE_RELEASE_AND_PARK)
				cbw_await_change(&t->parks);
			if (without & CURE_UNPARK_FIRST)
				cbw_unpark(t, now);
		}
	}
	g->released += g->released_in_walk;
	g->release_cost_ns += bpf_ktime_get_ns() - before;
	return 0;
}

/* The timer has gone off: refill if it is time, release, and choose when to look again. */
static __always_inline void cbw_round(cbw_group_t *g, struct bpf_timer *timer, u64 now, bool release)
{
	u64 next, periods = 0;
	bool more;

	next = cbw_read(g->refill_at_ns);
	if (now >= next && g->period_ns) {
		bool idle = !g->taken && !cbw_read(g->nr_parked);

		periods = (now - next) / g->period_ns + 1;
		next += periods * g->period_ns;
		cbw_write(g->refill_at_ns, next);
		cbw_write(g->taken, 0);
		cbw_refill(g, periods);
		if (idle) {
			__sync_lock_test_and_set(&g->timer_active, 0);
			/* Somebody may have taken in between and seen the timer active. */
			if ((!cbw_read(g->taken) && !cbw_read(g->nr_parked)) || __sync_val_compare_and_swap(&g->timer_active, 0, 1) != 0)
				return;
		}
	}
	if (cbw_read(g->pool_ns) > 0) {
		cbw_close_throttled_time(g, now);
		if (release && cbw_read(g->nr_parked))
			cbw_release((u64)g, 0);
	} else if (release && cbw_read(g->nr_parked) && !(without & CURE_WATCHDOG_PASS)) {
		cbw_release((u64)g, CBW_PASS_AFTER_NS);
	}
	/*
	 * Who is counted as parked but was not found in the queue is being put there right now by a CPU that had looked at the
	 * pool just before the refill: look again soon instead of in a period.
	 */
	more = cbw_read(g->pool_ns) > 0 && cbw_read(g->nr_parked);
	if (without & CURE_REFILL_RACE)
		more = more && scx_bpf_dsq_nr_queued(g->park_dsq) > 0;
	now = bpf_ktime_get_ns();
	if (more && now + CBW_CONTINUE_NS < next)
		next = now + CBW_CONTINUE_NS;
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
		cbw_release(address, 0);
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

/* For tests: the refill comes right now, between the last look at the pool and the queue, in which there is nobody else. */
static __noinline int cbw_refill_now(u64 address)
{
	cbw_group_t *g = cbw_group_at(address);
	u64 id = g->id, now = bpf_ktime_get_ns();
	struct cbw_group_entry *entry;

	CBW_USES_ARENA();
	entry = bpf_map_lookup_elem(&cbw_groups, &id);
	if (!entry)
		return 0;
	cbw_write(g->refill_at_ns, now);
	cbw_round(g, &entry->timer, now, false);
	return 0;
}
