//! Labels of a series, in any order, and the choice among several series.
//!
//! A kubelet serves a pod's own group, its sandbox (the `pause` container) and its containers with
//! the same `pod` label. The choice prefers containers, then the pod itself, then groups of no pod.
//! As in Prometheus, an empty label counts as absent.

use cpumax_limit::one_line;
use std::fmt;

/// Labels that change when the same container is restarted.
const OF_ONE_LIFE: [&str; 4] = ["id", "name", "image", "uid"];

/// The label that holds a metric's name, where that stands among the labels.
pub(super) const NAME: &str = "__name__";

/// Names and values, in order of the names.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels(Vec<(String, String)>);

/// The object of a series; the most likely choice comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Container,
    Pod,
    Group,
    Sandbox,
}

impl Labels {
    /// Reads `{NAME="VALUE",...}` at the beginning of a text, and returns the rest behind it too;
    /// `None` if malformed. Names may stand in quotes; one without a value is `__name__`.
    pub fn read(text: &str) -> Option<(Labels, &str)> {
        let mut all = Vec::new();
        let mut rest = text.strip_prefix('{')?;
        loop {
            rest = rest.trim_start_matches([' ', ',']);
            if let Some(behind) = rest.strip_prefix('}') {
                return Some((Labels::of_pairs(all), behind));
            }
            let (name, quoted) = match unquoted(rest) {
                Some((name, behind)) => (name, behind.trim_start()),
                None => (rest.split('=').next()?.trim().to_owned(), &rest[rest.find('=')?..]),
            };
            let Some(quoted) = quoted.strip_prefix('=') else {
                all.push((NAME.to_owned(), name));
                rest = quoted;
                continue;
            };
            let (value, behind) = unquoted(quoted.trim_start())?;
            all.push((name, value));
            rest = behind;
        }
    }

    /// Sorts these names and values by name, and leaves out empty values.
    pub fn of_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Labels {
        let mut all: Vec<(String, String)> = pairs.into_iter().collect();
        all.retain(|(_, value)| !value.is_empty());
        all.sort();
        Labels(all)
    }

    /// Names and values, in order of the names.
    pub fn pairs(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter()
    }

    /// Names and values, in order of the names.
    pub fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    /// Reads `NAME=VALUE`, the value with or without quotes; `None` without `=`.
    pub fn parse_pair(text: &str) -> Option<(String, String)> {
        let (name, value) = text.split_once('=')?;
        let value = value.trim();
        let value = unquoted(value).map_or_else(|| value.to_owned(), |(value, _)| value);
        Some((name.trim().to_owned(), value))
    }

    /// The value of a label; empty where it is absent.
    pub fn value(&self, name: &str) -> &str {
        self.0.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }

    /// Removes a label and returns its value; `None` where it is absent.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(own, _)| own == name)?;
        Some(self.0.remove(at).1)
    }

    /// Removes all labels but these.
    pub fn retain(&mut self, names: &[&str]) {
        self.0.retain(|(name, _)| names.contains(&name.as_str()));
    }

    /// Whether each wanted label has this value; a wanted empty value means that it is absent.
    pub fn has_all(&self, wanted: &[(String, String)]) -> bool {
        wanted.iter().all(|(name, value)| self.value(name) == value)
    }

    /// The kind of cgroup that cAdvisor's labels describe: a pod, a container, a pod's sandbox, or
    /// any other group.
    pub fn kind(&self) -> Kind {
        // Kubelets before 1.16 append `_name` to these labels.
        let either = |one, other| {
            if self.value(one).is_empty() { self.value(other) } else { self.value(one) }
        };
        let (container, pod) = (either("container", "container_name"), either("pod", "pod_name"));
        let has_image = !self.value("image").is_empty() || !self.value("name").is_empty();
        match (container, pod) {
            ("POD", _) => Kind::Sandbox,
            ("", "") if !has_image => Kind::Group,
            ("", "") => Kind::Container,
            ("", _) if has_image => Kind::Sandbox,
            ("", _) => Kind::Pod,
            _ => Kind::Container,
        }
    }

    /// The labels that a restart of the container keeps: all but `id`, `name`, `image` and `uid`.
    pub fn lasting(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter().filter(|(name, _)| !OF_ONE_LIFE.contains(&name.as_str()))
    }

    /// Whether both have the same kind and the same labels that a restart keeps.
    pub fn is_same_container(&self, other: &Labels) -> bool {
        self.kind() == other.kind() && self.lasting().eq(other.lasting())
    }

    /// Its name, or else its id, as a `--label` option of the command line; `None` where it has
    /// neither.
    pub fn option_of_one_life(&self) -> Option<String> {
        let known = |name: &&str| !self.value(name).is_empty();
        ["name", "id"].into_iter().find(known).map(|name| option(name, self.value(name)))
    }

    /// The `--label` options that distinguish it from all `others`: one label where that is enough,
    /// and container, pod or namespace rather than an id.
    pub fn options_apart_from(&self, others: &[&Labels]) -> String {
        let rank = |name: &str| match name {
            "container" => 0,
            "pod" => 1,
            "namespace" => 2,
            name if OF_ONE_LIFE.contains(&name) => 4,
            _ => 3,
        };
        let mut own: Vec<&(String, String)> = self.0.iter().collect();
        own.sort_by_key(|(name, _)| rank(name));
        let mut left: Vec<&Labels> =
            others.iter().copied().filter(|other| *other != self).collect();
        let tells =
            |(name, value): &&&(String, String)| left.iter().all(|o| o.value(name) != value);
        if let Some((name, value)) = own.iter().filter(|(name, _)| rank(name) < 4).find(tells) {
            return option(name, value);
        }
        let mut given = Vec::new();
        for (name, value) in own {
            let before = left.len();
            left.retain(|other| other.value(name) == value);
            if left.len() < before {
                given.push(option(name, value));
            }
        }
        given.join(" ")
    }
}

/// The label as `--label NAME=VALUE`, in single quotes if it has characters special to a shell.
fn option(name: &str, value: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@=".contains(c);
    let label = one_line(&format!("{name}={value}")).into_owned();
    let is_plain = label.chars().all(is_plain);
    if is_plain { format!("--label {label}") } else { format!("--label '{label}'") }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        write!(f, "{{{}}}", one_line(&all.join(",")))
    }
}

/// The text in the quotes at the beginning, with `\` escapes resolved, and the rest behind them;
/// `None` if the quotes are missing or do not end.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut letters = inside.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &inside[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Labels {
        Labels::read(text).unwrap_or_else(|| panic!("{text}")).0
    }

    #[test]
    fn order_and_labels_without_a_value_mean_nothing() {
        let one = labels(r#"{pod="w",container="app",image=""}"#);
        assert_eq!(one, labels(r#"{ container="app", pod="w", }"#));
        assert_eq!(one.value("container"), "app");
        let quoted = labels(r#"{"cpu", "container"="app","pod" = "w"}"#);
        assert_eq!((quoted.value(NAME), quoted.value("pod")), ("cpu", "w"));
        let odd = labels(r#"{id="/=cmd|' ",name="a\"b,c}\\n"}"#);
        assert_eq!((odd.value("id"), odd.value("name")), ("/=cmd|' ", "a\"b,c}\\n"));
        for none in
            ["", "{", "{a", "{a=", "{a=b}", "{a=\"b", "{a=\"b\\", "{\"a", "{\"a\"=b}", "{\"a\""]
        {
            assert!(Labels::read(none).is_none(), "{none}");
        }
        assert_eq!(Labels::parse_pair("pod=\"a\""), Some(("pod".to_owned(), "a".to_owned())));
        assert_eq!(Labels::parse_pair("container="), Some(("container".to_owned(), String::new())));
        assert_eq!(Labels::parse_pair("pod"), None);
    }

    #[test]
    fn a_pod_has_containers_a_sandbox_and_a_group_of_its_own() {
        for (text, kind) in [
            (r#"{container="app",pod="p",image="i",name="n"}"#, Kind::Container),
            (r#"{container="",pod="p",image="",id="/kubepods/podx"}"#, Kind::Pod),
            (r#"{container="",pod="p",image="pause",name="n"}"#, Kind::Sandbox),
            (r#"{container="POD",pod="p"}"#, Kind::Sandbox),
            (r#"{id="/kubepods"}"#, Kind::Group),
            (r#"{id="/docker/1",name="web",image="nginx"}"#, Kind::Container),
        ] {
            assert_eq!(labels(text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn hints_tell_apart() {
        let app = labels(r#"{container="app",pod="w",namespace="n",id="/1"}"#);
        let side = labels(r#"{container="side",pod="w",namespace="n",id="/2"}"#);
        let other = labels(r#"{container="app",pod="x",namespace="n",id="/3"}"#);
        let twin = labels(r#"{container="side",pod="x",namespace="n",id="/4"}"#);
        assert_eq!(app.options_apart_from(&[&app, &side]), "--label container=app");
        assert_eq!(app.options_apart_from(&[&app, &other]), "--label pod=w");
        let all = [&app, &side, &other, &twin];
        assert_eq!(app.options_apart_from(&all), "--label container=app --label pod=w");
        let told = side.options_apart_from(&[&labels(r#"{container="a",pod="p"}"#), &side]);
        assert_eq!(told, "--label container=side");
        let life = labels(r#"{container="app",pod="w",namespace="n",id="/5"}"#);
        assert_eq!(life.options_apart_from(&[&app, &life]), "--label id=/5");
        assert_eq!(labels(r#"{pod="a b"}"#).options_apart_from(&[]), "--label 'pod=a b'");
    }
}
