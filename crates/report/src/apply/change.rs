//! The change of requests that goes with a new limit of CPU, and what the API server would refuse.
//!
//! The rule: a request in force stays, so that the scheduler and autoscalers see the same; above
//! the limit it is lowered to it; in a Guaranteed pod it is the limit. A container without request
//! and limit requests 0, as the API server would take the limit for its request. The class of
//! service stays, unless there is no other way: a limit makes a pod without any Burstable, and
//! one whose containers request all of it Guaranteed. The change is told, or refused.
//!
//! Answers to `ValidatePodResize()` and `validatePodResourceConsistency()` of Kubernetes 1.37.

use super::System;
use super::object::{Kind, Object, Refused, refused};
use super::quantity::Quantity;
use super::resources::{Amounts, Class, Container, Role};
use std::path::Path;

/// The container, or the pod as a whole, that gets a limit.
#[derive(Debug, Clone)]
pub struct Chosen {
    pub(super) object: Object,
    /// Index of the container; `None` is the pod.
    pub(super) container: Option<usize>,
}

/// The changes beside a limit.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Change {
    /// The request to write beside the limit; `None` leaves it as it is.
    pub request: Option<Quantity>,
    /// The request of the pod itself to write, where the limit is a container's.
    pub pod_request: Option<Quantity>,
    /// Sentences for the user.
    pub notes: Vec<String>,
}

impl Chosen {
    /// Reads the object at `path`, `-` for standard input, that is to be given in the form of
    /// `system`, and chooses its container of this name, or, without a name, the only one; with
    /// `is_pod` the pod's own resources. `None` without a path.
    ///
    /// # Errors
    /// The form needs an object, or has none; the file cannot be read, has no such object or
    /// container, or its limit cannot change.
    pub fn read(
        system: Option<System>,
        path: Option<&Path>,
        container: Option<&str>,
        is_pod: bool,
    ) -> Result<Option<Chosen>, Refused> {
        let system = system.unwrap_or(System::Cgroup);
        let Some(path) = path else {
            return match system {
                System::Kubectl | System::Helm | System::Kustomize => refused(format!(
                    "-o {} needs --object FILE, the output of kubectl get ... -o yaml",
                    system.name()
                )),
                _ => Ok(None),
            };
        };
        if matches!(system, System::Systemd | System::Docker | System::Cgroup) {
            let name = system.name();
            return refused(format!("--object is for Kubernetes: -o kubernetes, not -o {name}"));
        }
        let object = Object::read(path)?;
        if object.kind == Kind::Pod && matches!(system, System::Helm | System::Kustomize) {
            return refused("a Pod is resized in place: give -o kubernetes or -o kubectl");
        }
        Chosen::of(object, container, is_pod).map(Some)
    }

    /// Chooses in an object as `kubectl get ... -o json` prints it; as [`Chosen::read`].
    ///
    /// # Errors
    /// There is no such object or container, or its limit cannot change.
    pub fn parse(text: &str, container: Option<&str>, is_pod: bool) -> Result<Chosen, Refused> {
        Chosen::of(Object::parse(text)?, container, is_pod)
    }

    /// The limit of CPU that it has, `500m`.
    pub fn limit(&self) -> Option<String> {
        let pod = &self.object.pod;
        let resources = match self.container {
            Some(at) => Some(pod.containers[at].resources),
            None => pod.resources,
        };
        resources?.cpu.limit.map(|limit| limit.to_string())
    }

    /// Name of the container; `None` is the pod as a whole.
    pub fn container(&self) -> Option<&str> {
        self.container.map(|at| self.object.pod.containers[at].name.as_str())
    }

    pub(super) fn of(
        object: Object,
        container: Option<&str>,
        is_pod: bool,
    ) -> Result<Chosen, Refused> {
        let (title, pod) = (object.title(), &object.pod);
        if is_pod {
            if pod.resources.is_none() {
                return refused(format!(
                    "{title} has no resources of the pod itself (spec.resources, from Kubernetes \
                     1.34): give --container"
                ));
            }
            return Ok(Chosen { object, container: None });
        }
        let all = &pod.containers;
        let found = if let Some(name) = container {
            all.iter().position(|one| one.name == name)
        } else {
            let mut main = (0..all.len()).filter(|at| all[*at].role == Role::Main);
            main.next().filter(|_| main.next().is_none())
        };
        let Some(at) = found else {
            let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
            let what = match container {
                Some(name) => format!("has no container '{}'", crate::escape::line(name)),
                None => "has several containers".to_owned(),
            };
            return refused(format!("{title} {what}: give --container {}", names.join(" or ")));
        };
        if object.kind == Kind::Pod && all[at].role == Role::Init {
            return refused(format!("{title}: the init container {} has ended", all[at].name));
        }
        Ok(Chosen { object, container: Some(at) })
    }

    /// The changes beside a limit of so many thousandths of a CPU.
    pub(super) fn change(&self, milli: u64) -> Result<Change, Refused> {
        let limit = Quantity::of_milli(milli);
        let before = self.object.pod.class();
        let mut change = match self.container {
            Some(at) => self.of_container(at, limit, before)?,
            None => self.of_pod(limit, before)?,
        };
        let mut after = self.after(limit, &change);
        let less = limit.minus(Quantity::of_milli(1));
        // A pod requests as much as its containers together at least.
        let least = self.object.pod.aggregate(|of| of.cpu).filter(|_| self.container.is_none());
        if after == Class::Guaranteed && before != after && least <= Some(less) {
            change.request = Some(less);
            change.notes = vec![format!(
                "The request is {less}: as much as the limit would make the pod Guaranteed."
            )];
            after = self.after(limit, &change);
        }
        if before != after {
            let becomes = format!("from {before:?} to {after:?}");
            if self.object.kind == Kind::Pod {
                return refused(format!(
                    "{}: the limit would change its class of service {becomes}, and a resize may \
                     not: give the object that makes the pod",
                    self.object.title()
                ));
            }
            change.notes.push(format!("The pods' class of service changes {becomes}."));
        }
        change.notes.extend(self.conditions(limit, after));
        Ok(change)
    }

    /// The class of service with the limit and the change.
    fn after(&self, limit: Quantity, change: &Change) -> Class {
        let mut pod = self.object.pod.clone();
        let changed = match self.container {
            Some(at) => {
                if let (Some(own), Some(request)) = (&mut pod.resources, change.pod_request) {
                    own.cpu.request = Some(request);
                }
                Some(&mut pod.containers[at].resources)
            }
            None => pod.resources.as_mut(),
        };
        if let Some(changed) = changed {
            let request = change.request.or(changed.cpu.request);
            changed.cpu = Amounts { request, limit: Some(limit) };
        }
        pod.class()
    }

    fn of_container(&self, at: usize, limit: Quantity, class: Class) -> Result<Change, Refused> {
        let pod = &self.object.pod;
        let Container { name, resources, .. } = &pod.containers[at];
        let pod_limit = pod.resources.and_then(|own| own.cpu.limit);
        if let Some(most) = pod_limit.filter(|most| *most < limit) {
            return refused(format!(
                "{}: a limit of {limit} for {name} is above the pod's own limit of {most}: raise \
                 spec.resources.limits.cpu first, or give --whole-pod",
                self.object.title()
            ));
        }
        if class == Class::Guaranteed && pod.resources.is_none() {
            return Ok(equal(limit, resources.cpu));
        }
        let cpu = resources.cpu;
        let mut change = match (cpu.request, cpu.limit, pod_limit) {
            (Some(request), ..) => kept(request, limit),
            (None, Some(old), _) => written(old, limit),
            (None, None, Some(_)) => self.shared(at, limit),
            (None, None, None) => Change {
                request: Some(Quantity::default()),
                notes: vec![format!(
                    "{name} has no request: 0 keeps the API server from taking the limit for it. \
                     A LimitRange's default no longer counts."
                )],
                ..Change::default()
            },
        };
        // The API server would make the pod's own request of those of its containers.
        let own = pod.resources.filter(|own| own.cpu.request.is_none());
        if own.is_some() && change.request.is_some() {
            change.pod_request = pod.request(|of| of.cpu);
        }
        Ok(change)
    }

    /// A container without request and limit in a pod with a limit: kubelet weighs it by that. Its
    /// request becomes its limit, as far as the pod's own request has room.
    fn shared(&self, at: usize, limit: Quantity) -> Change {
        let mut pod = self.object.pod.clone();
        let most = pod.request(|of| of.cpu).unwrap_or_default();
        pod.containers[at].resources.cpu = Amounts { request: Some(limit), limit: Some(limit) };
        let excess = pod.aggregate(|of| of.cpu).unwrap_or_default().minus(most);
        let request = limit.minus(excess);
        let note = format!("It has no request of its own: {request} fits that of the pod, {most}.");
        Change { request: Some(request), notes: vec![note], ..Change::default() }
    }

    fn of_pod(&self, limit: Quantity, class: Class) -> Result<Change, Refused> {
        let (pod, title) = (&self.object.pod, self.object.title());
        let above = pod.containers.iter().find(|one| one.resources.cpu.limit > Some(limit));
        if let Some(Container { name, resources, .. }) = above {
            let own = resources.cpu.limit.unwrap_or_default();
            return refused(format!(
                "{title}: a limit of {limit} for the pod is below that of {name}, {own}: lower it \
                 first"
            ));
        }
        let least = pod.aggregate(|of| of.cpu).unwrap_or_default();
        if least > limit {
            return refused(format!(
                "{title}: a limit of {limit} for the pod is below the {least} that its containers \
                 request together: lower these first"
            ));
        }
        let cpu = pod.resources.map(|own| own.cpu).unwrap_or_default();
        Ok(match (cpu.request, pod.request(|of| of.cpu)) {
            _ if class == Class::Guaranteed => equal(limit, cpu),
            (Some(request), _) => kept(request, limit),
            (None, Some(request)) => written(request, limit),
            (None, None) => written(least, limit),
        })
    }

    /// Sentences on nodes and owners that the limit depends on.
    fn conditions(&self, limit: Quantity, class: Class) -> Vec<String> {
        let object = &self.object;
        let mut notes = Vec::new();
        let chosen = self.container.map(|at| &object.pod.containers[at]);
        let old = chosen.and_then(|container| container.resources.cpu.limit);
        let is_whole = limit.is_whole() || old.is_some_and(Quantity::is_whole);
        if class == Class::Guaranteed && is_whole && object.pod.resources.is_none() {
            notes.push(
                "With kubelet's CPU manager `static` a Guaranteed container with whole CPUs has \
                 them for itself, and no quota; a resize in place ends as Infeasible."
                    .to_owned(),
            );
        }
        if object.kind == Kind::Pod {
            if chosen.is_some_and(|container| container.restarts) {
                notes.push("Its resizePolicy restarts the container.".to_owned());
            }
            if let Some(owner) = &object.owner {
                notes.push(format!("New pods of {owner} have the old limit."));
            }
        }
        if let Some(keeper) = object.keeper {
            notes.push(format!("{keeper} keeps this object: change it in its source too."));
        }
        notes
    }
}

/// Request and limit of a Guaranteed pod.
fn equal(limit: Quantity, old: Amounts) -> Change {
    let old = old.in_force().filter(|old| *old != limit);
    let from = old.map_or_else(String::new, |old| format!(" from {old}"));
    let note =
        format!("The pod is Guaranteed and stays so: the request goes{from} to {limit} too.");
    Change { request: Some(limit), notes: vec![note], ..Change::default() }
}

/// A request that stays, or is lowered to the limit.
fn kept(request: Quantity, limit: Quantity) -> Change {
    if request <= limit {
        let note = format!("The request stays {request}.");
        return Change { notes: vec![note], ..Change::default() };
    }
    Change { request: Some(limit), notes: vec![lowered(request, limit)], ..Change::default() }
}

/// A request in force that the object does not have.
fn written(old: Quantity, limit: Quantity) -> Change {
    let request = old.min(limit);
    let note = if request < old {
        lowered(old, limit)
    } else {
        format!("The request in force, {request}, is written, else it would follow the limit.")
    };
    Change { request: Some(request), notes: vec![note], ..Change::default() }
}

fn lowered(old: Quantity, limit: Quantity) -> String {
    format!(
        "The request goes from {old} to {limit}, as it may not be above the limit: the scheduler \
         and autoscalers by utilization count less."
    )
}
