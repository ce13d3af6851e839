/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Release: moves parked tasks back to the scheduler's queue, or on to the queue of another level.
 *
 * The group's timer moves a batch at a time. If more than a batch is left, each CPU that starts to
 * run something helps with batches of its own, by a timer. All of it runs in soft interrupts with
 * interrupts on.
 */

/* Ends p's wait at a boundary. Only the first caller does the accounting, and gets true. */
static __always_inline bool cbw_unpark(struct cbw_task *t, u64 now)
{
	u64 at = __sync_lock_test_and_set(&t->parked, 0);
	cbw_group_t *g = cbw_group_at(at);

	if (!at)
		return false;
	__sync_fetch_and_add(&g->nr_parked, -1);
	if (now > t->parked_at_ns) {
		t->parked_ns += now - t->parked_at_ns;
		__sync_fetch_and_add(&g->parked_ns, now - t->parked_at_ns);
	}
	return true;
}

/* The throttled level at which p would wait longest, or 0. */
static __noinline u64 cbw_where_to_wait(u64 address, u32 cpu)
{
	cbw_group_t *l = cbw_group_at(address), *g;
	u64 until, worst = 0, worst_until = 0;
	s64 dark;
	int i;

	CBW_USES_ARENA();
	cbw_for_each_limited(i, l, g) {
		if (cbw_out(g, cpu)) {
			until = cbw_read(g->refill_at_ns);
			dark = cbw_read(g->debt_ns) - (s64)(g->quota_ns * CBW_DARK_QUOTAS);
			if (dark > 0 && g->quota_ns)
				until += (u64)dark / g->quota_ns * g->period_ns;
			if (!worst || until > worst_until) {
				worst = (u64)g;
				worst_until = until;
			}
		}
	}
	return worst;
}

/* Another level on p's path that is out of runtime, at which it must wait next, or 0. */
static __always_inline u64 cbw_next_wait(struct task_struct *p, struct cbw_task *t, cbw_group_t *from)
{
	cbw_group_t *l = cbw_task_limit(t);
	u64 to;

	if (!l || cbw_next_limited(l) == NULL)
		return 0;
	to = cbw_where_to_wait((u64)l, task_cpu(p));
	return to == (u64)from ? 0 : to;
}

/*
 * Moves the count of p, which is in the queue of one level, to another level. That is one step,
 * instead of a turn in which p only comes to the boundary again. False: p is not counted there; the
 * core has dequeued it and will enqueue it again.
 */
static __always_inline bool cbw_count_over(struct cbw_task *t, cbw_group_t *from, cbw_group_t *to, u32 cpu)
{
	/* In the order of cbw_park(), for the same race with a refill. */
	__sync_fetch_and_add(&to->nr_parked, 1);
	if (cbw_out(to, cpu) && cbw_activate(to) &&
	    __sync_val_compare_and_swap(&t->parked, (u64)from, (u64)to) == (u64)from) {
		__sync_fetch_and_add(&from->nr_parked, -1);
		return true;
	}
	__sync_fetch_and_add(&to->nr_parked, -1);
	return false;
}

static __always_inline void cbw_wake_somebody(struct task_struct *p)
{
	s32 cpu;

	/* A CPU that is becoming idle is not idle yet; after a kick it looks once more. */
	if (!cbw_may_kick())
		return;
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	scx_bpf_kick_cpu(cpu >= 0 ? cpu : task_cpu(p), KICK_IDLE);
}

/* Whether the runtime in the pool is enough for another turn; the first turn of a walk always
 * is. */
static __always_inline bool cbw_feed_turn(cbw_group_t *g, s64 turn, bool anyway)
{
	if (__sync_fetch_and_add(&g->feed_ns, -turn) >= turn || anyway)
		return true;
	__sync_fetch_and_add(&g->feed_ns, turn);
	return false;
}

/* Whether the tasks left to release are worth the help of another CPU. */
static __always_inline bool cbw_wants_help(cbw_group_t *g)
{
	if (cbw_read(g->nr_parked) <= CBW_RELEASE_BATCH || (without & CURE_HELP))
		return false;
	return !cbw_enforced(g) || min_s64(cbw_read(g->feed_ns), cbw_read(g->pool_ns)) >= cbw_turn(g);
}

static __always_inline void cbw_ask_for_help(cbw_group_t *g)
{
	if (!cbw_wants_help(g))
		return;
	cbw_write(cbw_helped_id, g->id);
	cbw_write(cbw_helped, (u64)g);
}

/* Moves p from the queue of g to that of another level, if it can be counted there. */
static __always_inline bool cbw_hand_on(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct cbw_task *t, cbw_group_t *g,
					cbw_group_t *to)
{
	if (!cbw_count_over(t, g, to, task_cpu(p)))
		return false;
	scx_bpf_dsq_move_set_vtime(it, t->waits_since_ns);
	if (scx_bpf_dsq_move_vtime(it, p, to->park_dsq, 0)) {
		__sync_fetch_and_add(&g->moved_on, 1);
	} else if (__sync_val_compare_and_swap(&t->parked, (u64)to, (u64)g) == (u64)to) {
		__sync_fetch_and_add(&g->nr_parked, 1);
		__sync_fetch_and_add(&to->nr_parked, -1);
	}
	return true;
}

/*
 * Moves p, which is no longer counted as parked, back to the scheduler's queue for a turn. False:
 * it cannot be moved, as the core has dequeued it, and will enqueue it as a task that is not
 * parked.
 */
static __always_inline bool cbw_let_go(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct cbw_task *t, s64 turn)
{
	u64 dsq = 0, vtime = 0, slice = turn;

	cbw_requeue(p, t, &dsq, &vtime, &slice);
	t->turn_ns = slice;
	scx_bpf_dsq_move_set_slice(it, slice);
	scx_bpf_dsq_move_set_vtime(it, vtime);
	if (!scx_bpf_dsq_move_vtime(it, p, dsq, 0))
		return false;
	cbw_wake_somebody(p);
	return true;
}

/*
 * Moves parked tasks on, the longest waiting first: as many as the runtime in the pool gives a turn
 * each, at least one. Several CPUs that do this for one group each take the next free task.
 */
static __noinline int cbw_release(u64 address, bool helps)
{
	cbw_group_t *g = cbw_group_at(address), *to;
	cbw_cpu_t *c = cbw_cpu_of(g, bpf_get_smp_processor_id());
	u64 now = bpf_ktime_get_ns(), before = now, park_dsq = g->park_dsq;
	s64 budget = CBW_RELEASE_BATCH, turn = cbw_turn(g), feed;
	bool rescue = false, enforced = cbw_enforced(g);
	struct task_struct *p;
	u32 cpu;

	CBW_USES_ARENA();
	feed = min_s64(cbw_read(g->feed_ns), cbw_read(g->pool_ns));
	if (enforced)
		budget = feed > turn ? min_s64((u64)feed / (u64)turn, CBW_RELEASE_BATCH) : !helps;
	cbw_write(c->walked, 0);
	bpf_for_each(scx_dsq, p, park_dsq, 0) {
		struct cbw_task *t = cbw_task(p);

		if (cbw_read(c->walked) >= budget)
			break;
		if (!t || !cbw_read(t->parked))
			continue;
		to = cbw_group_at(cbw_next_wait(p, t, g));
		if (to && cbw_hand_on(BPF_FOR_EACH_ITER, p, t, g, to)) {
			cbw_write(c->walked, c->walked + 1);
			continue;
		}
		if (enforced && !cbw_feed_turn(g, turn, !cbw_read(c->walked) && !helps))
			break;
		/* Unpark first: on another CPU the task may run at once and park again, which
		 * must stay. */
		if ((without & CURE_UNPARK_FIRST) || cbw_unpark(t, now)) {
			cbw_write(c->walked, c->walked + 1);
			cpu = task_cpu(p);
			if (cbw_let_go(BPF_FOR_EACH_ITER, p, t, turn)) {
				/* The move is a full barrier: either this is seen, or the task
				 * is. */
				rescue |= cbw_is_leaving(cpu);
				CBW_POINT_AFTER_RELEASE(t);
				if (without & CURE_UNPARK_FIRST)
					cbw_unpark(t, now);
				continue;
			}
		}
		if (enforced)
			__sync_fetch_and_add(&g->feed_ns, turn);
	}
	if (rescue)
		cbw_rescue_all();
	now = bpf_ktime_get_ns();
	__sync_fetch_and_add(&g->released, cbw_read(c->walked));
	__sync_fetch_and_add(&g->release_cost_ns, now - before);
	if (cbw_read(c->walked))
		cbw_write(g->release_took_ns, now - g->edge_ns);
	return 0;
}

struct cbw_helper {
	struct bpf_timer timer;
	u32 active;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, u32);
	__type(value, struct cbw_helper);
} cbw_helpers SEC(".maps");

/* A CPU that has begun to run something moves a batch of the group that asked for help, and goes
 * on. */
static int cbw_help(void *map, u32 *key, struct cbw_helper *helper)
{
	u64 address = cbw_read(cbw_helped), id = cbw_read(cbw_helped_id);
	cbw_group_t *g = cbw_group_at(address);

	CBW_USES_ARENA();
	cbw_write(helper->active, 0);
	if (!g || !cbw_may_kick())
		return 0;
	if (g->id == id && cbw_wants_help(g)) {
		cbw_release(address, true);
		if (cbw_wants_help(g)) {
			cbw_write(helper->active, 1);
			bpf_timer_start(&helper->timer, CBW_CONTINUE_NS, BPF_F_TIMER_CPU_PIN);
			return 0;
		}
	}
	__sync_val_compare_and_swap(&cbw_helped, address, 0);
	return 0;
}

/* This CPU runs something. If a release has woken it, the release may want its help. */
static __always_inline void cbw_offer_help(void)
{
	struct cbw_helper *helper;
	u32 cpu = bpf_get_smp_processor_id();

	if (!cbw_read(cbw_helped))
		return;
	helper = bpf_map_lookup_elem(&cbw_helpers, &cpu);
	if (!helper || cbw_read(helper->active))
		return;
	cbw_write(helper->active, 1);
	if (bpf_timer_start(&helper->timer, 0, BPF_F_TIMER_CPU_PIN))
		cbw_write(helper->active, 0);
}
