//! An object of Kubernetes whose container is to get a limit, as `kubectl get ... -o yaml` or
//! `-o json` prints it: its kind and name, the resources of its containers and of its pod.
//!
//! An object that the API server would not change, or only for pods that another object makes anew,
//! is refused here.

use super::quantity::Quantity;
use super::resources::{Amounts, Container, Pod, Resources, Role};
use crate::escape;
use serde::Deserialize;
use std::io::{self, Read};
use std::path::Path;

/// The API server's store takes objects up to 1.5 MiB; a list of one adds little.
const BYTES_MAX: u64 = 4 << 20;

/// The objects whose containers have limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Pods that are replaced by a roll-out.
    Deployment,
    /// Pods with fixed names.
    StatefulSet,
    /// A pod on each node.
    DaemonSet,
    /// Pods that are not replaced.
    ReplicaSet,
    /// Pods that end.
    Job,
    /// Jobs by the clock.
    CronJob,
    /// One pod, resized in place.
    Pod,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Deployment,
        Kind::StatefulSet,
        Kind::DaemonSet,
        Kind::ReplicaSet,
        Kind::Job,
        Kind::CronJob,
        Kind::Pod,
    ];

    /// The name in the object, and the version of its API.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Kind::Deployment => ("Deployment", "apps/v1"),
            Kind::StatefulSet => ("StatefulSet", "apps/v1"),
            Kind::DaemonSet => ("DaemonSet", "apps/v1"),
            Kind::ReplicaSet => ("ReplicaSet", "apps/v1"),
            Kind::Job => ("Job", "batch/v1"),
            Kind::CronJob => ("CronJob", "batch/v1"),
            Kind::Pod => ("Pod", "v1"),
        }
    }

    /// The fields from the object to the specification of its pods.
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Kind::Pod => &["spec"],
            Kind::CronJob => &["spec", "jobTemplate", "spec", "template", "spec"],
            _ => &["spec", "template", "spec"],
        }
    }
}

/// An object that can be patched.
#[derive(Debug, Clone)]
pub struct Object {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    /// The object that makes this pod, as `ReplicaSet/web-5d4`.
    pub(super) owner: Option<String>,
    /// The program whose source has the object too, and overwrites it from there.
    pub(super) keeper: Option<&'static str>,
    /// Whether pods take a change only when they are deleted by hand.
    pub(super) is_on_delete: bool,
    pub(super) pod: Pod,
}

/// The object cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub(super) String);

/// An error with these words.
pub(super) fn refused<T>(words: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(words.into()))
}

impl Object {
    /// Reads an object, or a list of one; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be read, has no such object, or the API server would not change it.
    pub(super) fn read(path: &Path) -> Result<Object, Refused> {
        let mut text = String::new();
        let open = || -> io::Result<Box<dyn Read>> {
            Ok(if path == Path::new("-") {
                Box::new(io::stdin())
            } else {
                Box::new(std::fs::File::open(path)?)
            })
        };
        let read = open().and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
        let object = match read {
            Err(error) => refused(error.to_string()),
            Ok(bytes) if bytes as u64 > BYTES_MAX => {
                refused(format!("has more than {BYTES_MAX} bytes: give one object"))
            }
            Ok(_) => Object::parse(&text),
        };
        object.map_err(|Refused(why)| Refused(format!("{}: {why}", escape::path(path))))
    }

    /// Parses YAML or JSON.
    pub(super) fn parse(text: &str) -> Result<Object, Refused> {
        let options = serde_saphyr::options! { with_snippet: false };
        let written: Written = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| Refused(escape::line(&error.to_string()).into_owned()))?;
        match written.items {
            None => Object::of(written),
            Some(mut items) if items.len() == 1 => Object::of(items.remove(0)),
            Some(items) => refused(format!("a list of {} objects: give one", items.len())),
        }
    }

    fn of(written: Written) -> Result<Object, Refused> {
        let Some(kind) = Kind::ALL
            .into_iter()
            .find(|kind| kind.names() == (written.kind.as_str(), written.api_version.as_str()))
        else {
            let known = Kind::ALL.map(|kind| kind.names().0).join(", ");
            let (kind, version) = (escape::line(&written.kind), escape::line(&written.api_version));
            return refused(format!("'{kind}' of '{version}' is not known: give a {known}"));
        };
        let Meta { name, namespace, labels, annotations, owner_references } = written.metadata;
        for name in [Some(&name), namespace.as_ref()].into_iter().flatten() {
            if !is_name(name) {
                return refused(format!("'{}' is no name of an object", escape::line(name)));
            }
        }
        let mut owners = owner_references.into_iter().flatten().filter(|owner| owner.controller);
        let owner = owners
            .next()
            .map(|owner| escape::line(&format!("{}/{}", owner.kind, owner.name)).into_owned());
        let spec = written.spec.unwrap_or_default();
        let has = |name: &str| {
            let all = [&labels, &annotations].into_iter().flatten();
            all.flat_map(|of| of.iter()).any(|(key, _)| key == name)
        };
        refuse_unchangeable(kind, owner.as_deref(), &spec, written.status.as_ref(), &has)?;
        let is_on_delete = spec.update_strategy.as_ref().is_some_and(|way| way.way == "OnDelete");
        let Some(pod) = spec.pod(kind) else {
            return refused(format!("has no containers in {}", kind.path().join(".")));
        };
        let keeper = KEEPERS.iter().find(|(mark, _)| has(mark)).map(|(_, keeper)| *keeper);
        let pod = pod.into_pod()?;
        Ok(Object { kind, name, namespace, owner, keeper, is_on_delete, pod })
    }

    /// The kind and the name, as in `Deployment/web`.
    pub(super) fn title(&self) -> String {
        format!("{}/{}", self.kind.names().0, self.name)
    }
}

/// Labels and annotations by which programs mark what they keep.
const KEEPERS: [(&str, &str); 5] = [
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("meta.helm.sh/release-name", "Helm"),
];

/// The annotation of a pod that stands for a file on its node.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// An error for an object whose pods would not change by a patch.
fn refuse_unchangeable(
    kind: Kind,
    owner: Option<&str>,
    spec: &Spec,
    status: Option<&Status>,
    has: &dyn Fn(&str) -> bool,
) -> Result<(), Refused> {
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let is_windows = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    match (kind, owner) {
        (Kind::Pod, _) if has(MIRROR) => {
            refused("a static pod cannot be resized: change its file on the node")
        }
        (Kind::Pod, _) if is_windows => refused("a pod of Windows cannot be resized"),
        (Kind::Pod, _) if matches!(phase, "Succeeded" | "Failed") => {
            refused("the pod has ended: give the object that makes it")
        }
        (Kind::Pod, _) => Ok(()),
        (_, Some(owner)) => {
            refused(format!("{owner} makes this object and keeps it as it is: give {owner}"))
        }
        (Kind::Job, None) if spec.suspend != Some(true) => refused(
            "the template of a Job cannot change unless the Job is suspended: delete it and create \
             it anew with the limit, or give its running Pod",
        ),
        _ => Ok(()),
    }
}

/// Whether an object, a namespace or a container may have this name: a DNS subdomain.
fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() < 254
        && bytes.iter().all(|byte| is_inner(*byte))
        && ends(bytes.first())
        && ends(bytes.last())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    api_version: String,
    kind: String,
    #[serde(default)]
    metadata: Meta,
    spec: Option<Spec>,
    status: Option<Status>,
    items: Option<Vec<Written>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    name: String,
    namespace: Option<String>,
    labels: Option<Marks>,
    annotations: Option<Marks>,
    owner_references: Option<Vec<Owner>>,
}

type Marks = std::collections::BTreeMap<String, serde_json::Value>;

#[derive(Deserialize)]
struct Owner {
    kind: String,
    name: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Deserialize)]
struct Status {
    phase: Option<String>,
}

/// A specification of any kind: that of a pod has containers, others a template.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    template: Option<Box<Template>>,
    job_template: Option<Box<Template>>,
    containers: Option<Vec<WrittenContainer>>,
    init_containers: Option<Vec<WrittenContainer>>,
    resources: Option<WrittenResources>,
    suspend: Option<bool>,
    update_strategy: Option<Strategy>,
    os: Option<Os>,
}

#[derive(Deserialize)]
struct Template {
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Strategy {
    #[serde(rename = "type", default)]
    way: String,
}

#[derive(Deserialize)]
struct Os {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenContainer {
    name: String,
    #[serde(default)]
    resources: Option<WrittenResources>,
    restart_policy: Option<String>,
    resize_policy: Option<Vec<ResizePolicy>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResizePolicy {
    resource_name: String,
    restart_policy: String,
}

#[derive(Deserialize, Default, Clone, Copy)]
struct WrittenResources {
    requests: Option<List>,
    limits: Option<List>,
}

#[derive(Deserialize, Default, Clone, Copy)]
struct List {
    cpu: Option<Quantity>,
    memory: Option<Quantity>,
}

impl Spec {
    /// The specification of the pods; `None` if it has none.
    fn pod(self, kind: Kind) -> Option<Spec> {
        match kind {
            Kind::Pod => Some(self),
            Kind::CronJob => self.job_template?.spec?.template?.spec,
            _ => self.template?.spec,
        }
        .filter(|pod| pod.containers.as_ref().is_some_and(|containers| !containers.is_empty()))
    }

    fn into_pod(self) -> Result<Pod, Refused> {
        let of = |written: WrittenContainer, is_init: bool| {
            if !is_name(&written.name) {
                let name = escape::line(&written.name).into_owned();
                return refused(format!("'{name}' is no name of a container"));
            }
            let role = match written.restart_policy.as_deref() {
                Some("Always") if is_init => Role::Sidecar,
                _ if is_init => Role::Init,
                _ => Role::Main,
            };
            let restarts = written.resize_policy.into_iter().flatten().any(|policy| {
                policy.resource_name == "cpu" && policy.restart_policy == "RestartContainer"
            });
            let resources = written.resources.unwrap_or_default().into();
            Ok(Container { name: written.name, role, resources, restarts })
        };
        let main = self.containers.into_iter().flatten().map(|one| of(one, false));
        let init = self.init_containers.into_iter().flatten().map(|one| of(one, true));
        let containers = init.chain(main).collect::<Result<_, _>>()?;
        let resources = self.resources.map(Resources::from);
        let resources = resources.filter(|own| *own != Resources::default());
        Ok(Pod { containers, resources })
    }
}

impl From<WrittenResources> for Resources {
    fn from(written: WrittenResources) -> Resources {
        let requests = written.requests.unwrap_or_default();
        let limits = written.limits.unwrap_or_default();
        let of = |request, limit| Amounts { request, limit };
        Resources { cpu: of(requests.cpu, limits.cpu), memory: of(requests.memory, limits.memory) }
    }
}
