//! A limit of CPU for Kubernetes: a strategic-merge patch, the `kubectl` line with the patch in it,
//! values for a Helm chart, or a patch in a kustomization.

use super::System;
use super::change::{Change, Chosen};
use super::object::{Kind, Refused};
use super::quantity::Quantity;
use super::resources::Role;
use crate::Page;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Width of comments.
const PAGE: u16 = 96;

/// Comments of a patch for no object in particular.
const WITHOUT_OBJECT: [&str; 3] = [
    "For a Deployment, StatefulSet or DaemonSet. Put the container's name in place of CONTAINER, \
     then:",
    "  kubectl patch deployment NAME --type strategic --patch-file FILE",
    "The API server refuses a limit below the request. --object FILE, as kubectl get ... -o yaml \
     prints it, fits the patch to its kind and requests.",
];

/// The limit in one of the forms of Kubernetes; `why` names it, and nodes need `period_us`.
pub(super) fn form(
    system: System,
    chosen: Option<&Chosen>,
    milli: u64,
    period_us: u64,
    why: &str,
) -> Result<String, Refused> {
    let mut notes = vec![why.to_owned()];
    let body = if let Some(chosen) = chosen {
        of_object(system, chosen, milli, &mut notes)?
    } else {
        notes.extend(WITHOUT_OBJECT.map(str::to_owned));
        let limits = resources(milli, &Change::default());
        let containers = json!({ "containers": [{ "name": "CONTAINER", "resources": limits }] });
        yaml(&at(Kind::Deployment.path(), containers))?
    };
    notes
        .push("Whole thousandths of a CPU; parts of one are rounded up. There is no burst.".into());
    let period = "The period is kubelet's --cpu-cfs-quota-period, one for all containers of a node";
    notes.push(match period_us {
        100_000 => format!("{period}: 100ms unless set."),
        _ => format!("{period}: it must be {period_us}us for this limit to do what is said."),
    });
    let mut out = String::new();
    for note in notes {
        // A command stays on one line.
        let wrapped = Page::of(Some(PAGE)).wrapped(&note);
        let told = if note.starts_with("  ") { &note } else { &wrapped };
        for line in told.lines() {
            let _ = writeln!(out, "# {line}");
        }
    }
    Ok(out + &body)
}

/// A limit for an object.
#[derive(Debug)]
pub struct Patch {
    /// Sentences for the user: when pods take it, and what changes beside it.
    pub notes: Vec<String>,
    /// Words of kubectl, such as `patch deployment web -n shop --type strategic`.
    pub words: String,
    /// The strategic-merge patch.
    pub body: Value,
    /// The limit, `500m`.
    pub limit: String,
    /// Whether a roll-out replaces the pods.
    pub rolls_out: bool,
    resources: Value,
}

impl Chosen {
    /// The patch for a limit of so many thousandths of a CPU.
    ///
    /// # Errors
    /// The API server would refuse it.
    pub fn patch(&self, milli: u64) -> Result<Patch, Refused> {
        let change = self.change(milli)?;
        let (object, kind) = (&self.object, self.object.kind);
        let what = self.container.map_or_else(
            || "the pod as a whole".to_owned(),
            |at| format!("container {}", object.pod.containers[at].name),
        );
        let mut notes = vec![format!("{}, {what}. {}", object.title(), taken(self))];
        notes.extend(change.notes.iter().cloned());
        let resize = if kind == Kind::Pod { " --subresource resize" } else { "" };
        let words = format!(
            "patch {} {}{}{resize} --type strategic",
            kind.names().0.to_lowercase(),
            object.name,
            in_namespace(self)
        );
        let replaced = matches!(kind, Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet);
        Ok(Patch {
            notes,
            words,
            body: at(kind.path(), spec(self, milli, &change)),
            limit: Quantity::of_milli(milli).to_string(),
            rolls_out: replaced && !object.is_on_delete,
            resources: resources(milli, &change),
        })
    }
}

fn in_namespace(chosen: &Chosen) -> String {
    chosen.object.namespace.as_ref().map_or_else(String::new, |of| format!(" -n {of}"))
}

/// The form for an object; adds what goes with it to `notes`.
fn of_object(
    system: System,
    chosen: &Chosen,
    milli: u64,
    notes: &mut Vec<String>,
) -> Result<String, Refused> {
    let Patch { notes: more, words, body, resources, .. } = chosen.patch(milli)?;
    notes.extend(more);
    let (name, (kind, version)) = (&chosen.object.name, chosen.object.kind.names());
    match system {
        System::Kubectl => Ok(format!("kubectl {words} -p '{body}'\n")),
        System::Helm => {
            notes.push(
                "For a chart that has the container's resources under `resources`, as most do; \
                 other charts have them under the container's name:"
                    .to_owned(),
            );
            let namespace = in_namespace(chosen);
            notes.push(format!("  helm upgrade RELEASE CHART{namespace} --reuse-values -f FILE"));
            yaml(&json!({ "resources": resources }))
        }
        System::Kustomize => {
            notes.push("In the kustomization.yaml of the object, then:".to_owned());
            notes.push("  kubectl apply -k FOLDER".to_owned());
            let mut whole = body;
            whole["apiVersion"] = version.into();
            whole["kind"] = kind.into();
            whole["metadata"] = json!({ "name": name });
            let lines = yaml(&whole)?.replace('\n', "\n    ");
            Ok(format!(
                "patches:\n- target: {{kind: {kind}, name: {name}}}\n  patch: |-\n    {}\n",
                lines.trim_end()
            ))
        }
        _ => {
            notes.push(format!("  kubectl {words} --patch-file FILE"));
            yaml(&body)
        }
    }
}

/// When pods take the new limit.
fn taken(chosen: &Chosen) -> &'static str {
    match chosen.object.kind {
        _ if chosen.object.is_on_delete => "A pod takes it after it was deleted (OnDelete).",
        Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet => "A roll-out replaces its pods.",
        Kind::ReplicaSet => "New pods take it, those that run do not.",
        Kind::Job => "It is suspended; Kubernetes takes the change from 1.36 on.",
        Kind::CronJob => "The next run takes it.",
        Kind::Pod if chosen.container.is_none() => {
            "In place, from Kubernetes 1.36 and kubectl 1.32 on."
        }
        Kind::Pod => "In place, from Kubernetes 1.33 and kubectl 1.32 on.",
    }
}

/// The part of the specification of pods that changes.
fn spec(chosen: &Chosen, milli: u64, change: &Change) -> Value {
    let resources = resources(milli, change);
    let Some(at) = chosen.container else { return json!({ "resources": resources }) };
    let container = &chosen.object.pod.containers[at];
    let list = match container.role {
        Role::Main => "containers",
        Role::Sidecar | Role::Init => "initContainers",
    };
    let mut spec = json!({ list: [{ "name": container.name, "resources": resources }] });
    if let Some(request) = change.pod_request {
        spec["resources"] = json!({ "requests": { "cpu": request.to_string() } });
    }
    spec
}

/// The limit, and the request where it changes.
fn resources(milli: u64, change: &Change) -> Value {
    let mut resources = json!({ "limits": { "cpu": Quantity::of_milli(milli).to_string() } });
    if let Some(request) = change.request {
        resources["requests"] = json!({ "cpu": request.to_string() });
    }
    resources
}

/// The value below these fields.
fn at(path: &[&str], value: Value) -> Value {
    path.iter()
        .rev()
        .fold(value, |below, field| Value::Object(Map::from_iter([((*field).to_owned(), below)])))
}

fn yaml(value: &Value) -> Result<String, Refused> {
    let options = serde_saphyr::ser_options! { compact_list_indent: true };
    serde_saphyr::to_string_with_options(value, options)
        .map_err(|error| Refused(format!("the patch cannot be written: {error}")))
}

#[cfg(test)]
mod tests;
