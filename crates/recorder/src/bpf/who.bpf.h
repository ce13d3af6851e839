/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Classes of threads and groups, and the running thread of each CPU. */
#ifndef RECORDER_WHO_BPF_H
#define RECORDER_WHO_BPF_H

#include "ring.bpf.h"

#define DEPTH_MAX 32

static __always_inline struct cgroup *cgroup_of(struct task_struct *p)
{
	struct css_set *set = p->cgroups;

	if (!is_version_1)
		return set->dfl_cgrp;
	return set->subsys[CPU_CONTROLLER]->cgroup;
}

/*
 * An id and a class in one word, as an interrupt or another thread may come between any two
 * instructions. Ids of groups lose their highest bits, a generation count.
 */
#define CLASS_BITS 3
#define CLASS_MASK ((1 << CLASS_BITS) - 1)

static __always_inline u64 with_class(u64 id, u32 class)
{
	return id << CLASS_BITS | class;
}

static __always_inline u32 class_in(u64 word)
{
	return word & CLASS_MASK;
}

static __always_inline u64 id_in(u64 word)
{
	return word >> CLASS_BITS;
}

/* Reports a new group and its ancestors, and notes its class. */
static __noinline u32 meet_group(struct cgroup *group, struct cpu *cpu, u32 number)
{
	struct cgroup *at = group;
	struct cgroup_subsys_state *css;
	struct followed *wanted;
	struct grouped *record;
	u32 class = CLASS_OTHER, only = 0;
	u64 id;
	int i;

	wanted = bpf_map_lookup_elem(&followed, &only);
	for (i = 0; i < DEPTH_MAX; i++) {
		id = at->kn->id;
		if (wanted && id == wanted->id)
			class = CLASS_CHOSEN;
		css = at->self.parent;
		record = reserve(cpu, number, sizeof(*record));
		if (record) {
			head(&record->head, cpu, number, KIND_GROUP, 0);
			record->id = id;
			record->parent = 0;
			record->name[0] = 0;
			bpf_probe_read_kernel_str(record->name, sizeof(record->name), at->kn->name);
			if (css)
				record->parent = css->cgroup->kn->id;
			submit(cpu, record);
		}
		if (!css)
			break;
		at = css->cgroup;
	}
	id = group->kn->id;
	bpf_map_update_elem(&groups, &id, &class, BPF_ANY);
	return class;
}

/* The group of p, with its class. */
static __always_inline u64 group_of(struct task_struct *p, struct cpu *cpu, u32 number)
{
	struct cgroup *group = cgroup_of(p);
	u64 id = group->kn->id, last = READ_ONCE(cpu->group);
	u32 *class;

	if (id == id_in(last))
		return last;
	class = bpf_map_lookup_elem(&groups, &id);
	last = with_class(id, class ? *class : meet_group(group, cpu, number));
	WRITE_ONCE(cpu->group, last);
	return last;
}

/* The class of a thread in this group. */
static __always_inline u32 class_of(s32 tid, u64 group)
{
	if (!tid)
		return CLASS_IDLE;
	if (mode == MODE_ALL)
		return CLASS_CHOSEN;
	if (mode == MODE_GROUP && class_in(group) == CLASS_CHOSEN)
		return CLASS_CHOSEN;
	if (mode == MODE_PROCESS && bpf_map_lookup_elem(&chosen, &tid))
		return CLASS_CHOSEN;
	return bpf_map_lookup_elem(&partners, &tid) ? CLASS_PARTNER : CLASS_OTHER;
}

static __always_inline void runs(struct cpu *cpu, s32 tid, u32 class)
{
	WRITE_ONCE(cpu->runs, with_class((u32)tid, class));
}

/* The thread that last got the CPU, as far as seen. */
static __always_inline s32 seen_tid(struct cpu *cpu)
{
	return (s32)id_in(READ_ONCE(cpu->runs));
}

static __always_inline u32 seen_class(struct cpu *cpu)
{
	return class_in(READ_ONCE(cpu->runs));
}

static __always_inline void becomes_partner(s32 tid)
{
	u32 one = 1;

	bpf_map_update_elem(&partners, &tid, &one, BPF_ANY);
}

#endif
