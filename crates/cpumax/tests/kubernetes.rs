//! Limits for objects of Kubernetes on a real API server (`make kube`): it takes each form of a
//! patch and does what the comments say, and refuses what is refused beforehand.

#[path = "kubernetes/cluster.rs"]
mod cluster;
#[path = "kubernetes/node.rs"]
mod node;
#[path = "kubernetes/plugin.rs"]
mod plugin;

use cluster::{Cluster, cluster};
use cpumax_report::{Chosen, System, limit_in_form};
use cpumax_study::Try;
use serde_json::Value;
use std::fs;

/// Pods, the limit for one of their containers, and its outcome.
struct Case {
    pods: String,
    /// The container; `POD` is the pod as a whole.
    container: &'static str,
    limit: &'static str,
    /// Request, limit and class of service; `None`: the limit is refused.
    becomes: Option<[&'static str; 3]>,
    /// Words of the comments, or of the refusal.
    told: &'static str,
}

fn case(
    pods: impl Into<String>,
    [container, limit]: [&'static str; 2],
    becomes: Option<[&'static str; 3]>,
    told: &'static str,
) -> Case {
    Case { pods: pods.into(), container, limit, becomes, told }
}

const ONE: &str = "{requests: {cpu: 200m}, limits: {cpu: 2}}";
const WHOLE: &str = "resources: {requests: {cpu: 300m}, limits: {cpu: 400m}}, ";
const KINDS: [&str; 7] =
    ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Pod"];

/// A pod with the container `app`, and more.
fn app(more: &str, resources: &str) -> String {
    format!("{more}containers: [{{name: app, image: x, resources: {resources}}}]")
}

fn sidecar(resources: &str) -> String {
    let more = "initContainers: [{name: proxy, image: x, restartPolicy: Always, resources: ";
    app(&format!("{more}{resources}}}], "), ONE)
}

/// The rows that users meet.
fn cases() -> Vec<Case> {
    let guaranteed = "{requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}";
    let [burstable, guarantee] = ["Burstable", "Guaranteed"];
    vec![
        case(
            app("", ONE),
            ["app", "500m"],
            Some(["200m", "500m", burstable]),
            "The request stays 200m.",
        ),
        case(
            app("", "{requests: {cpu: 1}, limits: {cpu: 2}}"),
            ["app", "500m"],
            Some(["500m", "500m", burstable]),
            "The request goes from 1 to 500m",
        ),
        case(
            app("", "{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}"),
            ["app", "500m"],
            Some(["499m", "500m", burstable]),
            "would make the pod Guaranteed",
        ),
        case(
            app("", guaranteed),
            ["app", "1500m"],
            Some(["1500m", "1500m", guarantee]),
            "the request goes from 2 to 1500m too",
        ),
        case(
            sidecar("{limits: {cpu: 200m}}"),
            ["proxy", "300m"],
            Some(["200m", "300m", burstable]),
            "200m",
        ),
        case(
            sidecar("{}"),
            ["proxy", "300m"],
            Some(["0", "300m", burstable]),
            "proxy has no request: 0 keeps the API server from taking the limit",
        ),
        case(
            app(WHOLE, "{}"),
            ["POD", "350m"],
            Some(["300m", "350m", burstable]),
            "The request stays 300m.",
        ),
        case(
            app(WHOLE, "{}"),
            ["app", "350m"],
            Some(["300m", "350m", burstable]),
            "300m fits that of the pod, 300m.",
        ),
        case(app(WHOLE, "{}"), ["app", "500m"], None, "above the pod's own limit of 400m"),
        case(app(WHOLE, "{limits: {cpu: 300m}}"), ["POD", "200m"], None, "below that of app, 300m"),
        case(
            app("", "{}"),
            ["app", "500m"],
            Some(["0", "500m", burstable]),
            "changes from BestEffort to Burstable",
        ),
    ]
}

/// An object of this kind with such pods.
fn object(kind: &str, pods: &str) -> String {
    let labels = "{app: web}";
    let template = |more: &str| {
        format!("template: {{metadata: {{labels: {labels}}}, spec: {{{more}{pods}}}}}")
    };
    let select = format!("selector: {{matchLabels: {labels}}}, ");
    let job = template("restartPolicy: Never, ");
    let (version, spec) = match kind {
        "Pod" => ("v1", pods.to_owned()),
        "Job" => ("batch/v1", format!("suspend: true, {job}")),
        "CronJob" => ("batch/v1", format!("schedule: 1 2 3 4 5, jobTemplate: {{spec: {{{job}}}}}")),
        "StatefulSet" => ("apps/v1", format!("serviceName: web, {select}{}", template(""))),
        _ => ("apps/v1", format!("{select}{}", template(""))),
    };
    format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: web}}, spec: {{{spec}}}}}")
}

/// The specification of the pods in an object.
fn pods_of(object: &Value) -> &Value {
    let path = match object["kind"].as_str() {
        Some("Pod") => "/spec",
        Some("CronJob") => "/spec/jobTemplate/spec/template/spec",
        _ => "/spec/template/spec",
    };
    object.pointer(path).expect("an object has pods")
}

/// Request, limit and class of service in an object, as the API server knows them.
fn state(cluster: &Cluster, namespace: &str, object: &Value, container: &str) -> [String; 3] {
    let spec = pods_of(object);
    let lists = ["containers", "initContainers"].map(|list| spec[list].as_array());
    let mut all = lists.into_iter().flatten().flatten();
    let found = if container == "POD" { Some(spec) } else { all.find(|c| c["name"] == container) };
    let resources = &found.expect("the container is there")["resources"];
    let cpu = |list: &str| resources[list]["cpu"].as_str().unwrap_or("-").to_owned();
    let mut pod = serde_json::json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec });
    pod["metadata"] = serde_json::json!({ "name": "like-them" });
    let dry = ["create", "--dry-run=server", "-o", "jsonpath={.status.qosClass}", "-f", "-"];
    let class = cluster.kubectl(namespace, &dry, &pod.to_string()).unwrap();
    [cpu("requests"), cpu("limits"), class]
}

/// The words that apply the form in `folder`, where it is `limit.yaml`.
fn words(system: System, text: &str) -> String {
    let line = match system {
        System::Kustomize => "kubectl apply -k .".to_owned(),
        System::Kubectl => text.lines().last().unwrap().to_owned(),
        _ => text.lines().find_map(|line| line.strip_prefix("#   ")).unwrap().to_owned(),
    };
    line.replace("FILE", "limit.yaml")
}

#[test]
fn each_form_does_what_it_says() {
    let Some(cluster) = cluster() else { return };
    for (kind, case) in KINDS.iter().flat_map(|kind| cases().into_iter().map(move |c| (kind, c))) {
        let is_usual = case.pods == app("", ONE);
        if !is_usual && !["Deployment", "Pod"].contains(kind) {
            continue;
        }
        for system in [System::Kubernetes, System::Kubectl, System::Kustomize] {
            check(cluster, kind, &case, system);
        }
    }
}

fn check(cluster: &Cluster, kind: &str, case: &Case, system: System) {
    let namespace = &cluster.namespace();
    let shown = format!("{kind} {} {} -o {}", case.pods, case.limit, system.name());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("object.yaml"), object(kind, &case.pods)).unwrap();
    let get = |form: &str| cluster.kubectl(namespace, &["get", kind, "web", "-o", form], "");
    cluster.sh(namespace, folder.path(), "kubectl create --save-config -f object.yaml").unwrap();
    fs::write(file("got.yaml"), get("yaml").unwrap()).unwrap();
    let (limit, is_pod) = (Try::parse(case.limit).unwrap(), case.container == "POD");
    let name = Some(case.container).filter(|_| !is_pod);
    let form = Chosen::read(Some(system), Some(&file("got.yaml")), name, is_pod)
        .and_then(|chosen| limit_in_form(system, &limit, "Because.", "/", chosen.as_ref()));
    let changes_class = case.told.contains("to Burstable");
    let text = match (form, case.becomes) {
        (Err(why), _) if kind == "Pod" && system == System::Kustomize => {
            return assert!(why.to_string().contains("in place"), "{shown}: {why}");
        }
        (Err(why), becomes) if becomes.is_none() || (kind == "Pod" && changes_class) => {
            let why = why.to_string();
            assert!(why.contains(case.told.trim_start_matches("changes ")), "{shown}: {why}");
            let naive = naive(kind, case);
            let error = cluster.sh(namespace, folder.path(), &naive).unwrap_err();
            return assert!(error.contains("is invalid"), "{shown}: {naive}: {error}");
        }
        (Ok(text), Some(_)) => text,
        (form, _) => panic!("{shown}: {form:?}"),
    };
    assert!(text.replace("\n# ", " ").contains(case.told), "{shown}: {text}");
    if system == System::Kustomize {
        let text = format!("resources: [object.yaml]\n{text}");
        fs::write(file("kustomization.yaml"), text).unwrap();
    }
    fs::write(file("limit.yaml"), &text).unwrap();
    let apply = words(system, &text);
    let before = get("json").unwrap();
    let run = |more: &str| {
        let done = cluster.sh(namespace, folder.path(), &format!("{apply}{more}"));
        done.unwrap_or_else(|error| panic!("{shown}: {apply}: {error}"))
    };
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let wanted = case.becomes.unwrap();
    let dry = read(&run(" --dry-run=server -o json"));
    assert_eq!(state(cluster, namespace, &dry, case.container), wanted, "{shown}");
    assert_eq!(get("json").unwrap(), before, "{shown}: a dry run changed it");
    run("");
    let after = read(&get("json").unwrap());
    assert_eq!(state(cluster, namespace, &after, case.container), wanted, "{shown}");
    assert_eq!(bare(pods_of(&after)), bare(pods_of(&read(&before))), "{shown}");
}

/// A patch of the limit alone.
fn naive(kind: &str, case: &Case) -> String {
    let limit = format!("resources: {{limits: {{cpu: {}}}}}", case.limit);
    let spec = match case.container {
        "POD" => format!("{{{limit}}}"),
        name => format!("{{containers: [{{name: {name}, {limit}}}]}}"),
    };
    match kind {
        "Pod" => format!("kubectl patch pod web --subresource resize -p 'spec: {spec}'"),
        _ => format!("kubectl patch {kind} web -p 'spec: {{template: {{spec: {spec}}}}}'"),
    }
}

/// A specification without resources.
fn bare(spec: &Value) -> Value {
    match spec {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "resources");
            Value::Object(kept.map(|(name, value)| (name.clone(), bare(value))).collect())
        }
        Value::Array(all) => all.iter().map(bare).collect(),
        other => other.clone(),
    }
}
