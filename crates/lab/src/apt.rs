//! The machine's own apt, with a configuration and folders of the lab, so that the system's lists
//! and packages stay as they are. Signatures are verified. Mirrors, proxies and passwords are the
//! machine's.

use crate::Error;
use crate::runner::Watch;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::fmt::Write;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const DEFAULT_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Source of packages; `None` fields: as the machine's own apt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// URI of a Debian mirror.
    pub mirror: Option<String>,
    /// File with the keys that may sign the suites.
    pub keyring: Option<PathBuf>,
}

/// A package in the signed index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Version of the package.
    pub version: String,
    /// Size of its file, bytes.
    pub size_bytes: u64,
    /// SHA-256 of its file.
    pub sha256: String,
}

/// apt with folders of the lab.
pub struct Apt<'a> {
    watch: &'a dyn Watch,
    config: PathBuf,
    keyring: Option<PathBuf>,
    suites: String,
}

impl<'a> Apt<'a> {
    /// Writes apt's configuration for the given suites, and its folders, below `folder`.
    ///
    /// # Errors
    /// apt is missing or has no Debian mirror, or a file cannot be written.
    pub fn open(
        folder: &Path,
        source: &Source,
        suites: &[String],
        watch: &'a dyn Watch,
    ) -> Result<Apt<'a>, Error> {
        let machine =
            if source.mirror.is_some() { MachineSources::default() } else { machine_sources()? };
        let main = source.mirror.clone().or(machine.main).ok_or(Error::NoMirror)?;
        let default_keyring = || Some(PathBuf::from(DEFAULT_KEYRING)).filter(|path| path.exists());
        let keyring = source.keyring.clone().or(machine.keyring).or_else(default_keyring);
        let (security, other): (Vec<_>, Vec<_>) =
            suites.iter().cloned().partition(|suite| suite.ends_with("-security"));
        let mut sources = stanza(&main, &other, keyring.as_deref());
        if let Some(mirror) = machine.security.filter(|_| !security.is_empty()) {
            sources.push_str(&stanza(&mirror, &security, keyring.as_deref()));
        }
        let path = folder.join("sources.list.d");
        fs::create_dir_all(&path).map_err(Error::file("make", &path))?;
        let config = folder.join("apt.conf");
        let files = [
            (folder.join("sources.list.d/lab.sources"), sources),
            (folder.join("status"), String::new()),
            (config.clone(), settings(folder)),
        ];
        for (path, text) in files {
            fs::write(&path, text).map_err(Error::file("write", &path))?;
        }
        Ok(Apt { watch, config, keyring, suites: suites.join(", ") })
    }

    /// Fetches the indices of the suites and verifies their signatures.
    ///
    /// # Errors
    /// apt's own errors; [`Error::UnknownKey`] if a key is missing; [`Error::Full`];
    /// [`Error::Interrupted`].
    pub fn update(&self) -> Result<(), Error> {
        let update = ["update".to_owned()];
        let result = self.run("apt-get", &update, None, "read the lists of packages");
        match result {
            Err(Error::Apt { said, .. }) if said.contains("NO_PUBKEY") => Err(Error::UnknownKey {
                keyring: self.keyring.clone().unwrap_or_else(|| DEFAULT_KEYRING.into()),
                suites: self.suites.clone(),
            }),
            result => result.map(drop),
        }
    }

    /// Names of all packages that begin so.
    ///
    /// # Errors
    /// apt's own errors.
    pub fn names(&self, beginning: &str) -> Result<Vec<String>, Error> {
        let arguments = ["pkgnames".to_owned(), beginning.to_owned()];
        let told = self.run("apt-cache", &arguments, None, "search its lists of packages")?;
        Ok(told.lines().map(str::to_owned).collect())
    }

    /// These packages, each in its newest version.
    ///
    /// # Errors
    /// apt's own errors, such as for a name that it does not know.
    pub fn packages(&self, names: &[String]) -> Result<Vec<Package>, Error> {
        let arguments: Vec<String> = ["download", "--print-uris"]
            .map(str::to_owned)
            .into_iter()
            .chain(names.to_vec())
            .collect();
        let told = self.run("apt-get", &arguments, None, "search its lists of packages")?;
        let packages: Vec<Package> = told.lines().filter_map(package).collect();
        let of = |name: &String| packages.iter().find(|package| package.name == *name).cloned();
        Ok(names.iter().filter_map(of).collect())
    }

    /// Fetches packages into `folder`.
    ///
    /// # Errors
    /// apt's own errors, such as a missing network or a wrong checksum; [`Error::Full`];
    /// [`Error::Interrupted`].
    pub fn download(&self, packages: &[Package], folder: &Path) -> Result<(), Error> {
        let one = |package: &Package| format!("{}={}", package.name, package.version);
        let wanted: Vec<String> = packages.iter().map(one).collect();
        let what = format!("fetch {}", wanted.join(" "));
        let arguments = [&["download".to_owned()], &wanted[..]].concat();
        self.run("apt-get", &arguments, Some(folder), &what).map(drop)
    }

    fn run(
        &self,
        program: &'static str,
        arguments: &[String],
        folder: Option<&Path>,
        what: &str,
    ) -> Result<String, Error> {
        let mut command = Command::new(program);
        command.arg("-c").arg(&self.config).args(arguments).env("LC_ALL", "C");
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        let (is_done, [told, complained]) = self.run_to_end(command, program)?;
        if is_done {
            return Ok(told);
        }
        Err(Error::Apt { what: what.to_owned(), said: complaints(&complained) })
    }

    /// Runs a command to its end; returns whether it succeeded, its output and its errors. Kills it
    /// at an interruption, and when the disk is full, as apt then waits for a process for ever.
    fn run_to_end(
        &self,
        mut command: Command,
        program: &'static str,
    ) -> Result<(bool, [String; 2]), Error> {
        const LOOK_EACH: Duration = Duration::from_millis(20);
        /// So many checks in a row must find the disk full, as an unpacked file may be removed
        /// again.
        const FULL_LOOKS: u32 = 100;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for us.
        command.process_group(0);
        let parent = getpid();
        let prepare = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::Error::other("cpumax has ended"))
            }
        };
        // SAFETY: between fork and exec the closure makes only system calls; it uses neither the
        // heap nor a lock.
        let command = unsafe { command.pre_exec(prepare) };
        let mut child = command.spawn().map_err(Error::start(program, "apt"))?;
        let pipes = [child.stdout.take().map(spawn_reader), child.stderr.take().map(spawn_reader)];
        let mut full_looks = 0;
        let ended = loop {
            if let Some(status) = child.try_wait().map_err(Error::start(program, "apt"))? {
                break Ok(status.success());
            }
            full_looks = if is_full(&self.config) { full_looks + 1 } else { 0 };
            if self.watch.stopped() {
                break Err(Error::Interrupted);
            }
            if full_looks > FULL_LOOKS {
                let path = self.config.parent().and_then(Path::parent).unwrap_or(&self.config);
                break Err(Error::Full { path: path.to_owned() });
            }
            thread::sleep(LOOK_EACH);
        };
        if ended.is_err() {
            // Kills apt and its own processes, which may have ended.
            let _ = rustix::process::kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
        let written = pipes.map(|pipe| pipe.and_then(|pipe| pipe.join().ok()).unwrap_or_default());
        Ok((ended?, written))
    }
}

/// Reads a pipe to its end, on a thread of its own.
fn spawn_reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // An unreadable rest is left out.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether the disk of this file is full.
fn is_full(path: &Path) -> bool {
    const MIN_BYTES: u64 = 64 << 10;
    rustix::fs::statvfs(path).is_ok_and(|disk| disk.f_bavail * disk.f_frsize < MIN_BYTES)
}

/// Debian mirrors and keyring of this machine's apt.
#[derive(Debug, Default, PartialEq, Eq)]
struct MachineSources {
    main: Option<String>,
    security: Option<String>,
    keyring: Option<PathBuf>,
}

fn machine_sources() -> Result<MachineSources, Error> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", TARGET, "Identifier: Packages"])
        .env("LC_ALL", "C")
        .output()
        .map_err(Error::start("apt-get", "apt"))?;
    let (mut machine, named_in) = targets(&String::from_utf8_lossy(&output.stdout));
    if let Some(main) = &machine.main {
        let text = fs::read_to_string(named_in).unwrap_or_default();
        machine.keyring = signed_by(&text, main.trim_end_matches('/'));
    }
    Ok(machine)
}

/// The fields of an index target that are asked for. apt repeats the name of an unknown one.
const TARGET: &str = "$(REPO_URI)|$(ORIGIN)|$(COMPONENT)|$(RELEASE)|$(SOURCESENTRY)";

/// The first Debian mirrors among apt's index targets, and the file that names the main one.
fn targets(text: &str) -> (MachineSources, PathBuf) {
    let mut machine = MachineSources::default();
    let mut named_in = PathBuf::new();
    for line in text.lines() {
        let &[uri, origin, "main", release, entry] = &*line.split('|').collect::<Vec<_>>() else {
            continue;
        };
        // Before the first `apt-get update` only the address is known, not the origin.
        let debian = match origin {
            "$(ORIGIN)" => {
                uri.trim_end_matches('/').ends_with("/debian") || uri.contains("debian-security")
            }
            origin => origin == "Debian",
        };
        if debian && (uri.contains("security") || release.ends_with("-security")) {
            machine.security.get_or_insert_with(|| uri.to_owned());
        } else if debian && machine.main.is_none() {
            machine.main = Some(uri.to_owned());
            named_in = PathBuf::from(entry.rsplit_once(':').map_or(entry, |(path, _)| path));
        }
    }
    (machine, named_in)
}

/// The keyring that a `.sources` or `.list` file names for a mirror.
fn signed_by(text: &str, uri: &str) -> Option<PathBuf> {
    let deb822 = text.lines().any(|line| line.to_ascii_lowercase().starts_with("uris:"));
    let entries: Vec<&str> =
        if deb822 { text.split("\n\n").collect() } else { text.lines().collect() };
    let entry = entries.into_iter().find(|entry| entry.contains(uri))?;
    let at = entry.to_ascii_lowercase().find("signed-by")? + "signed-by".len();
    let value = entry[at..].trim_start_matches([':', '=', ' ']);
    let path = value.split(|c: char| c.is_whitespace() || c == ']' || c == ',').next()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

fn stanza(mirror: &str, suites: &[String], keyring: Option<&Path>) -> String {
    let mut text = format!(
        "Types: deb\nURIs: {mirror}\nSuites: {}\nComponents: main\nArchitectures: amd64\n\
         Targets: Packages\n",
        suites.join(" ")
    );
    if let Some(keyring) = keyring {
        let _ = writeln!(text, "Signed-By: {}", keyring.display());
    }
    text.push('\n');
    text
}

/// apt's configuration, read after the machine's own, which it overrides.
fn settings(folder: &Path) -> String {
    let set = |name: &str, value: &str| format!("{name} \"{value}\";\n");
    let here = folder.display().to_string();
    [
        set("Dir::State", &here),
        set("Dir::State::status", "status"),
        set("Dir::Cache", &here),
        set("Dir::Etc::sourceparts", &format!("{here}/sources.list.d")),
        set("Dir::Etc::sourcelist", "/dev/null"),
        set("Dir::Etc::preferences", "/dev/null"),
        set("Dir::Etc::preferencesparts", "/dev/null"),
        set("APT::Architecture", "amd64"),
        "#clear APT::Architectures;\nAPT::Architectures { \"amd64\"; };\n".to_owned(),
        "#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n".to_owned(),
        set("Acquire::Languages", "none"),
        set("APT::Update::Error-Mode", "any"),
        // The user `_apt` cannot read a home folder.
        set("APT::Sandbox::User", ""),
    ]
    .concat()
}

/// A package of `'URI' NAME_VERSION_ARCHITECTURE.deb SIZE SHA256:DIGEST`.
fn package(line: &str) -> Option<Package> {
    let mut words = line.split(' ').skip(1);
    let (name, rest) = words.next()?.split_once('_')?;
    Some(Package {
        name: name.to_owned(),
        version: rest.split_once('_')?.0.replace("%3a", ":"),
        size_bytes: words.next()?.parse().ok()?,
        sha256: words.next()?.strip_prefix("SHA256:")?.to_owned(),
    })
}

/// The last errors and warnings of apt, as one line.
fn complaints(text: &str) -> String {
    let marked = |line: &&str| line.starts_with("E:") || line.starts_with("W:");
    let mut lines: Vec<&str> = text.lines().filter(marked).map(|line| line[2..].trim()).collect();
    lines.dedup();
    let shown = lines.len().saturating_sub(4);
    match lines.get(shown..) {
        Some([]) | None => text.lines().next_back().unwrap_or("it does not say why").to_owned(),
        Some(lines) => lines.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Quiet;
    use cpumax_require::{Need, missing};

    struct Stopped;

    impl Watch for Stopped {
        fn stopped(&self) -> bool {
            true
        }
    }

    /// Result of a program that would take a minute, and the time until then.
    fn ended(folder: &Path, watch: &dyn Watch) -> (Result<bool, Error>, Duration) {
        let config = folder.join("lists/apt.conf");
        let apt = Apt { watch, config, keyring: None, suites: String::new() };
        let mut command = Command::new("sleep");
        command.arg("60");
        let begin = std::time::Instant::now();
        let result = apt.run_to_end(command, "sleep").map(|(is_done, _)| is_done);
        (result, begin.elapsed())
    }

    #[test]
    fn apt_ends_when_we_are_to_stop() {
        let folder = tempfile::tempdir().unwrap();
        let (result, after) = ended(folder.path(), &Stopped);
        assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
        assert!(after < Duration::from_secs(30), "{after:?}");
    }

    #[test]
    fn a_full_disk_is_told_instead_of_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mounted = |program: &str, arguments: &[&str]| {
            let status = Command::new(program).args(arguments).arg(folder.path()).status();
            status.is_ok_and(|status| status.success())
        };
        if !mounted("mount", &["-t", "tmpfs", "-o", "size=128k", "tmpfs"]) {
            missing(Need::Mount, "a file system of one's own to fill up");
            return;
        }
        fs::create_dir(folder.path().join("lists")).unwrap();
        fs::write(folder.path().join("lists/apt.conf"), "").unwrap();
        // Fails when the disk is full.
        let _ = fs::write(folder.path().join("lists/more"), vec![1; 1 << 20]);
        let (result, after) = ended(folder.path(), &Quiet);
        assert!(mounted("umount", &[]));
        let told = result.unwrap_err().to_string();
        let place = folder.path().to_str().unwrap();
        assert!(told.starts_with(place) && told.contains("the disk is full"), "{told}");
        assert!(after < Duration::from_secs(30), "{after:?}");
    }

    const TARGETS: &str = "\
http://mirror.example/ubuntu/|Ubuntu|main|noble|/etc/a.list:1
http://mirror.example/debian-security/|Debian|main|bookworm-security|/etc/b.sources:9
http://mirror.example/debian/|Debian|contrib|bookworm|/etc/a.list:2
http://mirror.example/debian/|Debian|main|bookworm|/etc/b.sources:1
";

    #[test]
    fn the_mirrors_are_those_of_the_machine() {
        let (machine, named_in) = targets(TARGETS);
        assert_eq!(machine.main.as_deref(), Some("http://mirror.example/debian/"));
        assert_eq!(machine.security.as_deref(), Some("http://mirror.example/debian-security/"));
        assert_eq!(named_in, Path::new("/etc/b.sources"));
        // Before the first update there is no origin.
        let (machine, _) = targets(&TARGETS.replace("Debian", "$(ORIGIN)"));
        assert_eq!(machine.main.as_deref(), Some("http://mirror.example/debian/"));
        let (machine, _) = targets(&TARGETS.replace("|Debian", "|Other"));
        assert_eq!(machine, MachineSources::default());
    }

    #[test]
    fn the_keyring_is_found_in_both_kinds_of_file() {
        let list = "deb [arch=amd64 signed-by=/k/a.gpg] http://a/x main\n\
                    deb [signed-by=/k/b.gpg] http://a/debian bookworm main\n";
        assert_eq!(signed_by(list, "http://a/debian"), Some("/k/b.gpg".into()));
        let sources = "Types: deb\nURIs: http://a/x\nSigned-By: /k/a.gpg\n\n\
                       Types: deb\nURIs: http://a/debian\nSuites: x\nSigned-By: /k/b.gpg\n";
        assert_eq!(signed_by(sources, "http://a/debian"), Some("/k/b.gpg".into()));
        assert_eq!(signed_by("deb http://a/debian bookworm main\n", "http://a/debian"), None);
        let inline = "URIs: http://a/debian\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n";
        assert_eq!(signed_by(inline, "http://a/debian"), None);
    }

    #[test]
    fn a_line_becomes_a_package() {
        let line = "'http://a/pool/linux-image-a_7.3.4-1%7ebpo.deb' \
                    linux-image-a_7.3.4-1~bpo_amd64.deb 12 SHA256:ab";
        let found = package(line).unwrap();
        assert_eq!((&*found.name, &*found.version), ("linux-image-a", "7.3.4-1~bpo"));
        assert_eq!((found.size_bytes, &*found.sha256), (12, "ab"));
        assert_eq!(package("'http://a' linux-image-a_1_amd64.deb 12 MD5Sum:ab"), None);
        assert_eq!(package("Reading package lists..."), None);
    }

    #[test]
    fn complaints_are_told_without_the_rest() {
        assert_eq!(complaints("Get:1 x\nW: one\nE: two\n"), "one; two");
        assert_eq!(complaints("strange\n"), "strange");
        assert_eq!(complaints(""), "it does not say why");
    }
}
