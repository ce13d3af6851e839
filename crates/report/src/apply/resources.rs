//! Requests and limits of a pod and its containers, as the API server completes them, and the class
//! of service that follows.
//!
//! Answers to `SetDefaults_Pod()`, `ComputePodQOS()` and `AggregateContainerRequests()` of
//! Kubernetes 1.37. Of the resources only CPU and memory decide the class.

use super::quantity::Quantity;

/// A pod.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Init containers in their order, then the others.
    pub containers: Vec<Container>,
    /// Those of the pod itself, from Kubernetes 1.34.
    pub resources: Option<Resources>,
}

/// A container.
#[derive(Debug, Clone)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// When it runs.
    pub role: Role,
    /// Its requests and limits.
    pub resources: Resources,
    /// Whether a change of its CPU restarts it.
    pub restarts: bool,
}

/// When a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// As long as the pod.
    Main,
    /// From before the others start until they end: an init container that restarts always.
    Sidecar,
    /// Before the others.
    Init,
}

/// Requests and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Of CPU.
    pub cpu: Amounts,
    /// Of memory.
    pub memory: Amounts,
}

/// The request and the limit of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    /// The amount that the scheduler counts.
    pub request: Option<Quantity>,
    /// The most that is used.
    pub limit: Option<Quantity>,
}

/// The class of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Neither requests nor limits.
    BestEffort,
    /// Others.
    Burstable,
    /// Limits that are requests, of CPU and memory, everywhere.
    Guaranteed,
}

impl Amounts {
    /// The request in force: without one the limit.
    pub fn in_force(self) -> Option<Quantity> {
        self.request.or(self.limit)
    }

    fn class(self) -> Class {
        let of = |amount: Option<Quantity>| amount.unwrap_or_default();
        match (of(self.in_force()), of(self.limit)) {
            (request, limit) if request != limit => Class::Burstable,
            (request, _) if request.is_zero() => Class::BestEffort,
            _ => Class::Guaranteed,
        }
    }
}

impl Resources {
    fn class(self) -> Class {
        common([self.cpu.class(), self.memory.class()].into_iter())
    }
}

/// The class of all parts, Burstable if they differ.
fn common(mut parts: impl Iterator<Item = Class>) -> Class {
    let first = parts.next().unwrap_or(Class::BestEffort);
    if parts.all(|part| part == first) { first } else { Class::Burstable }
}

impl Pod {
    /// The class of service. The pod's own resources decide it alone where there are any.
    pub fn class(&self) -> Class {
        match self.resources {
            Some(own) => {
                let with = |own: Amounts, request| Amounts { request, ..own };
                let cpu = with(own.cpu, self.request(|of| of.cpu));
                let memory = with(own.memory, self.request(|of| of.memory));
                Resources { cpu, memory }.class()
            }
            None => common(self.containers.iter().map(|container| container.resources.class())),
        }
    }

    /// The pod's own request in force: without one that of its containers, else its limit.
    pub fn request(&self, of: fn(&Resources) -> Amounts) -> Option<Quantity> {
        let resources = self.resources.as_ref()?;
        let own = of(resources);
        // Any limit of the pod makes the API server complete its requests.
        let is_limited = resources.cpu.limit.or(resources.memory.limit).is_some();
        let completed = || self.aggregate(of).filter(|_| is_limited).or(own.limit);
        own.request.or_else(completed)
    }

    /// The most that the containers request at the same time; `None` if none requests anything.
    pub fn aggregate(&self, of: fn(&Resources) -> Amounts) -> Option<Quantity> {
        let [mut together, mut sidecars, mut most] = [Quantity::default(); 3];
        let mut is_any = false;
        for container in &self.containers {
            let request = of(&container.resources).in_force();
            is_any |= request.is_some();
            let request = request.unwrap_or_default();
            match container.role {
                Role::Main => together = together.plus(request),
                Role::Sidecar => {
                    sidecars = sidecars.plus(request);
                    most = most.max(sidecars);
                }
                Role::Init => most = most.max(sidecars.plus(request)),
            }
        }
        is_any.then(|| most.max(together.plus(sidecars)))
    }
}
