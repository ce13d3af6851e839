/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The pool of a group, the slices that CPUs take from it, and charging.
 *
 * Invariant: refilled = charged + slices of CPUs + pool - debt, to the nanosecond while no task
 * runs (`unaccounted_nsec` of the statistics is the difference). A CPU that has overrun its slice
 * and finds the pool empty adds the overrun to the group's debt. So debt is one number, and refills
 * pay it, whichever CPU made it. A CPU runs user mode only on runtime that it holds: where other
 * CPUs could empty the pool before its next tick, a timer fires when the slice is used up, and
 * takes the next one.
 */

/* Runtime that a CPU takes at once: less of a small pool that many wait for, see cbw_refill(). */
static __always_inline s64 cbw_share(cbw_group_t *g)
{
	s64 share = cbw_read(g->share_ns);

	return share > 0 ? share : CBW_SLICE_NS;
}

/* Runtime that a released task is given. */
static __always_inline s64 cbw_turn(cbw_group_t *g)
{
	s64 turn = cbw_read(g->turn_ns);

	return turn > 0 ? turn : CBW_SLICE_NS;
}

/* Takes up to `want` from the pool; returns the runtime taken. */
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
	/* After so many attempts other CPUs have got it. */
	return 0;
}

/* Returns runtime to the pool. Pokes the timer if it is worth a turn of a parked task. */
static __always_inline void cbw_pool_put(cbw_group_t *g, s64 ns)
{
	s64 feed;

	__sync_fetch_and_add(&g->pool_ns, ns);
	feed = __sync_fetch_and_add(&g->feed_ns, ns);
	if (cbw_read(g->nr_parked) && feed < cbw_turn(g) && feed + ns >= cbw_turn(g))
		cbw_poke((u64)g);
}

/* Runtime that a CPU holds: its slice, and runtime that its timer took. */
static __always_inline s64 cbw_held(cbw_cpu_t *c)
{
	return c->rem_ns + cbw_read(c->mail_ns);
}

static __always_inline void cbw_open_mail(cbw_cpu_t *c)
{
	if (cbw_read(c->mail_ns))
		c->rem_ns += __sync_lock_test_and_set(&c->mail_ns, 0);
}

/* After a new limit, returns the CPU's slice to the pool. */
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

/* Makes rem_ns positive if the pool allows. False: the group has no runtime for this CPU. */
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

/* Charges the time that p ran since the last charge to each limited level. False: one is out of
 * runtime. */
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

/* Runtime until the first level is out of it, at most two ticks. */
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
 * Time that this CPU may run, `ran` after its last charge, until a level has used up the runtime
 * that the CPU holds; at most two ticks. A level whose pool lasts for a tick of all CPUs is left to
 * the tick. With `take` the CPU takes the next share from the pool of a level that is used up.
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

/* The task leaves the CPU: returns all but a little of the slice, which other CPUs may need. */
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
