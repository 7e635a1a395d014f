//! `~/.sky/ssh_node_pools.yaml`: machines by pool, as SkyPilot reads the file.
//!
//! A pool has hosts and what all of them share (`user`, `identity_file`, `password`); a host is a name of the OpenSSH configuration, or a
//! map of `ip` and what differs for it. A plain `y` or `1e3` is a text, as YAML 1.1 has it; `no` is a truth, and no host.

use crate::value::{Map, Value};
use crate::yaml::{Document, documents, path_step};
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
pub type Pools = BTreeMap<String, Result<Vec<Host>, String>>;

/// Which host is in which pool, and in which line.
type Seen = BTreeMap<(String, Option<String>), (String, usize)>;

/// Keys of a pool, and of a host.
const OF_POOL: [&str; 4] = ["hosts", "identity_file", "password", "user"];
const OF_HOST: [&str; 4] = ["identity_file", "ip", "password", "user"];

/// Reads the file's text. `home`: what `~` stands for; `exists`: whether there is such a file.
///
/// # Errors
/// What is wrong with the file as a whole and where, by line and column.
pub fn parse(text: &str, home: &Path, exists: impl Fn(&Path) -> bool) -> Result<Pools, String> {
    let read = documents(text)
        .map_err(|error| format!("line {}, column {}: {}", error.place.line, error.place.column, error.message))?;
    let Some(document) = read.into_iter().find(|document| document.value.is_some()) else { return Ok(Pools::new()) };
    if let Some(twice) = document.duplicates.first() {
        let (at, first) = (twice.place, twice.first.line);
        return Err(format!(
            "line {}, column {}: {} stands in line {first} already: a key twice",
            at.line, at.column, twice.key
        ));
    }
    let file = File { source: text, document: &document, home, exists: &exists };
    let Some(pools) = document.value.as_ref().and_then(Value::as_map) else {
        return Err("it is no map of pools".to_owned());
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
    fn at(&self, path: &str, what: impl fmt::Display) -> String {
        match self.document.places.get(path) {
            Some(place) => format!("line {}, column {}: {what}", place.line, place.column),
            None => what.to_string(),
        }
    }

    /// A text; a plain value that YAML reads as something else is none.
    fn text(&self, path: &str, value: &Value) -> Result<String, String> {
        match value {
            Value::Str(text) => Ok(text.clone()),
            Value::Int(number) if self.is_written(path, &number.to_string()) => Ok(number.to_string()),
            other => {
                let what = format!("{} ({}) is no text: put it in quotes", other.quoted(), other.type_name());
                Err(self.at(path, what))
            }
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

    fn field(&self, path: &str, map: &Map, key: &str) -> Result<Option<String>, String> {
        map.given(key).map(|value| self.text(&format!("{path}.{key}"), value)).transpose()
    }

    fn key(&self, path: &str, map: &Map) -> Result<Option<PathBuf>, String> {
        let Some(file) = self.field(path, map, "identity_file")? else { return Ok(None) };
        let found = match file.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => PathBuf::from(file),
        };
        match (self.exists)(&found) {
            true => Ok(Some(found)),
            false => Err(self.at(&format!("{path}.identity_file"), format!("there is no file {}", found.display()))),
        }
    }

    fn only(&self, path: &str, map: &Map, known: [&str; 4]) -> Result<(), String> {
        let Some((key, _)) = map.iter().find(|(key, _)| !known.contains(&key.text().as_str())) else { return Ok(()) };
        let what = format!("unknown field `{}`, expected one of {}", key.text(), known.join(", "));
        Err(self.at(&format!("{path}{}", path_step(key)), what))
    }

    /// The hosts of a pool.
    fn pool(&self, name: &Value, pool: &Value, seen: &mut Seen) -> Result<Vec<Host>, String> {
        let path = format!("${}", path_step(name));
        if !matches!(name, Value::Str(_) | Value::Int(_)) {
            let what = format!("the name {} ({}) is no text: put it in quotes", name.quoted(), name.type_name());
            return Err(self.at(&path, what));
        }
        let empty = Map::new();
        let map = match pool {
            Value::Null => &empty,
            pool => pool.as_map().ok_or_else(|| self.at(&path, "it is no map with hosts"))?,
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
            Some(hosts) => hosts.as_list().ok_or_else(|| self.at(&format!("{path}.hosts"), "it is no list"))?,
        };
        if listed.is_empty() {
            return Err("it has no hosts".to_owned());
        }
        let mut hosts = Vec::new();
        for (at, value) in listed.iter().enumerate() {
            let path = format!("{path}.hosts[{at}]");
            let host = self.host(&path, value, &shared)?;
            let known = seen.get(&(host.name.clone(), host.user.clone()));
            if let Some((other, line)) = known {
                let what = format!(
                    "host {:?} is already in pool {other:?} (line {line}); a host is in one pool, once",
                    host.name
                );
                return Err(self.at(&path, what));
            }
            seen.insert((host.name.clone(), host.user.clone()), (name.text(), self.line(&path)));
            hosts.push(host);
        }
        Ok(hosts)
    }

    fn host(&self, path: &str, value: &Value, shared: &Host) -> Result<Host, String> {
        let host = match value.as_map() {
            None => Host { name: self.text(path, value)?, ..shared.clone() },
            Some(map) => {
                self.only(path, map, OF_HOST)?;
                let name = self.field(path, map, "ip")?;
                Host {
                    name: name.ok_or_else(|| self.at(path, "a host that is a map has an `ip`"))?,
                    user: self.field(path, map, "user")?.or_else(|| shared.user.clone()),
                    identity_file: self.key(path, map)?.or_else(|| shared.identity_file.clone()),
                    password: self.field(path, map, "password")?.or_else(|| shared.password.clone()),
                }
            }
        };
        // a leading hyphen would be an option of ssh's
        if host.name.is_empty() || host.name.starts_with('-') || host.name.contains(char::is_whitespace) {
            return Err(self.at(path, format!("{:?} is not a host", host.name)));
        }
        Ok(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Pools, String> {
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
            let why = read(text).unwrap_err();
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
            let why = pools["a"].as_ref().unwrap_err();
            assert_eq!(*why, format!("line 3, column 5: {says} is no text: put it in quotes"), "{value}");
            assert!(pools["z"].is_ok());
        }
        assert!(
            read("a:\n  user: off\n  hosts: [x]\n").unwrap()["a"].as_ref().unwrap_err().contains("line 2, column 9")
        );
        let why = read("no:\n  hosts: [x]\n").unwrap();
        assert!(why["False"].as_ref().unwrap_err().contains("the name False (bool) is no text"), "{why:?}");
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
            let why = pools["bad"].as_ref().unwrap_err();
            assert!(why.contains(says), "{says:?} is not in {why}");
            assert!(pools["a"].is_ok() && pools["z"].is_ok(), "{text}");
        }
        // the same name for another user is another machine of ours
        assert!(read("a:\n  hosts: [x, {ip: x, user: v}]\n").unwrap()["a"].is_ok());
    }
}
