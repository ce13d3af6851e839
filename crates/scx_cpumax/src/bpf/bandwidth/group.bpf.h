/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Creation and removal of groups and tasks, moves, and new limits.
 */

/* Called once, from ops.init. */
static __always_inline s32 cbw_init(void)
{
	struct cbw_cpu_timer *timer;
	struct cbw_going_timer *going;
	struct cbw_helper *helper;
	u32 cpu, zero = 0;

	going = bpf_map_lookup_elem(&cbw_going_timers, &zero);
	if (!going)
		return -ENOMEM;
	bpf_timer_init(&going->timer, &cbw_going_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&going->timer, cbw_rescue_going);
	bpf_for(cpu, 0, nr_cpus) {
		u32 key = cpu;

		timer = bpf_map_lookup_elem(&cbw_cpu_timers, &key);
		if (!timer)
			return -ENOMEM;
		bpf_timer_init(&timer->timer, &cbw_cpu_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&timer->timer, cbw_exhausted);
		helper = bpf_map_lookup_elem(&cbw_helpers, &key);
		if (!helper)
			return -ENOMEM;
		bpf_timer_init(&helper->timer, &cbw_helpers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&helper->timer, cbw_help);
	}
	return 0;
}

static __always_inline s32 cbw_refuse(enum refusal_kind kind, s32 error, u64 id, u64 level)
{
	refusal.error = error;
	refusal.group_id = id;
	refusal.level = level;
	refusal.kind = kind;
	return error;
}

static __always_inline cbw_group_t *cbw_group_by_id(u64 id)
{
	struct cbw_group_entry *entry = bpf_map_lookup_elem(&cbw_groups, &id);

	return cbw_group_at(entry ? entry->group : 0);
}

/*
 * a x b / c for numbers up to 2^54, in 64 bits. The verifier checks global functions like this one
 * and the next once, not for each path to each call, which made most of the load time.
 */
__noinline s64 cbw_scale(s64 a, u64 b, u64 c)
{
	bool negative = a < 0;
	u64 x = negative ? -a : a;
	int i;

	bpf_for(i, 0, 32) {
		if (b < (1ULL << 31) && c < (1ULL << 31))
			break;
		b >>= 1;
		c >>= 1;
	}
	if (!c)
		c = 1;
	x = x / c * b + x % c * b / c;
	return negative ? -x : x;
}

__noinline int cbw_limit_write(u64 address, u64 period_ns, u64 quota_ns, u64 burst_ns)
{
	cbw_group_t *g = cbw_group_at(address);
	u64 old = g->quota_ns, old_period = g->period_ns, now = bpf_ktime_get_ns();
	s64 pool, debt, owed, came = 0, changed, left, new_left;
	int i;

	CBW_USES_ARENA();

	if (quota_ns == CBW_UNLIMITED) {
		cbw_write(g->quota_ns, quota_ns);
		__sync_fetch_and_add(&cbw_limits_seq, 1);
		if (old != CBW_UNLIMITED) {
			/* Debt is forgiven; the timer releases all parked tasks. */
			owed = __sync_lock_test_and_set(&g->debt_ns, 0);
			__sync_fetch_and_add(&g->refilled_ns, owed);
			cbw_write(g->timer_active, 1);
			cbw_write(g->edge_ns, now);
			cbw_write(g->release_took_ns, 0);
			cbw_poke((u64)g);
		}
		return 0;
	}
	g->burst_ns = burst_ns;
	cbw_write(g->period_ns, period_ns);
	if (old == CBW_UNLIMITED) {
		pool = __sync_lock_test_and_set(&g->pool_ns, quota_ns);
		cbw_write(g->feed_ns, quota_ns);
		owed = __sync_lock_test_and_set(&g->debt_ns, 0);
		came = (s64)quota_ns - pool + owed;
		g->pool_after_refill_ns = quota_ns;
		cbw_write(g->refill_at_ns, now + period_ns);
	} else {
		/*
		 * The pool is worth the time in which it is earned. How far that time is ahead of or behind the
		 * clock does not change: no windfall, however often the limit is written, and no stall beyond the
		 * next refill. The same holds for the debt, which also takes the part of a pool below zero.
		 */
		left = old_period;
		new_left = period_ns;
		if (cbw_read(g->timer_active) && cbw_read(g->refill_at_ns) > now) {
			left = cbw_read(g->refill_at_ns) - now;
			if (new_left > left)
				new_left = left;
		}
		owed = __sync_lock_test_and_set(&g->debt_ns, 0);
		debt = cbw_scale(cbw_scale(owed, old_period, old), quota_ns, period_ns);
		bpf_for(i, 0, 16) {
			pool = cbw_read(g->pool_ns);
			changed = cbw_scale(pool, old_period, old) - left + new_left;
			changed = min_s64(cbw_scale(changed, quota_ns, period_ns), quota_ns + burst_ns);
			if (__sync_val_compare_and_swap(&g->pool_ns, pool, changed > 0 ? changed : 0) == pool) {
				came = -pool;
				if (changed < 0)
					debt -= changed;
				else
					came += changed;
				break;
			}
		}
		__sync_fetch_and_add(&g->debt_ns, debt);
		came += owed - debt;
		cbw_write(g->feed_ns, cbw_read(g->pool_ns));
		g->pool_after_refill_ns = quota_ns;
		if (cbw_read(g->refill_at_ns) > now + period_ns)
			cbw_write(g->refill_at_ns, now + period_ns);
	}
	__sync_fetch_and_add(&g->refilled_ns, came);
	__sync_fetch_and_add(&g->limit_seq, 1);
	cbw_write(g->quota_ns, quota_ns);
	__sync_fetch_and_add(&cbw_limits_seq, 1);
	if (cbw_read(g->timer_active))
		cbw_poke((u64)g);
	return 0;
}

static __always_inline void cbw_group_set_limit(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	cbw_group_t *g = cbw_group_by_id(cgrp->kn->id);
	u64 quota_ns = quota_us >= CBW_UNLIMITED / 1000 ? CBW_UNLIMITED : quota_us * 1000;

	CBW_USES_ARENA();
	if (g && period_us)
		cbw_limit_write((u64)g, period_us * 1000, quota_ns, burst_us * 1000);
}

/* Owner of a group's directory. Root's has no attributes unless it changed hands; then this
 * reads 0. */
static __always_inline u32 cbw_owner(struct cgroup *cgrp)
{
	return bpf_core_field_exists(struct kernfs_iattrs, ia_uid) ? cgrp->kn->iattr->ia_uid.val : 0;
}

/* Id of the highest delegated group (its directory owned by a user), this one or above; 0: none. */
static __always_inline u64 cbw_delegated_id(struct cgroup *cgrp)
{
	struct cgroup *above;
	u64 id = 0;
	int level;

	bpf_for(level, 1, CBW_DEPTH_MAX + 1) {
		if (level > cgrp->level)
			break;
		above = bpf_cgroup_ancestor(cgrp, level);
		if (!above)
			break;
		if (cbw_owner(above))
			id = above->kn->id;
		bpf_cgroup_release(above);
		if (id)
			break;
	}
	return id;
}

/* Counts g for the user to whom it is delegated. Root, and groups from before the load, may
 * exceed that share. */
static __always_inline s32 cbw_take_share(cbw_group_t *g, struct cgroup *cgrp)
{
	u64 id = cbw_delegated_id(cgrp), below, all;
	cbw_group_t *top = id == cgrp->kn->id ? g : cbw_group_by_id(id);

	if (!id || !top)
		return 0;
	below = __sync_fetch_and_add(&top->nr_delegated, 1);
	all = __sync_fetch_and_add(&cbw_all_delegated, 1);
	g->delegated = (u64)top;
	if (below < delegated_max && all < all_delegated_max)
		return 0;
	return cbw_read(cbw_in_charge) && (u32)bpf_get_current_uid_gid() ? -ENOSPC : 0;
}

static __always_inline void cbw_give_share(cbw_group_t *g)
{
	cbw_group_t *top = cbw_group_at(g->delegated);

	if (!top)
		return;
	__sync_fetch_and_add(&top->nr_delegated, -1);
	__sync_fetch_and_add(&cbw_all_delegated, -1);
}

/* Sleepable. An error refuses the group: mkdir or the load fails. No group is ever silently
 * unlimited. */
static __always_inline s32 cbw_group_init(struct cgroup *cgrp, u64 parent_id, u64 period_us, u64 quota_us, u64 burst_us)
{
	u64 id = cgrp->kn->id, level = cgrp->level, bytes = sizeof(struct cbw_group) + nr_cpus * sizeof(struct cbw_cpu);
	u32 pages = (bytes + PAGE_SIZE - 1) / PAGE_SIZE;
	struct cbw_group_entry none = {}, *entry;
	cbw_group_t *g, *parent = NULL;
	s32 err;

	CBW_USES_ARENA();
	if (level > CBW_DEPTH_MAX)
		return cbw_refuse(REFUSED_DEPTH, -E2BIG, id, level);
	if (level > 0) {
		parent = cbw_group_by_id(parent_id);
		if (!parent)
			return cbw_refuse(REFUSED_PARENT, -ENOMEM, id, level);
	}
	err = bpf_map_update_elem(&cbw_groups, &id, &none, BPF_NOEXIST);
	if (err)
		return cbw_refuse(REFUSED_GROUPS, err == -E2BIG ? -ENOSPC : err, id, level);
	entry = bpf_map_lookup_elem(&cbw_groups, &id);
	if (!entry)
		return cbw_refuse(REFUSED_MEMORY, -ENOMEM, id, level);
	g = (cbw_group_t *)bpf_arena_alloc_pages(&arena, NULL, pages, -1, 0);
	if (!g) {
		bpf_map_delete_elem(&cbw_groups, &id);
		return cbw_refuse(REFUSED_MEMORY, -ENOMEM, id, level);
	}
	err = cbw_take_share(g, cgrp);
	if (err) {
		cbw_give_share(g);
		bpf_arena_free_pages(&arena, g, pages);
		bpf_map_delete_elem(&cbw_groups, &id);
		return cbw_refuse(REFUSED_SHARE, err, id, level);
	}
	g->park_dsq = CBW_PARK_DSQ + __sync_fetch_and_add(&cbw_next_dsq, 1);
	err = scx_bpf_create_dsq(g->park_dsq, -1);
	if (err) {
		cbw_give_share(g);
		bpf_arena_free_pages(&arena, g, pages);
		bpf_map_delete_elem(&cbw_groups, &id);
		return cbw_refuse(REFUSED_DSQ, err, id, level);
	}
	g->parent = (u64)parent;
	g->level = level;
	g->pages = pages;
	g->quota_ns = CBW_UNLIMITED;
	g->id = id;
	entry->group = (u64)g;
	bpf_timer_init(&entry->timer, &cbw_groups, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&entry->timer, cbw_timer);
	cbw_group_set_limit(cgrp, period_us, quota_us, burst_us);
	return 0;
}

static __always_inline void cbw_group_exit(struct cgroup *cgrp)
{
	u64 id = cgrp->kn->id;
	cbw_group_t *g = cbw_group_by_id(id);
	u32 pages;

	CBW_USES_ARENA();
	if (!g)
		return;
	/* First its id and its timer go, then its memory. */
	bpf_map_delete_elem(&cbw_groups, &id);
	scx_bpf_destroy_dsq(g->park_dsq);
	cbw_give_share(g);
	g->id = 0;
	__sync_fetch_and_add(&cbw_limits_seq, 1);
	pages = g->pages;
	bpf_arena_free_pages(&arena, g, pages);
}

static __always_inline void cbw_task_enter(struct cbw_task *t, u64 id)
{
	t->group_id = id;
	t->group = (u64)cbw_group_by_id(id);
}

/* Sleepable. */
static __always_inline struct cbw_task *cbw_task_init(struct task_struct *p, u64 id)
{
	struct cbw_task *t = bpf_task_storage_get(&cbw_tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	CBW_USES_ARENA();
	if (!t)
		return NULL;
	cbw_task_enter(t, id);
	t->exec_ns = p->se.sum_exec_runtime;
	/* Without a limit this is done when a limit first needs it. */
	if (cbw_task_limit(t)) {
		cbw_work_of(p, true);
		cbw_work_of(p, false);
	}
	return t;
}

static __always_inline void cbw_task_exit(struct task_struct *p)
{
	struct cbw_task *t = cbw_task(p);
	u64 key = (u64)p;

	CBW_USES_ARENA();
	if (t && t->parked)
		cbw_unpark(t, bpf_ktime_get_ns());
	bpf_map_delete_elem(&cbw_work_a, &key);
	bpf_map_delete_elem(&cbw_work_b, &key);
}

/* The core has dequeued p and enqueues it again: it waits in the new group if that is throttled. */
static __always_inline void cbw_task_move(struct task_struct *p, u64 to_id)
{
	struct cbw_task *t = cbw_task(p);

	CBW_USES_ARENA();
	if (t)
		cbw_task_enter(t, to_id);
}
