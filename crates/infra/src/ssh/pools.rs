//! `~/.sky/ssh_node_pools.yaml`: machines by pool, as SkyPilot reads the file.
//!
//! A pool has hosts and what all of them share (`user`, `identity_file`, `password`); a host is a name of the OpenSSH configuration, or a
//! map of `ip` and what differs for it.

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde_saphyr::Spanned;
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
    pub identity_file: Option<PathBuf>,
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
type Seen = BTreeMap<(String, Option<String>), (String, u64)>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPool {
    #[serde(default)]
    hosts: Vec<Spanned<RawHost>>,
    user: Option<String>,
    identity_file: Option<Spanned<String>>,
    password: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMap {
    ip: String,
    user: Option<String>,
    identity_file: Option<Spanned<String>>,
    password: Option<String>,
}

enum RawHost {
    Name(String),
    Map(RawMap),
}

impl<'de> Deserialize<'de> for RawHost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawHost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a host: a name of the OpenSSH configuration, or a map with ip")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawHost, E> {
                Ok(RawHost::Name(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawHost, A::Error> {
                RawMap::deserialize(MapAccessDeserializer::new(map)).map(RawHost::Map)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Reads the file's text. `home`: what `~` stands for; `exists`: whether there is such a file.
///
/// # Errors
/// What is wrong with the file as a whole and where, by line and column.
pub fn parse(text: &str, home: &Path, exists: impl Fn(&Path) -> bool) -> Result<Pools, String> {
    if text.trim().is_empty() {
        return Ok(Pools::new());
    }
    let raw: BTreeMap<String, RawPool> = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let mut seen = Seen::new();
    let read = |(pool, raw): (String, RawPool)| {
        let hosts = hosts(&pool, raw, home, &exists, &mut seen);
        (pool, hosts)
    };
    Ok(raw.into_iter().map(read).collect())
}

fn place(at: &serde_saphyr::Location) -> String {
    format!("line {}, column {}", at.line(), at.column())
}

/// The hosts of a pool.
fn hosts(
    pool: &str,
    raw: RawPool,
    home: &Path,
    exists: &impl Fn(&Path) -> bool,
    seen: &mut Seen,
) -> Result<Vec<Host>, String> {
    let key = |file: &Option<Spanned<String>>| -> Result<Option<PathBuf>, String> {
        let Some(file) = file else { return Ok(None) };
        let path = match file.value.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => PathBuf::from(&file.value),
        };
        let missing = || format!("{}: there is no file {}", place(&file.referenced), path.display());
        if exists(&path) { Ok(Some(path.clone())) } else { Err(missing()) }
    };
    let shared = key(&raw.identity_file)?;
    if raw.hosts.is_empty() {
        return Err("it has no hosts".to_owned());
    }
    let mut hosts = Vec::new();
    for Spanned { value, referenced, .. } in raw.hosts {
        let host = match value {
            RawHost::Name(name) => {
                Host { name, user: raw.user.clone(), identity_file: shared.clone(), password: raw.password.clone() }
            }
            RawHost::Map(map) => Host {
                name: map.ip,
                user: map.user.or_else(|| raw.user.clone()),
                identity_file: key(&map.identity_file)?.or_else(|| shared.clone()),
                password: map.password.or_else(|| raw.password.clone()),
            },
        };
        // a leading hyphen would be an option of ssh's
        if host.name.is_empty() || host.name.starts_with('-') || host.name.contains(char::is_whitespace) {
            return Err(format!("{}: {:?} is not a host", place(&referenced), host.name));
        }
        let known = seen.get(&(host.name.clone(), host.user.clone()));
        if let Some((other, line)) = known {
            return Err(format!(
                "{}: host {:?} is already in pool {other:?} (line {line}); a host is in one pool, once",
                place(&referenced),
                host.name
            ));
        }
        seen.insert((host.name.clone(), host.user.clone()), (pool.to_owned(), referenced.line()));
        hosts.push(host);
    }
    Ok(hosts)
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
            ("a:\n  hosts:\n  - ip: x\n    identityfile: k\n", "unknown field `identityfile`"),
            ("a:\n  hsots: [x]\n", "unknown field `hsots`"),
            ("a:\n  hosts:\n  - user: x\n", "ip"),
            ("a:\n  hosts: [x]\na:\n  hosts: [y]\n", "duplicate"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(says), "{says:?} is not in {why}");
            assert!(why.contains("line"), "{why}");
        }
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
