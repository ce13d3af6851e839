//! Groups and kinds of tasks that differ in nothing but their names.
//!
//! Which of sixteen equal siblings gets nothing is decided by microseconds; that one does not is a matter of the rules. So
//! what one of them does in a run the others might have done as well: a run stands for all in which they change places.

use cpumax_outcome::Outcome;
use cpumax_workload::{Action, GroupSpec, Op, Span, Target, TaskSpec, Workload};
use std::collections::BTreeMap;

/// Names of what is alike; only sets of two and more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alike {
    groups: Vec<Vec<String>>,
    tasks: Vec<Vec<String>>,
}

/// A group at the bottom and the kinds in it, without names.
#[derive(PartialEq)]
struct Bottom {
    group: GroupSpec,
    tasks: Vec<TaskSpec>,
}

impl Alike {
    /// What is alike in a workload.
    pub fn of(workload: &Workload) -> Alike {
        let mut alike = Alike::default();
        let mut bottoms: Vec<(Bottom, Vec<usize>)> = Vec::new();
        for (ix, group) in workload.groups.iter().enumerate().skip(1) {
            let kinds = kinds_in(workload, ix);
            let is_leaf = workload.groups.iter().all(|other| other.parent != Some(ix as u32));
            let free = is_leaf
                && group.limit.quota_ns().is_none()
                && !names_group(workload, ix)
                && kinds.iter().all(|&kind| may_be_alike(workload, kind));
            if free {
                let group = GroupSpec { path: String::new(), ..group.clone() };
                let tasks = kinds.iter().map(|&kind| nameless(workload, kind)).collect();
                into_class(&mut bottoms, Bottom { group, tasks }, ix);
            }
        }
        let mut done = vec![false; workload.groups.len()];
        for (_, members) in bottoms.iter().filter(|(_, members)| members.len() > 1) {
            let path = |&ix: &usize| workload.groups[ix].path.clone();
            alike.groups.push(members.iter().map(path).collect());
            let kinds: Vec<_> = members.iter().map(|&ix| kinds_in(workload, ix)).collect();
            for at in 0..kinds[0].len() {
                let name = |kinds: &Vec<usize>| workload.tasks[kinds[at]].name.clone();
                alike.tasks.push(kinds.iter().map(name).collect());
            }
            for &ix in members {
                done[ix] = true;
            }
        }
        let mut kinds: Vec<((u32, TaskSpec), Vec<usize>)> = Vec::new();
        for (kind, spec) in workload.tasks.iter().enumerate() {
            if !done[spec.group as usize] && may_be_alike(workload, kind) {
                into_class(&mut kinds, (spec.group, nameless(workload, kind)), kind);
            }
        }
        for (_, members) in kinds.iter().filter(|(_, members)| members.len() > 1) {
            let name = |&kind: &usize| workload.tasks[kind].name.clone();
            alike.tasks.push(members.iter().map(name).collect());
        }
        alike
    }

    /// In how many ways they change places by [`Alike::turned`], staying where they are included: of many, some.
    pub fn turns(&self) -> usize {
        const MOST: usize = 32;
        self.groups.iter().chain(&self.tasks).map(Vec::len).max().unwrap_or(1).min(MOST)
    }

    /// The outcome of a run in which everybody was in the place of who comes that much after him.
    pub fn turned(&self, outcome: &Outcome, by: usize) -> Outcome {
        let mut outcome = outcome.clone();
        if by > 0 {
            self.groups.iter().for_each(|names| turn(&mut outcome.groups, names, by));
            self.tasks.iter().for_each(|names| turn(&mut outcome.tasks, names, by));
        }
        outcome
    }
}

fn turn<T>(all: &mut BTreeMap<String, T>, names: &[String], by: usize) {
    let mut values: Vec<Option<T>> = names.iter().map(|name| all.remove(name)).collect();
    let len = values.len();
    values.rotate_left(by % len);
    for (name, value) in names.iter().zip(values) {
        all.extend(value.map(|value| (name.clone(), value)));
    }
}

fn into_class<K: PartialEq>(classes: &mut Vec<(K, Vec<usize>)>, key: K, member: usize) {
    match classes.iter_mut().find(|(other, _)| *other == key) {
        Some((_, members)) => members.push(member),
        None => classes.push((key, vec![member])),
    }
}

fn kinds_in(workload: &Workload, group: usize) -> Vec<usize> {
    (0..workload.tasks.len()).filter(|&kind| workload.tasks[kind].group as usize == group).collect()
}

fn nameless(workload: &Workload, kind: usize) -> TaskSpec {
    TaskSpec { name: String::new(), group: 0, ..workload.tasks[kind].clone() }
}

/// Whether nothing names a kind, and nothing it does is drawn: what is drawn differs from kind to kind.
fn may_be_alike(workload: &Workload, kind: usize) -> bool {
    let drawn = |op: &Op| {
        matches!(op, Op::User(Span::Drawn(_)) | Op::Kernel(Span::Drawn(_)))
            || matches!(op, Op::IrqOff(Span::Drawn(_)) | Op::Sleep(Span::Drawn(_)))
    };
    let named = |op: &Op| match *op {
        Op::Fork { kind: named } => named as usize == kind,
        Op::Move { who, .. }
        | Op::SetAffinity { who, .. }
        | Op::SetNice { who, .. }
        | Op::SetClass { who, .. } => who == Target::Kind(kind as u32),
        _ => false,
    };
    let by_action = |action: Action| match action {
        Action::Signal { kind: named, .. }
        | Action::Move { kind: named, .. }
        | Action::SetAffinity { kind: named, .. }
        | Action::SetNice { kind: named, .. }
        | Action::SetClass { kind: named, .. } => named as usize == kind,
        _ => false,
    };
    !workload.tasks[kind].program.iter().any(drawn)
        && !workload.tasks.iter().flat_map(|task| &task.program).any(named)
        && !workload.interventions.iter().any(|i| by_action(i.action))
}

/// Whether something is done to a group, or somebody is moved to it.
fn names_group(workload: &Workload, ix: usize) -> bool {
    let moves = |op: &Op| matches!(*op, Op::Move { group, .. } if group as usize == ix);
    let acts = |action: Action| match action {
        Action::WriteLimit { group, .. }
        | Action::WriteWeight { group, .. }
        | Action::Move { group, .. } => group as usize == ix,
        _ => false,
    };
    workload.tasks.iter().flat_map(|task| &task.program).any(moves)
        || workload.interventions.iter().any(|i| acts(i.action))
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
        assert_eq!((alike.turns(), Alike::default().turns()), (3, 1));
        let mut all: BTreeMap<String, u32> =
            [("a", 1), ("b", 2), ("c", 3), ("d", 4)].map(|(name, n)| (name.to_owned(), n)).into();
        turn(&mut all, &names, 1);
        assert_eq!(all.into_values().collect::<Vec<_>>(), [2, 3, 1, 4]);
    }
}
