//! Groups and kinds of tasks that differ only in their names.
//!
//! Microseconds decide which of sixteen equal siblings gets no runtime; the rules decide that one
//! gets none. A run therefore stands for all runs in which equal siblings exchange their results.

use cpumax_outcome::Outcome;
use cpumax_workload::{Action, GroupSpec, Op, Span, Target, TaskSpec, Workload};
use std::collections::BTreeMap;

/// Names of groups and tasks that differ only in their names, in sets of at least two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alike {
    groups: Vec<Vec<String>>,
    tasks: Vec<Vec<String>>,
}

impl Alike {
    /// Finds them in a workload.
    pub fn of(workload: &Workload) -> Alike {
        let distinct = Distinct::of(workload);
        let mut kinds_in = vec![Vec::new(); workload.groups.len()];
        for (kind, spec) in workload.tasks.iter().enumerate() {
            kinds_in[spec.group as usize].push(kind);
        }
        // Equal parts have equal debug text.
        let mut bottoms: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (ix, group) in workload.groups.iter().enumerate().skip(1) {
            let kinds = &kinds_in[ix];
            let limited = group.limit.quota_ns().is_some();
            if !limited && !distinct.groups[ix] && kinds.iter().all(|&kind| !distinct.kinds[kind]) {
                let group = GroupSpec { path: String::new(), ..group.clone() };
                let tasks: Vec<_> = kinds.iter().map(|&kind| nameless(workload, kind)).collect();
                bottoms.entry(format!("{group:?} {tasks:?}")).or_default().push(ix);
            }
        }
        bottoms.retain(|_, members| members.len() > 1);
        let mut alike = Alike::default();
        let mut done = vec![false; workload.groups.len()];
        for members in bottoms.values() {
            let path = |&ix: &usize| workload.groups[ix].path.clone();
            alike.groups.push(members.iter().map(path).collect());
            for (at, _) in kinds_in[members[0]].iter().enumerate() {
                let name = |&ix: &usize| workload.tasks[kinds_in[ix][at]].label().to_owned();
                alike.tasks.push(members.iter().map(name).collect());
            }
            for &ix in members {
                done[ix] = true;
            }
        }
        let mut kinds: BTreeMap<(u32, String), Vec<String>> = BTreeMap::new();
        for (kind, spec) in workload.tasks.iter().enumerate() {
            if !done[spec.group as usize] && !distinct.kinds[kind] {
                let reads = format!("{:?}", nameless(workload, kind));
                kinds.entry((spec.group, reads)).or_default().push(spec.label().to_owned());
            }
        }
        alike.tasks.extend(kinds.into_values().filter(|names| names.len() > 1));
        alike
    }

    /// Number of exchanges that [`Alike::exchanged`] can make, the identity included; at most 32.
    pub fn exchanges(&self) -> usize {
        const MOST: usize = 32;
        self.groups.iter().chain(&self.tasks).map(Vec::len).max().unwrap_or(1).min(MOST)
    }

    /// The outcome of a run in which each sibling has the results of the one `by` places further
    /// on.
    pub fn exchanged(&self, outcome: &Outcome, by: usize) -> Outcome {
        let mut outcome = outcome.clone();
        if by > 0 {
            self.groups.iter().for_each(|names| rotate(&mut outcome.groups, names, by));
            self.tasks.iter().for_each(|names| rotate(&mut outcome.tasks, names, by));
        }
        outcome
    }
}

fn rotate<T>(all: &mut BTreeMap<String, T>, names: &[String], by: usize) {
    let mut values: Vec<Option<T>> = names.iter().map(|name| all.remove(name)).collect();
    let len = values.len();
    values.rotate_left(by % len);
    for (name, value) in names.iter().zip(values) {
        all.extend(value.map(|value| (name.clone(), value)));
    }
}

fn nameless(workload: &Workload, kind: usize) -> TaskSpec {
    TaskSpec { name: String::new(), label: None, group: 0, ..workload.tasks[kind].clone() }
}

/// By index, groups and kinds that equal no other: groups with children, with interventions, or
/// that tasks move to; kinds that are named elsewhere, or that draw lengths, because each kind has
/// its own random stream.
struct Distinct {
    groups: Vec<bool>,
    kinds: Vec<bool>,
}

impl Distinct {
    fn of(workload: &Workload) -> Distinct {
        let mut distinct = Distinct {
            groups: vec![false; workload.groups.len()],
            kinds: vec![false; workload.tasks.len()],
        };
        for parent in workload.groups.iter().filter_map(|group| group.parent) {
            distinct.groups[parent as usize] = true;
        }
        for (kind, spec) in workload.tasks.iter().enumerate() {
            for &op in &spec.program {
                distinct.mark_op(kind, op);
            }
        }
        for intervention in &workload.interventions {
            distinct.mark_action(intervention.action);
        }
        distinct
    }

    fn mark_op(&mut self, kind: usize, op: Op) {
        match op {
            Op::User(Span::Drawn(_))
            | Op::Kernel(Span::Drawn(_))
            | Op::IrqOff(Span::Drawn(_))
            | Op::Sleep(Span::Drawn(_)) => self.kinds[kind] = true,
            Op::Fork { kind } => self.kinds[kind as usize] = true,
            Op::Move { who, group } => {
                self.groups[group as usize] = true;
                self.mark_target(who);
            }
            Op::SetAffinity { who, .. } | Op::SetNice { who, .. } | Op::SetClass { who, .. } => {
                self.mark_target(who);
            }
            _ => {}
        }
    }

    fn mark_target(&mut self, who: Target) {
        if let Target::Kind(kind) = who {
            self.kinds[kind as usize] = true;
        }
    }

    fn mark_action(&mut self, action: Action) {
        match action {
            Action::WriteLimit { group, .. } | Action::WriteWeight { group, .. } => {
                self.groups[group as usize] = true;
            }
            Action::Move { kind, group } => {
                self.groups[group as usize] = true;
                self.kinds[kind as usize] = true;
            }
            Action::Signal { kind, .. }
            | Action::SetAffinity { kind, .. }
            | Action::SetNice { kind, .. }
            | Action::SetClass { kind, .. } => self.kinds[kind as usize] = true,
            Action::CpuOffline { .. } | Action::CpuOnline { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(text: &str) -> Alike {
        Alike::of(&cpumax_workload::parse(text, "t.toml").expect("a scenario"))
    }

    const SIBLINGS: &str = r#"
duration = "1s"
[[group]]
path = "/limited"
max = "10000 100000"
[[group]]
path = "/limited/leaf{0..2}"
[[task]]
name = "hog{0..2}"
group = "/limited/leaf{0..2}"
program = [{ forever = [{ user = "1s" }] }]
[[task]]
name = "left"
group = "/limited"
program = [{ user = "1ms" }]
[[task]]
name = "right"
group = "/limited"
program = [{ user = "1ms" }]
[[task]]
name = "longer"
group = "/limited"
program = [{ user = "2ms" }]
"#;

    #[test]
    fn what_differs_in_names_only_is_alike() {
        let found = alike(SIBLINGS);
        assert_eq!(found.groups, [["/limited/leaf0", "/limited/leaf1", "/limited/leaf2"]]);
        assert_eq!(found.tasks, [vec!["hog0", "hog1", "hog2"], vec!["left", "right"]]);
    }

    #[test]
    fn what_is_named_limited_or_drawn_is_not_alike() {
        let one = |more: &str| alike(&format!("{SIBLINGS}{more}")).groups.concat().join(" ");
        let two = "/limited/leaf0 /limited/leaf2";
        assert_eq!(one("[[at]]\ntime = \"1ms\"\ntask = \"hog1\"\nsignal = \"kill\"\n"), two);
        let write = "[[at]]\ntime = \"1ms\"\ngroup = \"/limited/leaf1\"\nmax = \"1000 100000\"\n";
        assert_eq!(one(write), two);
        let limited = SIBLINGS
            .replace("leaf{0..2}\"\n[[task]]", "leaf{0..2}\"\nmax = \"1000 100000\"\n[[task]]");
        assert_eq!(alike(&limited).groups, [[""; 0]; 0]);
        let drawn = SIBLINGS.replace("user = \"1ms\"", "user = { uniform = [\"1ms\", \"2ms\"] }");
        assert_eq!(alike(&drawn).tasks, [["hog0", "hog1", "hog2"]]);
    }

    #[test]
    fn what_is_alike_changes_places() {
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let alike = Alike { groups: Vec::new(), tasks: vec![names.clone()] };
        assert_eq!((alike.exchanges(), Alike::default().exchanges()), (3, 1));
        let mut all: BTreeMap<String, u32> =
            [("a", 1), ("b", 2), ("c", 3), ("d", 4)].map(|(name, n)| (name.to_owned(), n)).into();
        rotate(&mut all, &names, 1);
        assert_eq!(all.into_values().collect::<Vec<_>>(), [2, 3, 1, 4]);
    }
}
