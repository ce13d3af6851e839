//! Finds the control group of a Kubernetes pod or container on its node.
//!
//! With the driver `cgroupfs` kubelet calls a pod's group `pod<UID>`, with the driver `systemd`
//! `...-pod<UID>.slice`, with underscores in the UID. Groups of containers are below it and have
//! the container's id as name, with `systemd` as `<runtime>-<id>.scope`. The UID of a pod with a
//! given namespace and name is in the names of kubelet's log folders. No API server is asked.

use crate::error::Error;
use crate::groups::{Group, Hierarchy};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of kubelet's pod logs, with entries `namespace_name_UID`. In the container of `kubectl
/// debug node/...` the node's files are below `/host`.
const LOGS: [&str; 2] = ["/var/log/pods", "/host/var/log/pods"];
/// Limits of the search; real nodes have less.
const DEPTH_MAX: usize = 16;
const GROUPS_MAX: usize = 200_000;
/// Least digits of a container's id: fewer may fit several.
const ID_MIN: usize = 12;

/// The group of a pod, by UID or `namespace/name`, or of a container, by its id.
///
/// # Errors
/// There is none on this node, or more than one.
pub(crate) fn find(asked: &str) -> Result<Group, Error> {
    let logs: Vec<PathBuf> = LOGS.iter().map(PathBuf::from).collect();
    find_in(&Hierarchy::all()?, &logs, asked)
}

fn find_in(hierarchies: &[Hierarchy], logs: &[PathBuf], asked: &str) -> Result<Group, Error> {
    let asked = bare(asked.strip_prefix("pod/").unwrap_or(asked));
    let (uids, what) = match asked.split_once('/') {
        Some((namespace, name)) => (uids(logs, namespace, name), "pod of this name"),
        None => (vec![asked.to_owned()], "pod or container of this UID or id"),
    };
    let shown = cpumax_limit::one_line(asked);
    if uids.is_empty() {
        let places: Vec<String> = logs.iter().map(|logs| cpumax_limit::shown(logs)).collect();
        return Err(Error::NotFound {
            what: format!(
                "{shown}: kubelet has no {what} here (looked in {}); give the pod's UID: kubectl \
                 get pod NAME -o jsonpath='{{.metadata.uid}}'",
                places.join(", ")
            ),
        });
    }
    let mut found = Vec::new();
    for hierarchy in hierarchies {
        search(hierarchy, &uids, &mut found);
        if !found.is_empty() {
            break;
        }
    }
    match found.len() {
        0 => Err(Error::NotFound {
            what: format!(
                "{shown}: no group of a {what} exists here: it runs on another node, or has ended"
            ),
        }),
        1 => Ok(found.remove(0)),
        _ => {
            let paths: Vec<&str> = found.iter().map(|group| &*group.path).collect();
            Err(Error::NotFound {
                what: format!(
                    "{shown} may be any of {}; give one of them with --cgroup",
                    paths.join(", ")
                ),
            })
        }
    }
}

/// Removes the scheme of a container id such as `containerd://...` from `kubectl describe`.
fn bare(asked: &str) -> &str {
    asked.rsplit_once("://").map_or(asked, |(_, id)| id)
}

/// UIDs of the pods with this name; log folders of ended pods may still exist.
fn uids(logs: &[PathBuf], namespace: &str, name: &str) -> Vec<String> {
    let begin = format!("{namespace}_{name}_");
    let of = |folder: &PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| Some(name.strip_prefix(&begin)?.to_owned())).collect::<Vec<_>>()
    };
    let mut uids: Vec<String> = logs.iter().flat_map(of).collect();
    uids.sort_unstable();
    uids.dedup();
    uids
}

/// Adds all groups of these pods or containers to `found`, by path.
fn search(hierarchy: &Hierarchy, uids: &[String], found: &mut Vec<Group>) {
    let mut to_do = vec![(hierarchy.root.clone(), 0)];
    let mut seen = 0;
    while let Some((folder, depth)) = to_do.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            seen += 1;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = entry.path();
            if uids.iter().any(|uid| is_called(&name, uid)) {
                found.extend(group(hierarchy, &path));
            } else if depth < DEPTH_MAX && seen < GROUPS_MAX {
                to_do.push((path, depth + 1));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
}

fn group(hierarchy: &Hierarchy, folder: &Path) -> Option<Group> {
    let below = folder.strip_prefix(&hierarchy.root).ok()?.to_str()?;
    Some(Group { hierarchy: hierarchy.clone(), path: format!("/{below}") })
}

/// Whether a group has the name of this pod or container.
fn is_called(name: &str, asked: &str) -> bool {
    let name = name.strip_suffix(".slice").or_else(|| name.strip_suffix(".scope")).unwrap_or(name);
    let is_pod = name.rsplit_once("pod").is_some_and(|(before, uid)| {
        (before.is_empty() || before.ends_with('-')) && same_uid(uid, asked)
    });
    let is_id = |id: &str| id.starts_with(asked) && id.bytes().all(|b| b.is_ascii_hexdigit());
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    is_pod || (asked.len() >= ID_MIN && is_id(id))
}

/// Compares UIDs; systemd replaces dashes, which separate levels of slices.
fn same_uid(uid: &str, asked: &str) -> bool {
    uid.len() == asked.len()
        && uid.bytes().zip(asked.bytes()).all(|(a, b)| a == b || (a == b'_' && b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6b1fb9f6-5b0a-4c0e-9d5f-0c3a4b1f7e21";
    const OTHER: &str = "aaaaaaaa-5b0a-4c0e-9d5f-0c3a4b1f7e21";
    const ID: &str = "4f1c0de2b7a94d4f8e5b6c7d8e9f00112233445566778899aabbccddeeff0011";

    /// A node's groups and log folders.
    struct Node {
        folder: tempfile::TempDir,
        is_version_1: bool,
    }

    impl Node {
        fn new(is_version_1: bool, groups: &[String], logs: &[String]) -> Node {
            let node = Node { folder: tempfile::tempdir().unwrap(), is_version_1 };
            for group in groups {
                fs::create_dir_all(node.folder.path().join("cgroup").join(group)).unwrap();
            }
            for log in logs {
                fs::create_dir_all(node.folder.path().join("logs").join(log)).unwrap();
            }
            node
        }

        fn find(&self, asked: &str) -> Result<String, String> {
            let root = self.folder.path().join("cgroup");
            let (inside, is_version_1) = ("/".to_owned(), self.is_version_1);
            let hierarchies = [Hierarchy { root, inside, is_version_1 }];
            let logs = [self.folder.path().join("logs")];
            let found = find_in(&hierarchies, &logs, asked);
            found.map(|group| group.path).map_err(|error| error.to_string())
        }
    }

    /// Path of a container's group with the driver `systemd`.
    fn systemd(class: &str, uid: &str, runtime: &str, id: &str) -> String {
        let uid = uid.replace('-', "_");
        let (class_slice, class_dash) = match class {
            "" => (String::new(), String::new()),
            class => (format!("kubepods-{class}.slice/"), format!("{class}-")),
        };
        format!(
            "kubepods.slice/{class_slice}kubepods-{class_dash}pod{uid}.slice/{runtime}-{id}.scope"
        )
    }

    #[test]
    fn pods_and_containers_are_found_with_either_driver() {
        for class in ["burstable", "besteffort", ""] {
            for runtime in ["cri-containerd", "crio", "docker"] {
                let container = systemd(class, UID, runtime, ID);
                let pod = container.rsplit_once('/').unwrap().0;
                let node = Node::new(
                    false,
                    &[container.clone(), systemd(class, OTHER, runtime, &ID.replace('4', "5"))],
                    &[],
                );
                assert_eq!(node.find(UID).unwrap(), format!("/{pod}"));
                assert_eq!(node.find(ID).unwrap(), format!("/{container}"));
                assert_eq!(
                    node.find(&format!("containerd://{ID}")).unwrap(),
                    format!("/{container}")
                );
                assert_eq!(node.find(&ID[..12]).unwrap(), format!("/{container}"));
            }
            let class = if class.is_empty() { String::new() } else { format!("{class}/") };
            for below in ["", "kubelet/", "system.slice/docker-0123.scope/kubelet/"] {
                let pod = format!("{below}kubepods/{class}pod{UID}");
                let node = Node::new(
                    true,
                    &[format!("{pod}/{ID}"), format!("{below}kubepods/{class}pod{OTHER}")],
                    &[],
                );
                assert_eq!(node.find(UID).unwrap(), format!("/{pod}"));
                assert_eq!(node.find(ID).unwrap(), format!("/{pod}/{ID}"));
            }
        }
    }

    #[test]
    fn a_pod_is_found_by_name_though_an_older_one_left_its_logs() {
        let logs = [
            format!("shop_web-0_{UID}"),
            format!("shop_web-0_{OTHER}"),
            format!("shop_web-01_{OTHER}"),
        ];
        let node = Node::new(false, &[systemd("burstable", UID, "crio", ID)], &logs);
        let pod = format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
            UID.replace('-', "_")
        );
        assert_eq!(node.find("shop/web-0"), Ok(pod.clone()));
        assert_eq!(node.find("pod/shop/web-0"), Ok(pod));
        assert!(node.find("shop/web").unwrap_err().contains("no pod of this name"));
        assert!(node.find("shop/web-01").unwrap_err().contains("another node"));
    }

    #[test]
    fn an_ambiguous_name_is_refused() {
        let groups = [systemd("burstable", UID, "crio", ID), format!("old/pod{UID}")];
        let node = Node::new(false, &groups, &[]);
        assert!(node.find(UID).unwrap_err().contains("may be any of"));
        for asked in ["4f1c", "", "kubepods", "burstable", "6b1fb9f6"] {
            assert!(node.find(asked).unwrap_err().contains("no group"), "{asked}");
        }
    }
}
