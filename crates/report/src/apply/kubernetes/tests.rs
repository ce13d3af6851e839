//! Patches of objects as `kubectl get` prints them, one test for each rule. What is refused here,
//! the validation of Kubernetes 1.37 refuses too.

use super::*;
use crate::apply::object::Object;

/// A limit for a container of this object, without the comments.
fn patched(system: System, object: &str, container: &str, milli: u64) -> Result<String, String> {
    let (comments, body) = told(system, object, container, milli)?;
    assert!(comments.lines().all(|line| line.len() <= 100), "{comments}");
    Ok(body)
}

/// Comments and the rest. The container `POD` is the pod as a whole.
fn told(
    system: System,
    object: &str,
    container: &str,
    milli: u64,
) -> Result<(String, String), String> {
    let form = || {
        let (name, is_pod) = (Some(container).filter(|name| !name.is_empty()), container == "POD");
        let chosen = Chosen::of(Object::parse(object)?, name, is_pod)?;
        form(system, Some(&chosen), milli, 100_000, "Because.")
    };
    let text = form().map_err(|error| error.to_string())?;
    let (comments, rest): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with('#'));
    Ok((comments.join("\n"), rest.join("\n")))
}

/// A Deployment whose pods have these containers, in YAML.
fn deployment(pod: &str) -> String {
    let pod = pod.replace('\n', "\n      ");
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: shop\n\
         spec:\n  template:\n    spec:\n      {pod}\n"
    )
}

fn one(resources: &str) -> String {
    deployment(&format!("containers:\n- {{name: app, image: x, resources: {resources}}}"))
}

fn pod(spec: &str) -> String {
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: web-0}}, spec: {spec}}}")
}

/// The requests and limits in the patch of a Deployment's only container: `500m/1`, `-/1`.
fn amounts(object: &str, milli: u64) -> String {
    let patch = patched(System::Kubernetes, object, "app", milli).unwrap();
    let patch: Value = serde_saphyr::from_str(&patch).unwrap();
    let resources = &patch["spec"]["template"]["spec"]["containers"][0]["resources"];
    let of = |list: &str| match &resources[list]["cpu"] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!("{}/{}", of("requests"), of("limits"))
}

#[test]
fn a_request_stays_or_is_lowered_to_the_limit() {
    let of = |resources: &str| amounts(&one(resources), 500);
    assert_eq!(of("{requests: {cpu: 200m}, limits: {cpu: 2}}"), "-/500m");
    assert_eq!(of("{requests: {cpu: 800m}, limits: {cpu: 2}}"), "500m/500m");
    // Without a request the limit is the request.
    assert_eq!(of("{limits: {cpu: 2}}"), "500m/500m");
    assert_eq!(of("{limits: {cpu: 0.3}}"), "300m/500m");
    assert_eq!(of("{limits: {memory: 1Gi}}"), "0/500m");
    assert_eq!(of("{}"), "0/500m");
    assert_eq!(of("null"), "0/500m");
}

#[test]
fn the_class_of_service_stays() {
    let guaranteed = one("{requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}");
    assert_eq!(amounts(&guaranteed, 1_500), "1500m/1500m");
    assert_eq!(amounts(&guaranteed, 3_000), "3/3");
    assert_eq!(amounts(&one("{limits: {cpu: 2, memory: 1Gi}}"), 3_000), "3/3");
    // As much as the limit would make it Guaranteed.
    let burstable = one("{requests: {cpu: 800m, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}");
    assert_eq!(amounts(&burstable, 500), "499m/500m");
    assert_eq!(amounts(&burstable, 800), "799m/800m");
    let (comments, _) = told(System::Kubernetes, &one("{}"), "", 500).unwrap();
    assert!(comments.contains("changes from BestEffort to Burstable"), "{comments}");
    let refused = patched(System::Kubernetes, &pod("{containers: [{name: app}]}"), "", 500);
    assert!(refused.unwrap_err().contains("a resize may not"));
}

#[test]
fn whole_cpus_of_a_guaranteed_pod_may_be_its_own() {
    let about = |cpu: &str, milli| {
        let amounts = format!("{{cpu: {cpu}, memory: 1Gi}}");
        let object = one(&format!("{{requests: {amounts}, limits: {amounts}}}"));
        told(System::Kubernetes, &object, "", milli).unwrap().0.contains("Infeasible")
    };
    assert!(about("2", 1_500) && about("500m", 1_000) && !about("500m", 600));
}

#[test]
fn each_kind_has_its_pods_elsewhere() {
    let spec = "{containers: [{name: app, resources: {requests: {cpu: 100m}, limits: {cpu: 1}}}]}";
    let object = |kind: &str, version: &str, spec: &str| {
        format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: web}}, spec: {spec}}}")
    };
    let template = format!("{{template: {{spec: {spec}}}}}");
    let job = format!("{{jobTemplate: {{spec: {template}}}}}");
    let suspended = format!("{{suspend: true, template: {{spec: {spec}}}}}");
    let line = |kind: &str, version: &str, spec: &str| {
        patched(System::Kubectl, &object(kind, version, spec), "", 500)
    };
    let containers = r#"{"containers":[{"name":"app","resources":{"limits":{"cpu":"500m"}}}]}"#;
    for kind in ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"] {
        let expected = format!(
            "kubectl patch {} web --type strategic -p '{{\"spec\":{{\"template\":{{\"spec\":\
             {containers}}}}}}}'",
            kind.to_lowercase()
        );
        assert_eq!(line(kind, "apps/v1", &template).unwrap(), expected);
    }
    let expected = format!(
        "kubectl patch cronjob web --type strategic -p '{{\"spec\":{{\"jobTemplate\":{{\"spec\":\
         {{\"template\":{{\"spec\":{containers}}}}}}}}}}}'"
    );
    assert_eq!(line("CronJob", "batch/v1", &job).unwrap(), expected);
    let expected = format!(
        "kubectl patch pod web --subresource resize --type strategic -p '{{\"spec\":{containers}}}'"
    );
    assert_eq!(line("Pod", "v1", spec).unwrap(), expected);
    assert!(line("Job", "batch/v1", &suspended).is_ok());
    let refused = line("Job", "batch/v1", &template).unwrap_err();
    assert!(refused.contains("cannot change unless the Job is suspended"), "{refused}");
    let refused = line("Rollout", "argoproj.io/v1alpha1", &template).unwrap_err();
    assert!(refused.contains("'Rollout' of 'argoproj.io/v1alpha1' is not known"), "{refused}");
}

#[test]
fn a_sidecar_is_an_init_container() {
    let object = deployment(
        "containers:\n- name: app\n  resources: {limits: {cpu: 1}}\n\
         initContainers:\n- {name: proxy, restartPolicy: Always, resources: {requests: {cpu: 1}}}\n\
         - {name: setup}",
    );
    let patch = patched(System::Kubernetes, &object, "proxy", 500).unwrap();
    let expected = "spec:\n  template:\n    spec:\n      initContainers:\n      - name: proxy\n\
                    \x20       resources:\n          limits:\n            cpu: 500m\n\
                    \x20         requests:\n            cpu: 500m";
    assert_eq!(patch, expected);
    let absent = patched(System::Kubernetes, &object, "web", 500).unwrap_err();
    assert_eq!(
        absent,
        "Deployment/web has no container 'web': give --container proxy or setup or app"
    );
    assert!(patched(System::Kubernetes, &object, "", 500).is_ok(), "app is the only main one");
}

#[test]
fn a_pod_with_a_limit_of_its_own_bounds_its_containers() {
    let object = |resources: &str, app: &str| {
        deployment(&format!(
            "resources: {resources}\ncontainers:\n- {{name: app, resources: {app}}}\n\
             - {{name: log, resources: {{requests: {{cpu: 100m}}}}}}"
        ))
    };
    let limited = "{requests: {cpu: 300m}, limits: {cpu: 400m}}";
    let of = |object: &str, container: &str, milli| {
        patched(System::Kubectl, object, container, milli)
            .map(|line| line.split_once("spec\":{\"template\":{\"spec\":").unwrap().1.to_owned())
    };
    let refused = of(&object(limited, "{limits: {cpu: 200m}}"), "app", 500).unwrap_err();
    assert!(refused.contains("above the pod's own limit of 400m"), "{refused}");
    // 300m of the pod less 100m of its other container.
    let patch = of(&object(limited, "{}"), "app", 350).unwrap();
    assert!(patch.contains(r#""limits":{"cpu":"350m"},"requests":{"cpu":"200m"}"#), "{patch}");
    // Without a request of its own the pod has that of its containers.
    let patch = of(&object("{limits: {cpu: 400m}}", "{limits: {cpu: 200m}}"), "app", 100).unwrap();
    assert!(patch.contains(r#""resources":{"requests":{"cpu":"300m"}}}"#), "{patch}");
    let patch = of(&object(limited, "{}"), "POD", 250).unwrap();
    assert_eq!(patch, r#"{"resources":{"limits":{"cpu":"250m"},"requests":{"cpu":"250m"}}}}}}'"#);
    let refused = of(&object(limited, "{limits: {cpu: 300m}}"), "POD", 200).unwrap_err();
    assert!(refused.contains("below that of app, 300m"), "{refused}");
    let refused = of(&object(limited, "{requests: {cpu: 200m}}"), "POD", 200).unwrap_err();
    assert!(refused.contains("below the 300m that its containers request"), "{refused}");
    // Its containers request all of it, so that it cannot stay Burstable.
    let memory = "{requests: {memory: 1Gi}, limits: {cpu: 400m, memory: 1Gi}}";
    let whole = object(memory, "{requests: {cpu: 200m}}");
    let (comments, patch) = told(System::Kubernetes, &whole, "POD", 300).unwrap();
    assert!(patch.contains("requests:\n          cpu: 300m"), "{patch}");
    assert!(comments.contains("from Burstable to Guaranteed"), "{comments}");
    let refused = of(&one("{}"), "POD", 200).unwrap_err();
    assert!(refused.contains("has no resources of the pod itself"), "{refused}");
}

#[test]
fn owners_are_told_or_given_instead() {
    let owned = |kind: &str, version: &str, spec: &str| {
        format!(
            "{{apiVersion: {version}, kind: {kind}, spec: {spec}, metadata: {{name: web-1, \
             annotations: {{meta.helm.sh/release-name: web}}, ownerReferences: \
             [{{kind: Deployment, name: web, controller: true}}]}}}}"
        )
    };
    let spec = "{containers: [{name: app, resources: {limits: {cpu: 1}}}]}";
    let template = format!("{{template: {{spec: {spec}}}}}");
    let refused = patched(System::Kubernetes, &owned("ReplicaSet", "apps/v1", &template), "", 500);
    assert!(refused.unwrap_err().ends_with("give Deployment/web"));
    let (comments, _) = told(System::Kubernetes, &owned("Pod", "v1", spec), "", 500).unwrap();
    assert!(comments.contains("New pods of Deployment/web have the old limit."), "{comments}");
    assert!(comments.contains("Helm keeps this object"), "{comments}");
    for (what, rest) in [
        ("static", "metadata: {name: a, annotations: {kubernetes.io/config.mirror: x}}"),
        ("Windows", "metadata: {name: a}"),
        ("ended", "metadata: {name: a}, status: {phase: Failed}"),
    ] {
        let os = if what == "Windows" { "os: {name: windows}, " } else { "" };
        let object = format!(
            "{{apiVersion: v1, kind: Pod, {rest}, spec: {{{os}containers: [{{name: app}}]}}}}"
        );
        let refused = patched(System::Kubernetes, &object, "", 500).unwrap_err();
        assert!(refused.contains(what), "{refused}");
    }
}

#[test]
fn other_forms_have_the_same_amounts() {
    let object = one("{requests: {cpu: 800m}, limits: {cpu: 2}}");
    let resources = "resources:\n  limits:\n    cpu: 500m\n  requests:\n    cpu: 500m";
    assert_eq!(patched(System::Helm, &object, "", 500).unwrap(), resources);
    let kustomize = patched(System::Kustomize, &object, "", 500).unwrap();
    let read: Value = serde_saphyr::from_str(&kustomize).unwrap();
    let patch: Value =
        serde_saphyr::from_str(read["patches"][0]["patch"].as_str().unwrap()).unwrap();
    assert_eq!(patch["metadata"]["name"], "web");
    assert_eq!(patch["kind"], "Deployment");
    let plain = patched(System::Kubernetes, &object, "", 500).unwrap();
    let plain: Value = serde_saphyr::from_str(&plain).unwrap();
    assert_eq!(patch["spec"], plain["spec"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let object = pod("{containers: [{name: app, resources: {limits: {cpu: 1}}}]}");
    std::fs::write(file.path(), object).unwrap();
    let read = |system, path| Chosen::read(Some(system), path, None, false);
    let why = |system, path| read(system, path).unwrap_err().to_string();
    assert!(read(System::Kubectl, Some(file.path())).unwrap().is_some());
    assert!(why(System::Helm, Some(file.path())).contains("in place"));
    assert!(why(System::Docker, Some(file.path())).contains("not -o docker"));
    assert!(why(System::Kustomize, None).contains("needs --object"));
    assert!(read(System::Kubernetes, None).unwrap().is_none());
}

#[test]
fn any_file_is_read_or_refused() {
    let json = r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "apps/v1",
        "kind": "Deployment", "metadata": {"name": "web", "annotations": {"a": "LONG"}},
        "spec": {"template": {"spec": {"containers": [{"name": "app"}]}}}}]}"#;
    let json = json.replace("LONG", &"x: {}, ".repeat(4_000));
    assert!(patched(System::Kubernetes, &json, "app", 500).is_ok());
    let refused = |text: &str| Object::parse(text).unwrap_err().to_string();
    for (text, why) in [
        ("", ""),
        ("a: [", ""),
        ("{apiVersion: v1, kind: List, items: []}", "a list of 0 objects"),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}",
            "has no containers in spec",
        ),
        ("{apiVersion: v1, kind: Pod, metadata: {name: \"a;b\"}, spec: {}}", "'a;b' is no name"),
        (&pod("{containers: [{name: \"$(x)\"}]}"), "'$(x)' is no name of a container"),
        (&one("{limits: {cpu: -1}}"), "an amount such as 500m"),
        (&one("{limits: {cpu: lots}}"), "line 10, column 52"),
    ] {
        assert!(refused(text).contains(why), "{text}: {}", refused(text));
    }
    let of = |n: u32| format!("a{n}: &a{n} [{}]", format!("*a{},", n - 1).repeat(9));
    let laughs = (1..30).map(of).collect::<Vec<_>>().join("\n");
    assert!(Object::parse(&format!("a0: &a0 [x]\n{laughs}")).is_err());
    assert!(Object::parse(&"[".repeat(100_000)).is_err());
}
