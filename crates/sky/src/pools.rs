//! `~/.sky/ssh_node_pools.yaml`: machines by pool, as SkyPilot reads the file.
//!
//! A pool has hosts and what all of them share (`user`, `identity_file`, `password`); a host is a name of the OpenSSH configuration, or a
//! map of `ip` and what differs for it. A plain `y` or `1e3` is a text, as YAML 1.1 has it; `no` is a truth, and no host.

use crate::value::{Map, Value};
use crate::yaml::{Document, Place, documents, path_step};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// How to reach one machine.
#[derive(Clone, PartialEq, Eq)]
pub struct Host {
    /// An address, or a name of the OpenSSH configuration.
    pub name: String,
    /// `None`: what OpenSSH's configuration says.
    pub user: Option<String>,
    /// The private key that is offered.
    pub identity_file: Option<PathBuf>,
    /// What is answered where a password is asked for.
    pub password: Option<String>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // not the password
        f.debug_struct("Host").field("name", &self.name).field("user", &self.user).finish_non_exhaustive()
    }
}

/// The hosts of each pool, in the order of the file; or what is wrong with that pool, by line and column. The others are of use all the same.
pub type Pools = BTreeMap<String, Result<Vec<Host>, PoolError>>;

/// What is wrong with the file or with a pool, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{fault}", .place.map_or_else(String::new, |place| format!("line {}, column {}: ", place.line, place.column)))]
pub struct PoolError {
    place: Option<Place>,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    /// The words of the reader of YAML.
    #[error("{0}")]
    Yaml(String),
    #[error("{key} stands in line {line} already: a key twice")]
    Twice { key: String, line: usize },
    #[error("it is no map of pools")]
    NoPools,
    #[error("{value} ({kind}) is no text: put it in quotes")]
    NoText { value: String, kind: &'static str },
    #[error("the name {value} ({kind}) is no text: put it in quotes")]
    Name { value: String, kind: &'static str },
    #[error("there is no file {}", .0.display())]
    NoFile(PathBuf),
    #[error("unknown field `{key}`, expected one of {}", .known.join(", "))]
    Unknown { key: String, known: [&'static str; 4] },
    #[error("it is no map with hosts")]
    NoPool,
    #[error("it is no list")]
    NoList,
    #[error("it has no hosts")]
    NoHosts,
    #[error("host {host:?} is already in pool {pool:?} (line {line}); a host is in one pool, once")]
    Taken { host: String, pool: String, line: usize },
    #[error("a host that is a map has an `ip`")]
    NoAddress,
    #[error("{0:?} is not a host")]
    NoHost(String),
}

impl From<Fault> for PoolError {
    /// Of the file as a whole, or of no place in it.
    fn from(fault: Fault) -> Self {
        Self { place: None, fault }
    }
}

/// Which host is in which pool, and in which line.
type Seen = BTreeMap<(String, Option<String>), (String, usize)>;

/// Keys of a pool, and of a host.
const OF_POOL: [&str; 4] = ["hosts", "identity_file", "password", "user"];
const OF_HOST: [&str; 4] = ["identity_file", "ip", "password", "user"];

/// Reads the file's text. `home`: what `~` stands for; `exists`: whether there is such a file.
///
/// # Errors
/// What is wrong with the file as a whole and where, by line and column.
pub fn parse(text: &str, home: &Path, exists: impl Fn(&Path) -> bool) -> Result<Pools, PoolError> {
    let read =
        documents(text).map_err(|error| PoolError { place: Some(error.place), fault: Fault::Yaml(error.message) })?;
    let Some(document) = read.into_iter().find(|document| document.value.is_some()) else { return Ok(Pools::new()) };
    if let Some(twice) = document.duplicates.first() {
        let fault = Fault::Twice { key: twice.key.clone(), line: twice.first.line };
        return Err(PoolError { place: Some(twice.place), fault });
    }
    let file = File { source: text, document: &document, home, exists: &exists };
    let Some(pools) = document.value.as_ref().and_then(Value::as_map) else {
        return Err(Fault::NoPools.into());
    };
    // by name: the first pool that has a host keeps it
    let mut sorted: Vec<(&Value, &Value)> = pools.iter().collect();
    sorted.sort_by_key(|(name, _)| name.text());
    let mut seen = Seen::new();
    let read = sorted.into_iter().map(|(name, pool)| (name.text(), file.pool(name, pool, &mut seen)));
    Ok(read.collect())
}

/// The file that is read, and where things are in it.
struct File<'a> {
    source: &'a str,
    document: &'a Document,
    home: &'a Path,
    exists: &'a dyn Fn(&Path) -> bool,
}

impl File<'_> {
    fn line(&self, path: &str) -> usize {
        self.document.places.get(path).map_or(0, |place| place.line)
    }

    /// A fault with its place.
    fn at(&self, path: &str, fault: Fault) -> PoolError {
        PoolError { place: self.document.places.get(path).copied(), fault }
    }

    /// A text; a plain value that YAML reads as something else is none.
    fn text(&self, path: &str, value: &Value) -> Result<String, PoolError> {
        match value {
            Value::Str(text) => Ok(text.clone()),
            Value::Int(number) if self.is_written(path, &number.to_string()) => Ok(number.to_string()),
            other => Err(self.at(path, Fault::NoText { value: other.quoted(), kind: other.type_name() })),
        }
    }

    /// Whether this stands there as it is: `010`, `1_000` and `1:30` are other numbers than they look.
    fn is_written(&self, path: &str, number: &str) -> bool {
        let Some(place) = self.document.places.get(path) else { return false };
        let line = self.source.lines().nth(place.line.saturating_sub(1)).unwrap_or_default();
        let rest: String = line.chars().skip(place.column.saturating_sub(1)).collect();
        let goes_on = |c: char| c.is_ascii_alphanumeric() || "_:.".contains(c);
        rest.strip_prefix(number).is_some_and(|rest| !rest.starts_with(goes_on))
    }

    fn field(&self, path: &str, map: &Map, key: &str) -> Result<Option<String>, PoolError> {
        map.given(key).map(|value| self.text(&format!("{path}.{key}"), value)).transpose()
    }

    fn key(&self, path: &str, map: &Map) -> Result<Option<PathBuf>, PoolError> {
        let Some(file) = self.field(path, map, "identity_file")? else { return Ok(None) };
        let found = match file.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => PathBuf::from(file),
        };
        match (self.exists)(&found) {
            true => Ok(Some(found)),
            false => Err(self.at(&format!("{path}.identity_file"), Fault::NoFile(found))),
        }
    }

    fn only(&self, path: &str, map: &Map, known: [&'static str; 4]) -> Result<(), PoolError> {
        let Some((key, _)) = map.iter().find(|(key, _)| !known.contains(&key.text().as_str())) else { return Ok(()) };
        Err(self.at(&format!("{path}{}", path_step(key)), Fault::Unknown { key: key.text(), known }))
    }

    /// The hosts of a pool.
    fn pool(&self, name: &Value, pool: &Value, seen: &mut Seen) -> Result<Vec<Host>, PoolError> {
        let path = format!("${}", path_step(name));
        if !matches!(name, Value::Str(_) | Value::Int(_)) {
            return Err(self.at(&path, Fault::Name { value: name.quoted(), kind: name.type_name() }));
        }
        let empty = Map::new();
        let map = match pool {
            Value::Null => &empty,
            pool => pool.as_map().ok_or_else(|| self.at(&path, Fault::NoPool))?,
        };
        self.only(&path, map, OF_POOL)?;
        let shared = Host {
            name: String::new(),
            user: self.field(&path, map, "user")?,
            identity_file: self.key(&path, map)?,
            password: self.field(&path, map, "password")?,
        };
        let listed = match map.given("hosts") {
            None => &[],
            Some(hosts) => hosts.as_list().ok_or_else(|| self.at(&format!("{path}.hosts"), Fault::NoList))?,
        };
        if listed.is_empty() {
            return Err(Fault::NoHosts.into());
        }
        let mut hosts = Vec::new();
        for (at, value) in listed.iter().enumerate() {
            let path = format!("{path}.hosts[{at}]");
            let host = self.host(&path, value, &shared)?;
            let known = seen.get(&(host.name.clone(), host.user.clone()));
            if let Some((pool, line)) = known {
                return Err(self.at(&path, Fault::Taken { host: host.name, pool: pool.clone(), line: *line }));
            }
            seen.insert((host.name.clone(), host.user.clone()), (name.text(), self.line(&path)));
            hosts.push(host);
        }
        Ok(hosts)
    }

    fn host(&self, path: &str, value: &Value, shared: &Host) -> Result<Host, PoolError> {
        let host = match value.as_map() {
            None => Host { name: self.text(path, value)?, ..shared.clone() },
            Some(map) => {
                self.only(path, map, OF_HOST)?;
                let name = self.field(path, map, "ip")?;
                Host {
                    name: name.ok_or_else(|| self.at(path, Fault::NoAddress))?,
                    user: self.field(path, map, "user")?.or_else(|| shared.user.clone()),
                    identity_file: self.key(path, map)?.or_else(|| shared.identity_file.clone()),
                    password: self.field(path, map, "password")?.or_else(|| shared.password.clone()),
                }
            }
        };
        // a leading hyphen would be an option of ssh's
        if host.name.is_empty() || host.name.starts_with('-') || host.name.contains(char::is_whitespace) {
            return Err(self.at(path, Fault::NoHost(host.name)));
        }
        Ok(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Pools, PoolError> {
        parse(text, Path::new("/home/me"), |path| !path.ends_with("missing"))
    }

    #[test]
    fn hosts_take_what_their_pool_has() {
        let text = "a:\n  user: u\n  identity_file: ~/.ssh/k\n  hosts:\n  - alias\n  - ip: 10.0.0.1\n    user: v\n    password: p\n\
                    b:\n  hosts: [x]\n";
        let pools = read(text).unwrap();
        let host = |name: &str, user: Option<&str>, key: Option<&str>, password: Option<&str>| Host {
            name: name.to_owned(),
            user: user.map(str::to_owned),
            identity_file: key.map(PathBuf::from),
            password: password.map(str::to_owned),
        };
        let key = Some("/home/me/.ssh/k");
        let of_a = pools["a"].as_ref().unwrap();
        assert_eq!(*of_a, [host("alias", Some("u"), key, None), host("10.0.0.1", Some("v"), key, Some("p"))]);
        assert_eq!(pools["b"], Ok(vec![host("x", None, None, None)]));
        assert!(!format!("{:?}", of_a[1]).contains("\"p\""));
        assert!(read("").unwrap().is_empty() && read("# nothing\n").is_ok_and(|pools| pools.is_empty()));
    }

    #[test]
    fn faults_of_the_file_have_a_place() {
        for (text, says) in [
            ("a:\n  hosts: [x]\na:\n  hosts: [y]\n", "line 3, column 1: a stands in line 1 already"),
            ("a:\n  hosts: [x\n", "line 2, column 10: "),
            ("- a\n", "it is no map of pools"),
        ] {
            let why = read(text).unwrap_err().to_string();
            assert!(why.starts_with(says), "{says:?} does not begin {why}");
        }
    }

    #[test]
    fn plain_texts_are_those_of_yaml_1_1() {
        let text = "y:\n  user: n\n  password: 123456\n  hosts: [y, 1e3, 'no', {ip: Y, user: 1000}, 7]\n";
        let pools = read(text).unwrap();
        let hosts = pools["y"].as_ref().unwrap();
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["y", "1e3", "no", "Y", "7"]);
        assert_eq!((hosts[0].user.as_deref(), hosts[3].user.as_deref()), (Some("n"), Some("1000")));
        assert_eq!(hosts[0].password.as_deref(), Some("123456"));
        for (value, says) in [
            ("no", "False (bool)"),
            ("010", "8 (int)"),
            ("1_0", "10 (int)"),
            ("1:30", "90 (int)"),
            ("1.50", "1.5 (float)"),
            ("2024-01-02", "datetime.date(2024, 1, 2) (date)"),
            ("~", "None (NoneType)"),
        ] {
            let pools = read(&format!("a:\n  hosts:\n  - {value}\nz:\n  hosts: [w]\n")).unwrap();
            let why = pools["a"].as_ref().unwrap_err().to_string();
            assert_eq!(why, format!("line 3, column 5: {says} is no text: put it in quotes"), "{value}");
            assert!(pools["z"].is_ok());
        }
        let why = |text: &str, pool: &str| read(text).unwrap()[pool].as_ref().unwrap_err().to_string();
        assert!(why("a:\n  user: off\n  hosts: [x]\n", "a").contains("line 2, column 9"));
        assert!(why("no:\n  hosts: [x]\n", "False").contains("the name False (bool) is no text"));
    }

    #[test]
    fn a_pool_with_a_fault_is_the_only_one_without_use() {
        for (text, says) in [
            ("bad:\n  hosts:\n  - q\n  - q\n", "line 4, column 5: host \"q\" is already in pool \"bad\" (line 3)"),
            ("bad:\n  hosts:\n  - q\n  - x\n", "line 4, column 5: host \"x\" is already in pool \"a\" (line 6)"),
            (
                "bad:\n  hosts:\n  - ip: q\n    identity_file: ~/missing\n",
                "line 4, column 20: there is no file /home/me/missing",
            ),
            ("bad:\n  hosts:\n  - ip: q\n    identityfile: k\n", "line 4, column 19: unknown field `identityfile`"),
            ("bad:\n  hsots: [q]\n", "line 2, column 10: unknown field `hsots`"),
            ("bad:\n  hosts:\n  - user: q\n", "line 3, column 5: a host that is a map has an `ip`"),
            ("bad:\n  hosts: q\n", "line 2, column 10: it is no list"),
            ("bad: [q]\n", "line 1, column 6: it is no map with hosts"),
            ("bad:\n  hosts: [-oProxyCommand=x]\n", "\"-oProxyCommand=x\" is not a host"),
            ("bad: {}\n", "it has no hosts"),
        ] {
            let pools = read(&format!("{text}a:\n  hosts: [x]\nz:\n  hosts: [w]\n")).unwrap();
            let why = pools["bad"].as_ref().unwrap_err().to_string();
            assert!(why.contains(says), "{says:?} is not in {why}");
            assert!(pools["a"].is_ok() && pools["z"].is_ok(), "{text}");
        }
        // the same name for another user is another machine of ours
        assert!(read("a:\n  hosts: [x, {ip: x, user: v}]\n").unwrap()["a"].is_ok());
    }
}
