//! Reads groups: parents that no table lists, limits, weights and hierarchies.

use super::Reader;
use super::fields::{Fields, Read};
use super::language::Hierarchy;
use super::limit::{write_burst, write_max};
use super::ranges;
use crate::bounds::MAX_GROUPS;
use crate::check;
use crate::error::{Error, PartIx, Refusal};
use crate::model::{GroupIx, GroupSpec};
use crate::units::quoted;
use cpumax_limit::Limit;
use std::collections::BTreeMap;

impl<'t> Reader<'t> {
    /// Adds the groups of these tables in their order, and the root first. Parents without a table
    /// come before their first child.
    pub(super) fn read_groups(&mut self, tables: &[Fields<'t>]) -> Read<()> {
        self.add_group("/", None, None);
        let mut listed = BTreeMap::new();
        let mut count = 0;
        for &fields in tables {
            let path = fields.name("path")?;
            let limit = read_limit(&fields)?;
            let weight = read_weight(&fields)?;
            let v1 = fields.choice("hierarchy")?.map(|given: Hierarchy| given == Hierarchy::V1);
            let at = fields.at("path");
            let paths = ranges::groups(path, count).map_err(|refusal| refusal.at(at))?;
            count += paths.len();
            for path in paths {
                let ix = self.enter_group(&path, fields).map_err(|refusal| refusal.at(at))?;
                if listed.insert(ix, v1).is_some() {
                    let problem = format!("group {} is listed twice", quoted(&path));
                    let accepted = "list each group once";
                    return Err(Refusal::new(Error::Name, problem, accepted).at(at));
                }
                self.places.tables.insert(PartIx::Group(ix), fields);
                (self.parts.groups[ix].limit, self.parts.groups[ix].weight) = (limit, weight);
            }
        }
        self.set_hierarchies(&listed);
        Ok(())
    }

    /// The index of the group at this path, which is added with its parents where it is new.
    fn enter_group(&mut self, path: &str, fields: Fields<'t>) -> Read<usize> {
        let refuse = |problem: String, accepted| Err(Refusal::new(Error::Name, problem, accepted));
        if let Some(problem) = check::path_problem(path) {
            return refuse(problem, check::PATH_FORM);
        }
        if path == "/" {
            let problem = "the root group `/` has no limit and no weight".to_owned();
            return refuse(problem, "list the groups below it");
        }
        let mut ix = 0;
        let ends = path.match_indices('/').map(|(end, _)| end).skip(1).chain([path.len()]);
        for end in ends {
            let above = &path[..end];
            let parent = Some(ix);
            ix = match self.groups.get(above) {
                Some(ix) => ix,
                None => self.add_group(above, parent, Some(fields)),
            };
        }
        if self.parts.groups.len() as u64 > MAX_GROUPS {
            let problem = format!("more than {MAX_GROUPS} groups, implied parents included");
            return Err(Refusal::new(Error::Value, problem, ""));
        }
        Ok(ix as usize)
    }

    /// Adds a group without a limit, of weight 100, which must be new; returns its index.
    fn add_group(
        &mut self,
        path: &str,
        parent: Option<GroupIx>,
        fields: Option<Fields<'t>>,
    ) -> GroupIx {
        let (path, limit) = (path.to_owned(), Limit::UNLIMITED);
        let ix = self.groups.add(&path);
        if let Some(fields) = fields {
            self.places.tables.insert(PartIx::Group(ix as usize), fields);
        }
        self.parts.groups.push(GroupSpec { path, parent, limit, weight: 100, v1: false });
        ix
    }

    /// Sets the hierarchy of each group. `listed`: what its table gives, if it has one. A group
    /// whose table gives none has that of its parent; one without a table that of its children.
    fn set_hierarchies(&mut self, listed: &BTreeMap<usize, Option<bool>>) {
        let groups = &mut self.parts.groups;
        let parents: Vec<usize> =
            groups.iter().map(|group| group.parent.unwrap_or(0) as usize).collect();
        let given = |ix| listed.get(&ix).copied().flatten();
        let mut v1: Vec<Option<bool>> = (0..groups.len()).map(given).collect();
        for (ix, &parent) in parents.iter().enumerate().skip(1).rev() {
            if parent != 0 && !listed.contains_key(&parent) && v1[ix].is_some() {
                v1[parent] = v1[ix];
            }
        }
        for (ix, &parent) in parents.iter().enumerate().skip(1) {
            groups[ix].v1 = v1[ix].unwrap_or(groups[parent].v1);
        }
    }
}

/// Reads `max` and `burst`, which are refused as the kernel would refuse them.
fn read_limit(fields: &Fields<'_>) -> Read<Limit> {
    let mut limit = Limit::UNLIMITED;
    if let Some(text) = fields.text("max")? {
        limit = write_max(limit, text).map_err(|refusal| refusal.at(fields.at("max")))?;
    }
    if let Some(text) = fields.digits("burst")? {
        limit = write_burst(limit, &text).map_err(|refusal| refusal.at(fields.at("burst")))?;
    }
    Ok(limit)
}

/// Reads `weight`, or `shares` of v1, which become a weight.
fn read_weight(fields: &Fields<'_>) -> Read<u32> {
    let shares = fields.number("shares")?;
    match (fields.number("weight")?, shares) {
        (Some(_), Some(_)) => {
            let problem = "both `weight` and `shares`";
            Err(Refusal::new(Error::Field, problem, "one of them").at(fields.at("shares")))
        }
        (Some(weight), None) => Ok(weight as u32),
        // 1024 shares are a weight of 100; rounded to the nearest.
        (None, Some(shares)) => Ok(((shares * 100 + 512) / 1024).clamp(1, 10_000) as u32),
        (None, None) => Ok(100),
    }
}
