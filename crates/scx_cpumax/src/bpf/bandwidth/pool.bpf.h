/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The pool of a group, the slices that CPUs take from it, and charging.
 *
 * Invariant: what was refilled = what was charged + the slices out + the pool - the debt, to the nanosecond where nobody runs
 * (`unaccounted_nsec` of the statistics is the difference). A CPU that has overrun its slice and
 * finds the pool empty puts that on the group's debt, so debt is one number, and refills pay it, whoever made it. A CPU runs
 * user mode only on runtime that it holds: where others could empty the pool before its next tick, a timer looks when what
 * it holds is used up, and takes the next share.
 */

/* What a CPU takes at a time: of a small pool for which many wait only a part, see cbw_refill(). */
static __always_inline s64 cbw_share(cbw_group_t *g)
{
	s64 share = cbw_read(g->share_ns);

	return share > 0 ? share : CBW_SLICE_NS;
}

/* What a released task is given. */
static __always_inline s64 cbw_turn(cbw_group_t *g)
{
	s64 turn = cbw_read(g->turn_ns);

	return turn > 0 ? turn : CBW_SLICE_NS;
}

/* Takes up to `want` from the pool; returns how much. */
static __always_inline s64 cbw_pool_take(cbw_group_t *g, s64 want)
{
	s64 pool, take;
	int i;

	bpf_for(i, 0, 16) {
		pool = cbw_read(g->pool_ns);
		if (pool <= 0)
			return 0;
		take = min_s64(pool, want);
		if (__sync_val_compare_and_swap(&g->pool_ns, pool, pool - take) == pool)
			return take;
	}
	/* So contended that others surely got it. */
	return 0;
}

/* Runtime comes back: it may bring back others, at once if it is worth a turn. */
static __always_inline void cbw_pool_put(cbw_group_t *g, s64 ns)
{
	s64 feed;

	__sync_fetch_and_add(&g->pool_ns, ns);
	feed = __sync_fetch_and_add(&g->feed_ns, ns);
	if (cbw_read(g->nr_parked) && feed < cbw_turn(g) && feed + ns >= cbw_turn(g))
		cbw_poke((u64)g);
}

/* What a CPU holds: its slice, and what its timer took. */
static __always_inline s64 cbw_held(cbw_cpu_t *c)
{
	return c->rem_ns + cbw_read(c->mail_ns);
}

static __always_inline void cbw_open_mail(cbw_cpu_t *c)
{
	if (cbw_read(c->mail_ns))
		c->rem_ns += __sync_lock_test_and_set(&c->mail_ns, 0);
}

/* A slice of an older limit may not exceed one of the present limit; what is too much goes back. */
static __always_inline void cbw_cpu_follow_limit(cbw_group_t *g, cbw_cpu_t *c)
{
	u64 seq = cbw_read(g->limit_seq);

	if (c->limit_seq == seq)
		return;
	c->limit_seq = seq;
	cbw_open_mail(c);
	if (c->rem_ns > 0) {
		cbw_pool_put(g, c->rem_ns);
		c->rem_ns = 0;
	}
}

/* Makes rem_ns positive if the pool allows. Returns false if the group has nothing left for this CPU. */
static __always_inline bool cbw_cpu_fill(cbw_group_t *g, cbw_cpu_t *c)
{
	if (c->rem_ns > 0)
		return true;
	cbw_open_mail(c);
	if (c->rem_ns > 0)
		return true;
	cbw_write(g->taken, 1);
	cbw_activate(g);
	c->rem_ns += cbw_pool_take(g, cbw_share(g) - c->rem_ns);
	if (c->rem_ns > 0)
		return true;
	if (c->rem_ns < 0) {
		__sync_fetch_and_add(&g->debt_ns, -c->rem_ns);
		c->rem_ns = 0;
	}
	return false;
}

static __always_inline bool cbw_out(cbw_group_t *g, u32 cpu)
{
	return cbw_enforced(g) && cbw_held(cbw_cpu_of(g, cpu)) <= 0 && cbw_read(g->pool_ns) <= 0;
}

/* Charges what p ran since the last time, at each limited level. Returns false if one of them is out of runtime. */
static __always_inline bool cbw_charge(struct task_struct *p, struct cbw_task *t, cbw_group_t *l, u32 cpu)
{
	cbw_group_t *g;
	u64 exec = p->se.sum_exec_runtime;
	s64 delta = exec - t->exec_ns;
	bool ok = true, overrun = false;
	int i;

	t->exec_ns = exec;
	t->charged_at_ns = bpf_ktime_get_ns();
	if (!cbw_read(cbw_in_charge))
		return true;
	if (t->passing) {
		__sync_fetch_and_add(&l->pass_ns, delta);
		delta = 0;
	}
	cbw_for_each_limited(i, l, g) {
		cbw_cpu_t *c = cbw_cpu_of(g, cpu);

		cbw_cpu_follow_limit(g, c);
		if (t->requested && cbw_out(g, cpu)) {
			g->kernel_overrun_ns += delta;
			overrun = true;
		}
		c->usage_ns += delta;
		c->rem_ns -= delta;
		if (!cbw_cpu_fill(g, c))
			ok = false;
	}
	if (overrun)
		t->kernel_overrun_ns += delta;
	return ok;
}

/* What is left until the first level is out, at most two ticks. */
static __noinline s64 cbw_left_at(u64 address, u32 cpu)
{
	cbw_group_t *l = cbw_group_at(address), *g;
	s64 left = tick_ns * 2;
	int i;

	CBW_USES_ARENA();
	cbw_for_each_limited(i, l, g)
		left = min_s64(left, cbw_held(cbw_cpu_of(g, cpu)) + cbw_read(g->pool_ns));
	return left;
}

static __always_inline s64 cbw_left(cbw_group_t *l, u32 cpu)
{
	return cbw_left_at((u64)l, cpu);
}

/*
 * How long this CPU may run, `ran` after its last charge, until some level has used up what it holds, at most two ticks. A
 * level whose pool outlasts a tick of all CPUs is left to the tick. With `take` the pool is asked for the next share of what
 * is used up.
 */
static __noinline s64 cbw_lasts(u64 address, u32 cpu, s64 ran, bool take)
{
	cbw_group_t *l = cbw_group_at(address), *g;
	s64 left = tick_ns * 2, held, pool, got;
	int i;

	CBW_USES_ARENA();
	cbw_for_each_limited(i, l, g) {
		cbw_cpu_t *c = cbw_cpu_of(g, cpu);

		pool = cbw_read(g->pool_ns);
		if (!cbw_limited(g) || pool >= (s64)(nr_cpus * tick_ns))
			continue;
		held = cbw_held(c) - ran;
		if (take && held <= 0 && pool > 0) {
			cbw_write(g->taken, 1);
			cbw_activate(g);
			got = cbw_pool_take(g, cbw_share(g) - held);
			__sync_fetch_and_add(&c->mail_ns, got);
			held += got;
		}
		left = min_s64(left, held);
	}
	return left;
}

/* The task leaves the CPU: more than a little of the slice goes back, for others of the group may wait elsewhere. */
static __always_inline void cbw_give_back(cbw_group_t *l, u32 cpu)
{
	s64 keep, surplus;
	cbw_group_t *g;
	int i;

	cbw_for_each_limited(i, l, g) {
		cbw_cpu_t *c = cbw_cpu_of(g, cpu);

		cbw_open_mail(c);
		keep = min_s64(CBW_KEEP_NS, g->quota_ns / (4 * nr_cpus));
		surplus = c->rem_ns - keep;
		if (surplus > 0) {
			c->rem_ns = keep;
			cbw_pool_put(g, surplus);
		}
	}
}
