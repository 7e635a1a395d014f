//! `ssh NAME`: OpenSSH's configuration of the clusters' machines that it can reach (one file for each cluster), and the line in the user's
//! configuration that includes these files.

use crate::{Found, Sky};
use ::sky::pools::{self, Host};
use api::object;
use api::sky::{Candidate, Place, keys};
use client::ClientError;
use kube::api::{DynamicObject, ListParams};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where SkyPilot keeps such files, below the home. Its users' configurations include them from there.
const FOLDER: &str = ".sky/generated/ssh";
/// The beginning of our files; the control plane that a file belongs to follows.
const OURS: &str = "# Written by trainyard for ";
/// `0`: the user's configuration stays unchanged.
const VARIABLE: &str = "TRAINYARD_SSH_CONFIG";
/// Options of which one line may hold a path with spaces.
const PATHS: [&str; 2] = ["identityfile", "certificatefile"];

/// The files of one control plane's clusters.
pub struct Entries {
    home: PathBuf,
    first_line: String,
}

/// Why a cluster's machines could not be added to OpenSSH's configuration.
#[derive(Debug, thiserror::Error)]
pub enum Unwritten {
    #[error("{} was not written by trainyard; remove it", .0.display())]
    Foreign(PathBuf),
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, io::Error),
    #[error("{} cannot be changed: {error}; its first line must be: {line}", path.display())]
    Configuration { path: PathBuf, error: io::Error, line: String },
    /// OpenSSH does not say how it reaches a host.
    #[error("{0}")]
    Unknown(String),
}

/// How to reach a machine, as the pools' file says.
#[derive(Debug, PartialEq)]
struct Way {
    name: String,
    user: Option<String>,
    identity: Option<String>,
}

impl Entries {
    /// Those in this user's home, of the control plane whose data are in this folder.
    pub fn of(home: PathBuf, control_plane: &str) -> Self {
        Self { home, first_line: format!("{OURS}{control_plane}\n") }
    }

    fn file(&self, shown: &str) -> PathBuf {
        self.home.join(FOLDER).join(shown)
    }

    fn is_ours(&self, file: &Path) -> bool {
        std::fs::read_to_string(file).is_ok_and(|text| text.starts_with(&self.first_line))
    }

    /// Adds a cluster's machines that are reached by SSH to OpenSSH's configuration, as `NAME`, `NAME-worker1` and so on. The inner error
    /// says why `ssh NAME` does not work.
    ///
    /// # Errors
    /// The request to the API fails.
    pub async fn write(&self, sky: &Sky, found: &Found) -> Result<Result<(), Unwritten>, ClientError> {
        let wanted = ListParams::default().labels(&format!("{}={}", keys::CLUSTER, found.name()));
        let machines = sky.machines().list(&wanted).await?;
        let id = |name: &str| {
            let is_it = |one: &&DynamicObject| one.metadata.name.as_deref() == Some(name);
            let machine = machines.iter().find(is_it)?;
            let candidate: Candidate = serde_json::from_value(machine.data["spec"]["candidate"].clone()).ok()?;
            let by_ssh = matches!(candidate.place(), Place::Ssh { .. });
            by_ssh.then(|| object::text(&machine.data["status"], "id").to_owned())
        };
        let reached =
            found.cluster.status.nodes.iter().filter_map(|node| Some((id(&node.machine)?, node.home.clone())));
        let reached: Vec<(String, String)> = reached.filter(|(id, _)| !id.is_empty()).collect();
        Ok(self.put(found.shown(), &reached))
    }

    /// `reached`: ids of machines, and the homes of what runs there.
    fn put(&self, shown: &str, reached: &[(String, String)]) -> Result<(), Unwritten> {
        let file = self.file(shown);
        self.forget(shown);
        if reached.is_empty() {
            return Ok(());
        }
        if file.exists() {
            return Err(Unwritten::Foreign(file));
        }
        let pools = std::fs::read_to_string(self.home.join(offers::POOLS)).unwrap_or_default();
        let mut text = format!("{}# `sky down {shown}` removes it\n", self.first_line);
        for (rank, (id, home)) in reached.iter().enumerate() {
            let alias = if rank == 0 { shown.to_owned() } else { format!("{shown}-worker{rank}") };
            let way = way(id, &pools, &self.home);
            let mut options: Vec<&str> = Vec::new();
            if let Some(user) = &way.user {
                options.extend(["-l", user]);
            }
            if let Some(identity) = &way.identity {
                options.extend(["-i", identity, "-o", "IdentitiesOnly=yes"]);
            }
            let (has, usual) = (settings(&way.name, &options)?, settings(&alias, &[])?);
            text.push_str(&entry(&alias, &has, &usual));
            text.push_str(&shell(&alias, home));
        }
        let written = create_folder(&self.home.join(FOLDER)).and_then(|()| replace(&file, text.as_bytes(), 0o600));
        written.map_err(|error| Unwritten::File(file.clone(), error))?;
        self.include()
    }

    /// Makes sure that the user's configuration includes the files: one line at its beginning, once.
    fn include(&self) -> Result<(), Unwritten> {
        if std::env::var(VARIABLE).is_ok_and(|value| value == "0") {
            return Ok(());
        }
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
        // OpenSSH does not take ~ from HOME
        let same = user.is_some_and(|user| user.dir == self.home);
        let all = if same { format!("~/{FOLDER}/*") } else { format!("{}/{FOLDER}/*", self.home.display()) };
        let path = self.home.join(".ssh/config");
        let add = || {
            let text = match std::fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                text => text?,
            };
            let Some(text) = including(&text, &all) else { return Ok(()) };
            create_folder(&self.home.join(".ssh"))?;
            // a link stays a link
            let target = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            let mode = std::fs::metadata(&target).map_or(0o600, |meta| meta.permissions().mode() & 0o777);
            replace(&target, &text, mode)
        };
        add().map_err(|error| Unwritten::Configuration { path: path.clone(), error, line: format!("Include {all}") })
    }

    /// Whether OpenSSH knows the cluster's machines.
    pub fn has(&self, shown: &str) -> bool {
        self.is_ours(&self.file(shown))
    }

    /// Removes a cluster from OpenSSH's configuration.
    pub fn forget(&self, shown: &str) {
        let file = self.file(shown);
        if self.is_ours(&file) {
            let _ = std::fs::remove_file(file); // one that stays is said to be there at the next launch
        }
    }

    /// Removes clusters that no longer exist from OpenSSH's configuration.
    pub fn keep(&self, all: &[Found]) {
        for file in std::fs::read_dir(self.home.join(FOLDER)).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if !all.iter().any(|found| found.shown() == name) {
                self.forget(&name);
            }
        }
    }
}

/// The text of the configuration with the line at its beginning; `None` if it has the line.
fn including(text: &[u8], all: &str) -> Option<Vec<u8>> {
    let is_it = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| word.eq_ignore_ascii_case("include"))
            && words.any(|word| word.trim_matches('"') == all)
    };
    if String::from_utf8_lossy(text).lines().any(is_it) {
        return None;
    }
    let mut new = format!("# Machines of sky's clusters\nInclude {all}\n\n").into_bytes();
    new.extend_from_slice(text);
    Some(new)
}

/// Makes a folder for its owner alone, unless it exists.
fn create_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file completely or not at all. OpenSSH's `*` does not match names that begin with a dot.
fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = || {
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&fresh)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    };
    written().inspect_err(|_| drop(std::fs::remove_file(&fresh)))
}

/// `POOL/[USER@]HOST`, with the key that the pools' file names for the host.
fn way(id: &str, pools: &str, home: &Path) -> Way {
    let (pool, host) = id.split_once('/').unwrap_or(("", id));
    let (user, name) = host.rsplit_once('@').map_or((None, host), |(user, name)| (Some(user.to_owned()), name));
    let known = pools::parse(pools, home, |_| true).ok().and_then(|mut all| all.remove(pool)?.ok());
    let hosts = known.unwrap_or_default();
    let is_it = |host: &&Host| host.name == name && (user.is_none() || host.user == user);
    let identity = hosts.iter().find(is_it).and_then(|host| host.identity_file.clone());
    let identity = identity.map(|file| file.display().to_string());
    Way { name: name.to_owned(), user, identity }
}

/// The options that OpenSSH would use for a host: the values of each.
fn settings(host: &str, options: &[&str]) -> Result<BTreeMap<String, Vec<String>>, Unwritten> {
    let asked = Command::new("ssh").arg("-G").args(options).args(["--", host]).stdin(Stdio::null()).output();
    let asked = asked
        .map_err(|error| Unwritten::Unknown(format!("`ssh` cannot be run: {error}; it comes with openssh-client")))?;
    if !asked.status.success() {
        let why = String::from_utf8_lossy(&asked.stderr);
        return Err(Unwritten::Unknown(why.lines().last().unwrap_or("`ssh -G` says nothing").to_owned()));
    }
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&asked.stdout).lines() {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        all.entry(name.to_lowercase()).or_default().push(value.to_owned());
    }
    all.remove("host");
    Ok(all)
}

/// The entry of an alias: what is not so without one.
fn entry(alias: &str, has: &BTreeMap<String, Vec<String>>, usual: &BTreeMap<String, Vec<String>>) -> String {
    let mut text = format!("Host {alias}\n");
    for (name, values) in has.iter().filter(|(name, values)| usual.get(*name) != Some(*values)) {
        for value in values {
            let quote = if PATHS.contains(&name.as_str()) && value.contains(' ') { "\"" } else { "" };
            text.push_str(&format!("  {name} {quote}{value}{quote}\n"));
        }
    }
    text
}

/// Makes a shell begin in the home directory of the machine's jobs. Commands, copies and tunnels stay unchanged: OpenSSH refuses a command
/// on its command line if the configuration contains one. So this applies only if the machine's name is the last of `ssh`'s arguments.
fn shell(alias: &str, home: &str) -> String {
    // neither quotes nor what OpenSSH replaces
    if home.is_empty() || home.contains(|c: char| c == '\'' || c == '%' || c.is_control()) {
        return String::new();
    }
    let last = format!("(xargs -0 </proc/$PPID/cmdline || ps -o args= -p $PPID) 2>/dev/null | grep -q .{alias}$");
    let enter = format!("cd '{home}' 2>/dev/null && export HOME='{home}'; exec ${{SHELL:-sh}} -l");
    format!("Match originalhost {alias} exec \"exec sh -c '{last}'\"\n  RequestTTY yes\n  RemoteCommand {enter}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_added_to_once() {
        let text = b"# mine\nHost x\n  User y\xff\n";
        let all = "~/.sky/generated/ssh/*";
        let new = including(text, all).unwrap();
        assert!(new.starts_with(b"# Machines of sky's clusters\nInclude ~/.sky/generated/ssh/*\n\n# mine\n"));
        assert!(new.ends_with(text));
        assert_eq!(including(&new, all), None);
        assert_eq!(including(b"include a \"~/.sky/generated/ssh/*\"\n", all), None);
        assert!(including(b"#Include ~/.sky/generated/ssh/*\n", all).is_some());
    }

    #[test]
    fn an_entry_says_what_differs() {
        let map = |pairs: &[(&str, &[&str])]| {
            let all = pairs.iter();
            all.map(|(name, values)| ((*name).to_owned(), values.iter().map(|&value| value.to_owned()).collect()))
                .collect()
        };
        let usual = map(&[("port", &["22"]), ("hostname", &["dev"]), ("identityfile", &["~/.ssh/id_rsa"])]);
        let has = map(&[("port", &["22"]), ("hostname", &["10.0.0.1"]), ("identityfile", &["/a b", "~/.ssh/id_rsa"])]);
        let wanted = "Host dev\n  hostname 10.0.0.1\n  identityfile \"/a b\"\n  identityfile ~/.ssh/id_rsa\n";
        assert_eq!(entry("dev", &has, &usual), wanted);
    }

    #[test]
    fn a_shell_begins_where_jobs_are_at_home_and_a_command_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, shell("dev", "/u/my home") + &shell("dev-worker1", "/u/w")).unwrap();
        // it is the user's own shell that OpenSSH asks, and one may leave a process between the two
        let says_by = |shell: &str, words: &[&str]| {
            let asked =
                Command::new("ssh").env("SHELL", shell).arg("-G").arg("-F").arg(&file).args(words).output().unwrap();
            let text = String::from_utf8(asked.stdout).unwrap();
            text.lines().find_map(|line| line.strip_prefix("remotecommand ")).map(str::to_owned)
        };
        let into =
            |home: &str| Some(format!("cd '{home}' 2>/dev/null && export HOME='{home}'; exec ${{SHELL:-sh}} -l"));
        for shell in ["/bin/sh", "/bin/bash"] {
            assert_eq!(says_by(shell, &["dev"]), into("/u/my home"), "{shell}");
        }
        let says = |words: &[&str]| says_by("/bin/sh", words);
        assert_eq!(says(&["-p", "22", "-A", "dev-worker1"]), into("/u/w"));
        for words in
            [&["dev", "hostname"][..], &["dev", "ls", "-l"], &["-s", "dev", "sftp"], &["other"], &["other", "dev"]]
        {
            assert_eq!(says(words), None, "{words:?}");
        }
        for odd in ["", "/a'b", "/a%b", "/a\nb"] {
            assert_eq!(shell("dev", odd), "");
        }
    }

    #[test]
    fn the_pools_say_which_key() {
        let pools = "a:\n  identity_file: ~/k\n  hosts: [x, {ip: 10.0.0.1, user: me, identity_file: /own}, {ip: 10.0.0.2}, {ip: 10.0.0.1}]\n";
        let of = |id: &str| {
            let Way { name, user, identity } = way(id, pools, Path::new("/h"));
            (name, user.unwrap_or_default(), identity.unwrap_or_default())
        };
        let text = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(of("a/me@10.0.0.1"), text("10.0.0.1", "me", "/own"));
        assert_eq!(of("a/10.0.0.2"), text("10.0.0.2", "", "/h/k"));
        assert_eq!(of("a/x"), text("x", "", "/h/k"));
        assert_eq!(of("gone/x"), text("x", "", ""));
    }

    #[test]
    fn only_what_is_ours_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let entries = Entries { home: home.path().to_owned(), first_line: format!("{OURS}a\n") };
        create_folder(&home.path().join(FOLDER)).unwrap();
        for (name, text) in
            [("ours", format!("{OURS}a\nHost ours\n")), ("other", format!("{OURS}b\n")), ("sky", "Host sky\n".into())]
        {
            replace(&entries.file(name), text.as_bytes(), 0o600).unwrap();
        }
        assert!(
            entries
                .put("sky", &[("a/b".into(), String::new())])
                .unwrap_err()
                .to_string()
                .contains("was not written by trainyard")
        );
        entries.keep(&[]);
        let mut left: Vec<_> =
            std::fs::read_dir(home.path().join(FOLDER)).unwrap().flatten().map(|one| one.file_name()).collect();
        left.sort();
        assert_eq!(left, ["other", "sky"]);
    }
}
