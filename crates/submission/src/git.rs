//! Working directories that are Git repositories: they are fetched to this computer, and sent from here like any other.

use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folder of the repositories, below the home; each address has its own.
const KEPT: &str = ".sky/git";

/// A repository, and which part of it to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub url: String,
    /// A branch, a tag or a commit; `None`: the repository's default branch.
    pub reference: Option<String>,
}

/// An address and, apart from it, its credentials: the address is stored, shown and passed to programs as an argument.
struct Address {
    url: String,
    /// The scheme and the host that the credentials are for.
    origin: String,
    user: Option<String>,
    password: Option<String>,
}

impl Address {
    fn of(url: &str) -> Self {
        let plain = |url: &str| Self { url: url.to_owned(), origin: String::new(), user: None, password: None };
        // other forms, like me@host:path, have no place for a password
        let Some((scheme, rest)) = url.split_once("://") else { return plain(url) };
        let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
        let Some((who, host)) = authority.rsplit_once('@') else { return plain(url) };
        let (user, password) = who.split_once(':').map_or((who, None), |(user, password)| (user, Some(password)));
        let origin = format!("{scheme}://{host}");
        // with SSH the user is part of the place, and a password in the address is dropped
        if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
            return plain(&format!("{scheme}://{user}@{host}{path}"));
        }
        let known = |text: &str| Some(decoded(text)).filter(|text| !text.is_empty());
        Self { url: format!("{origin}{path}"), origin, user: known(user), password: password.and_then(known) }
    }

    /// The address as it may be shown and stored: without the query of a web address, which may hold a token, too.
    fn shown(&self) -> &str {
        let is_web = self.url.starts_with("http");
        self.url.split(['?', '#']).next().filter(|_| is_web).unwrap_or(&self.url)
    }

    /// A Git command with the credentials hidden from other users: all users can read arguments.
    fn git(&self, folder: &Path) -> Command {
        let mut command = Command::new("git");
        let scope = format!("credential.{}", self.origin);
        match (&self.user, &self.password) {
            (user, Some(password)) => {
                // no other helper, because one that stores credentials might write them down
                command.args(["-c", &format!("{scope}.helper="), "-c", &format!("{scope}.helper={ANSWERS}")]);
                command.env(USER, user.as_deref().unwrap_or_default()).env(PASSWORD, password);
            }
            // the user name selects one of the known credentials, or is itself a token
            (Some(user), None) => {
                command.args(["-c", &format!("{scope}.helper={ANSWERS}")]).env(USER, user);
            }
            (None, None) => {}
        }
        command.arg("-C").arg(folder);
        command
    }

    /// Git's output without the credentials.
    fn scrubbed(&self, text: &str) -> String {
        let secrets = [&self.password, &self.user].into_iter().flatten().filter(|secret| secret.len() >= 4);
        let query = self.url.get(self.shown().len()..).filter(|query| !query.is_empty());
        let clean = query.map_or_else(|| text.to_owned(), |query| text.replace(query, ""));
        secrets.fold(clean, |text, secret| text.replace(secret.as_str(), "[secret]"))
    }
}

/// Variables that hold the credentials while Git runs, and the helper that gives them to Git.
const USER: &str = "TRAINYARD_GIT_USER";
const PASSWORD: &str = "TRAINYARD_GIT_PASSWORD";
const ANSWERS: &str = r#"!f() { [ "$1" = get ] || return 0; [ -z "$TRAINYARD_GIT_USER" ] || printf 'username=%s\n' "$TRAINYARD_GIT_USER"; [ -z "$TRAINYARD_GIT_PASSWORD" ] || printf 'password=%s\n' "$TRAINYARD_GIT_PASSWORD"; }; f"#;

/// Decodes a part of an address, in which some characters are written as `%2F`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let hex = (*first == b'%').then(|| more.get(..2)).flatten().and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = more.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The folder of all repositories, for its owner alone. Older versions stored addresses with passwords there.
fn kept(home: &Path) -> io::Result<PathBuf> {
    let folder = home.join(KEPT);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(&folder)?.flatten() {
        let path = entry.path().join(".git/config");
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let clean: String = text.split_inclusive('\n').map(without_credentials).collect();
        if clean != text {
            fs::write(&path, clean)?;
            // it contains the addresses of the last fetch
            let _ = fs::remove_file(entry.path().join(".git/FETCH_HEAD"));
        }
    }
    Ok(folder)
}

/// A line of Git's configuration without the password in its address.
fn without_credentials(line: &str) -> String {
    match line.split_once("url = ") {
        Some((before, url)) => {
            let (url, end) = url.strip_suffix('\n').map_or((url, ""), |url| (url, "\n"));
            format!("{before}url = {}{end}", Address::of(url).shown())
        }
        None => line.to_owned(),
    }
}

/// Why a repository was not fetched, without credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot fetch {what}: {why}")]
pub struct Unfetched {
    what: String,
    why: String,
}

/// Fetches the chosen part, and returns the folder in which it is checked out. The folder stays unchanged while the lock is held.
///
/// # Errors
/// Git's message, in one line.
pub fn checkout(source: &Source, home: &Path) -> Result<(PathBuf, Flock<File>), Unfetched> {
    let address = Address::of(&source.url);
    let url = address.shown();
    let shown = source.reference.as_ref().map_or_else(|| url.to_owned(), |one| format!("{url} at {one}"));
    let failed = |why: String| Unfetched { what: shown.clone(), why: address.scrubbed(&why) };
    let wanted = source.reference.as_deref().unwrap_or("HEAD");
    if address.url.starts_with('-') || wanted.starts_with('-') || address.url.is_empty() {
        return Err(failed("that is no address of a repository".to_owned()));
    }
    let folder = home.join(KEPT).join(name_of(&address.url));
    let told = |error: io::Error| failed(format!("{}: {error}", folder.display()));
    kept(home).and_then(|_| DirBuilder::new().recursive(true).mode(0o700).create(&folder)).map_err(told)?;
    // another launch may need another branch: it waits until this one has sent its files
    let lock =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.with_extension("lock"));
    let lock = Flock::lock(lock.map_err(told)?, FlockArg::LockExclusive).map_err(|(_, error)| told(error.into()))?;
    let git = |words: &[&str]| git(address.git(&folder), words).map_err(failed);
    if !folder.join(".git").exists() {
        git(&["init", "--quiet"])?;
        git(&["remote", "add", "origin", url])?;
    }
    let narrow = git(&["fetch", "--quiet", "--depth", "1", "--no-tags", "--", &address.url, wanted]);
    let found = match narrow {
        Ok(()) => "FETCH_HEAD",
        // a short commit cannot be fetched by itself
        Err(why) => {
            let all =
                ["fetch", "--quiet", "--tags", "--force", "--", &address.url, "+refs/heads/*:refs/remotes/origin/*"];
            git(&all).map_err(|_| why.clone())?;
            git(&["rev-parse", "--quiet", "--verify", &format!("{wanted}^{{commit}}")]).map_err(|_| why)?;
            wanted
        }
    };
    git(&["checkout", "--quiet", "--force", "--detach", found])?;
    git(&["clean", "-ffdxq"])?;
    let _ = fs::remove_file(folder.join(".git/FETCH_HEAD")); // it names the address with its query
    Ok((folder, lock))
}

/// A folder's name for an address.
fn name_of(url: &str) -> String {
    let last = url.trim_end_matches('/').rsplit('/').next().unwrap_or_default().trim_end_matches(".git");
    let plain: String = last.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(40).collect();
    format!("{plain}-{:016x}", api::stable::of_bytes(url.bytes()))
}

fn git(mut command: Command, words: &[&str]) -> Result<(), String> {
    let ran = command
        .args(words)
        // Git fails for a user without access, and asks nothing
        .env("GIT_TERMINAL_PROMPT", "0")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("git cannot be run ({error}): install it, or name a folder as `workdir`"))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let line = said.lines().find(|line| line.starts_with("fatal:")).or(said.lines().last());
    Err(line.map_or_else(|| format!("git {} failed", words.join(" ")), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn made(folder: &Path) {
        let run = |words: &[&str]| {
            let identity = ["-c", "user.name=me", "-c", "user.email=me@example.com"];
            let words: Vec<&str> = identity.iter().chain(words).copied().collect();
            git(Address::of("").git(folder), &words).unwrap();
        };
        run(&["init", "--quiet", "--initial-branch", "main"]);
        for (branch, text) in [("main", "one"), ("other", "two")] {
            if branch != "main" {
                run(&["checkout", "--quiet", "-b", branch]);
            }
            fs::write(folder.join("a.txt"), text).unwrap();
            run(&["add", "a.txt"]);
            run(&["commit", "--quiet", "--message", text]);
        }
        run(&["checkout", "--quiet", "main"]);
    }

    #[test]
    fn branches_and_commits_are_checked_out() {
        let (remote, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        made(remote.path());
        let read = |reference: Option<&str>| {
            let source = Source { url: remote.path().display().to_string(), reference: reference.map(str::to_owned) };
            checkout(&source, home.path()).map(|(folder, _)| fs::read_to_string(folder.join("a.txt")).unwrap())
        };
        assert_eq!(read(None).as_deref(), Ok("one"));
        assert_eq!(read(Some("other")).as_deref(), Ok("two"));
        let commit = Command::new("git").arg("-C").arg(remote.path()).args(["rev-parse", "main"]).output().unwrap();
        let commit = String::from_utf8(commit.stdout).unwrap();
        for commit in [commit.trim(), &commit[..10]] {
            assert_eq!(read(Some(commit)).as_deref(), Ok("one"), "{commit}");
        }
        let why = read(Some("nope")).unwrap_err().to_string();
        assert!(why.contains("nope") && why.lines().count() == 1, "{why}");
        let source = Source { url: home.path().join("nothing").display().to_string(), reference: None };
        assert!(checkout(&source, home.path()).unwrap_err().to_string().starts_with("cannot fetch"));
        let source = Source { url: "--upload-pack=x".to_owned(), reference: None };
        assert!(checkout(&source, home.path()).is_err());
    }

    #[test]
    fn credentials_are_no_part_of_an_address() {
        for (given, url, user, password) in [
            ("https://me:s3cr%2Ft@h:8/x.git", "https://h:8/x.git", Some("me"), Some("s3cr/t")),
            ("https://token@h/x", "https://h/x", Some("token"), None),
            ("https://:p@ss@h/x@y", "https://h/x@y", None, Some("p@ss")),
            ("HTTPS://a:b@h", "HTTPS://h", Some("a"), Some("b")),
            ("ssh://git:pw@h/x", "ssh://git@h/x", None, None),
            ("git@h:x/y.git", "git@h:x/y.git", None, None),
            ("/a/b@c", "/a/b@c", None, None),
            ("https://h/x", "https://h/x", None, None),
        ] {
            let address = Address::of(given);
            let found = (address.url.as_str(), address.user.as_deref(), address.password.as_deref());
            assert_eq!(found, (url, user, password), "{given}");
        }
        let address = Address::of("https://me:s3cr3t@h/x?token=t0k3n");
        assert_eq!((address.shown(), address.url.as_str()), ("https://h/x", "https://h/x?token=t0k3n"));
        assert_eq!(address.scrubbed("fatal: 'https://h/x?token=t0k3n' s3cr3t"), "fatal: 'https://h/x' [secret]");
        assert_eq!(name_of(&Address::of("https://a:b@h/x").url), name_of("https://h/x"));
    }

    /// The contents of a folder's files.
    fn all_text(folder: &Path) -> String {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| {
                if path.is_dir() {
                    all_text(&path)
                } else {
                    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
                }
            })
            .collect()
    }

    /// A web server that requires a password, for Git.
    #[test]
    fn a_password_reaches_the_server_and_no_file_or_message() {
        use std::io::{BufRead, BufReader, Write};
        let home = tempfile::tempdir().unwrap();
        // as an older version left it
        let old = home.path().join(KEPT).join("old/.git");
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("config"), "[remote \"origin\"]\n\turl = https://me:0ld-s3cr3t@h/x.git\n").unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let asked = std::thread::spawn(move || {
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let sent: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let authorization =
                    sent.iter().find_map(|line| line.strip_prefix("Authorization: ")).map(str::to_owned);
                let answer = if authorization.is_some() {
                    "404 Not Found"
                } else {
                    "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\""
                };
                write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
                if let Some(authorization) = authorization {
                    return authorization;
                }
            }
            String::new()
        });
        let source = Source { url: format!("http://me:s3cr3t-pass@127.0.0.1:{port}/x.git"), reference: None };
        let why = checkout(&source, home.path()).unwrap_err().to_string();
        assert!(why.contains(&format!("http://127.0.0.1:{port}/x.git")) && !why.contains("s3cr3t"), "{why}");
        // base64 of me:s3cr3t-pass
        assert_eq!(asked.join().unwrap(), "Basic bWU6czNjcjN0LXBhc3M=");
        let text = all_text(&home.path().join(KEPT));
        assert!(!text.contains("s3cr3t") && text.contains("https://h/x.git"), "{text}");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home.path().join(KEPT)), 0o700);
    }
}
