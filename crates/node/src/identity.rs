//! Who a pod is on this machine: host name, address, the names of its peers, and ports that do not collide.
//!
//! All pods share the machine's network, so that they can reach the world as any program can. Each has an address of its
//! own in 127.0.0.0/8 and a hosts file that names its peers. What remains shared is the port space: rendezvous servers
//! bind all addresses (torchrun: `*:29500`). So the pods of one subdomain get, for the rendezvous ports that they ask for, ports that
//! no other job of the machine has (`slots`); never those they ask for, which a program started by hand may take at any time.

use api::sky::keys;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// Environment variables that hold a rendezvous port.
const PORT_VARIABLES: [&str; 3] = ["PET_MASTER_PORT", "MASTER_PORT", "DMLC_TRACKER_PORT"];
/// Ends of the names of environment variables that hold a rendezvous address (`host:port`).
const ADDRESS_VARIABLES: [&str; 2] = ["COORDINATOR_ADDRESS", "RDZV_ENDPOINT"];
/// Flags that hold one.
const ADDRESS_FLAGS: [&str; 3] = ["rdzv_endpoint", "rdzv-endpoint", "coordinator_address"];

/// The pod's host name: `spec.hostname`, else its name, cut to 63 characters as the kubelet does.
pub fn hostname(pod: &Pod) -> String {
    let given = pod.spec.as_ref().and_then(|s| s.hostname.as_deref()).filter(|h| !h.is_empty());
    let name = given.or(pod.metadata.name.as_deref()).unwrap_or_default();
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// The headless service that the pod belongs to; empty for none.
pub fn subdomain(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|s| s.subdomain.as_deref()).unwrap_or_default()
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// A stable hash of texts, each with a NUL behind it.
pub fn hash(parts: &[&str]) -> u64 {
    api::stable::of_bytes(parts.iter().flat_map(|part| part.bytes().chain([0])))
}

/// An address for the pod, the same each time it is free: made from namespace, host name and subdomain.
///
/// From 127.1.0.1 to 127.254.255.254, no octet 0 or 255 at the end, so that nothing meets 127.0.0.1 or 127.0.0.53.
pub fn address(pod: &Pod, taken: &BTreeSet<Ipv4Addr>) -> Ipv4Addr {
    let start = hash(&[namespace(pod), &hostname(pod), subdomain(pod)]);
    let candidates = (0..=u64::from(u32::MAX)).map(|n| {
        let n = start.wrapping_add(n) % (254 * 256 * 254);
        let (a, b, c) = (n / (256 * 254), n / 254 % 256, n % 254);
        Ipv4Addr::new(127, 1 + a as u8, b as u8, 1 + c as u8)
    });
    candidates.into_iter().find(|a| !taken.contains(a)).expect("invariant: fewer pods than addresses")
}

/// A pod with an address, as its peers see it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    pub namespace: String,
    pub subdomain: String,
    pub hostname: String,
    pub address: Ipv4Addr,
}

impl Peer {
    pub fn new(pod: &Pod, address: Ipv4Addr) -> Self {
        Self {
            namespace: namespace(pod).to_owned(),
            subdomain: subdomain(pod).to_owned(),
            hostname: hostname(pod),
            address,
        }
    }

    /// Whether both belong to the same headless service.
    pub fn is_peer_of(&self, other: &Peer) -> bool {
        !self.subdomain.is_empty() && self.subdomain == other.subdomain && self.namespace == other.namespace
    }

    /// The names a cluster's DNS gives to a pod of a headless service, longest first.
    pub fn names(&self, domain: &str) -> Vec<String> {
        let Peer { namespace, subdomain, hostname, .. } = self;
        if subdomain.is_empty() {
            return Vec::new();
        }
        let short = format!("{hostname}.{subdomain}");
        vec![
            format!("{short}.{namespace}.svc.{domain}"),
            format!("{short}.{namespace}.svc"),
            format!("{short}.{namespace}"),
            short,
        ]
    }

    /// The names of the headless service itself, which resolve to all of its pods.
    fn service_names(&self, domain: &str) -> String {
        let Peer { namespace, subdomain, .. } = self;
        format!("{subdomain}.{namespace}.svc.{domain} {subdomain}.{namespace}.svc {subdomain}.{namespace} {subdomain}")
    }
}

/// Names that a pod defines itself, besides those of its headless service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnNames {
    /// `hostAliases`, and the machines of its job group ([`keys::HOSTS`]): address and names.
    pub aliases: Vec<(String, Vec<String>)>,
    /// `dnsConfig.searches`: a name without a domain is looked for in these, too.
    pub searches: Vec<String>,
}

impl OwnNames {
    pub fn of(pod: &Pod) -> Self {
        let aliases = pod.spec.iter().flat_map(|s| s.host_aliases.iter().flatten());
        let dns = pod.spec.as_ref().and_then(|s| s.dns_config.as_ref());
        let annotations = pod.metadata.annotations.as_ref();
        let group = annotations.and_then(|all| all.get(keys::HOSTS)).map(String::as_str).unwrap_or_default();
        Self {
            aliases: aliases
                .map(|a| (a.ip.clone(), a.hostnames.clone().unwrap_or_default()))
                .chain(group.lines().filter_map(host))
                .collect(),
            searches: dns.and_then(|dns| dns.searches.clone()).unwrap_or_default(),
        }
    }

    /// The aliases as lines of a hosts file.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.aliases.iter().map(|(address, names)| format!("{address} {}", names.join(" ")))
    }

    /// A name without the search domain that it ends in; `None` if it ends in none of them.
    fn short<'a>(&self, name: &'a str) -> Option<&'a str> {
        self.searches.iter().find_map(|domain| name.strip_suffix(domain.trim_end_matches('.'))?.strip_suffix('.'))
    }
}

/// An address with a name, if a line is that and nothing else: it becomes a line of a hosts file.
fn host(line: &str) -> Option<(String, Vec<String>)> {
    let (address, name) = line.split_once(' ')?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let address: IpAddr = address.parse().ok()?;
    (!name.is_empty() && name.chars().all(is_part)).then(|| (address.to_string(), vec![name.to_owned()]))
}

/// The text of a pod's `/etc/hosts`.
pub fn hosts_file(me: &Peer, peers: &[Peer], domain: &str, own_names: &OwnNames) -> String {
    let mut text = String::from("# Written by trainyard; rewritten when peers come and go.\n");
    text += "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
    text += &format!("127.0.0.1 kubernetes.default.svc.{domain} kubernetes.default.svc kubernetes.default\n");
    let mut own = me.names(domain);
    own.push(me.hostname.clone());
    text += &format!("{} {}\n", me.address, own.join(" "));
    let mut others: Vec<&Peer> = peers.iter().filter(|p| p.is_peer_of(me) && p.address != me.address).collect();
    others.sort();
    for peer in &others {
        let mut names = peer.names(domain);
        let short: BTreeSet<String> =
            names.iter().filter_map(|name| own_names.short(name)).map(str::to_owned).collect();
        names.extend(short.into_iter().filter(|name| *name != me.hostname));
        text += &format!("{} {}\n", peer.address, names.join(" "));
    }
    if !me.subdomain.is_empty() {
        let mut all: Vec<Ipv4Addr> = others.iter().map(|p| p.address).chain([me.address]).collect();
        all.sort();
        for address in all {
            text += &format!("{address} {}\n", me.service_names(domain));
        }
    }
    text.extend(own_names.lines().map(|line| line + "\n"));
    text
}

/// Marks around our lines in a hosts file that others write, too.
const BEGIN: &str = "# Written by trainyard: begin\n";
const END: &str = "# Written by trainyard: end\n";

/// A hosts file with these lines between our marks, and nothing else there.
pub fn with_lines(text: &str, lines: &BTreeSet<String>) -> String {
    let mut out = match (text.find(BEGIN), text.find(END)) {
        (Some(begin), Some(end)) if begin < end => format!("{}{}", &text[..begin], &text[end + END.len()..]),
        _ => text.to_owned(),
    };
    if !lines.is_empty() {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out += BEGIN;
        out.extend(lines.iter().map(|line| format!("{line}\n")));
        out += END;
    }
    out
}

/// The rendezvous ports that the pod's containers ask for: from known variables with a literal value, and from known
/// address variables and flags that name a host of the pod's own subdomain.
pub fn wanted_ports(pod: &Pod) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    let Some(spec) = &pod.spec else { return ports };
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for var in container.env.iter().flatten() {
            let value = var.value.as_deref().unwrap_or_default();
            if PORT_VARIABLES.contains(&var.name.as_str()) {
                ports.extend(value.parse::<u16>());
            } else if ADDRESS_VARIABLES.iter().any(|end| var.name.ends_with(end)) {
                ports.extend(port_of(value));
            }
        }
        let words: Vec<&String> = container.command.iter().flatten().chain(container.args.iter().flatten()).collect();
        for (at, word) in words.iter().enumerate() {
            let flag = word.trim_start_matches('-');
            if let Some((name, value)) = flag.split_once('=') {
                if ADDRESS_FLAGS.contains(&name) {
                    ports.extend(port_of(value));
                }
            } else if ADDRESS_FLAGS.contains(&flag) {
                ports.extend(words.get(at + 1).and_then(|value| port_of(value)));
            }
        }
    }
    ports.remove(&0);
    ports
}

fn port_of(address: &str) -> Option<u16> {
    address.trim().rsplit_once(':')?.1.parse().ok()
}

/// How texts that name peers are changed for a pod.
#[derive(Clone, Debug)]
pub struct Adapt<'a> {
    pub me: &'a Peer,
    pub domain: &'a str,
    pub ports: &'a BTreeMap<u16, u16>,
    /// Put 127.0.0.1 for the names of peers: there is no hosts file (plain mode).
    pub without_names: bool,
    /// Names that are replaced by their addresses in plain mode.
    pub own_names: &'a OwnNames,
}

impl Adapt<'_> {
    /// The value of an environment variable.
    pub fn variable(&self, name: &str, value: String) -> String {
        if PORT_VARIABLES.contains(&name)
            && let Some(port) = value.parse().ok().and_then(|port: u16| self.ports.get(&port))
        {
            return port.to_string();
        }
        self.text(&value)
    }

    /// Any text: `<peer>:<wanted port>` gets the chosen port, and peers their address where names do not work.
    pub fn text(&self, text: &str) -> String {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_name) {
            out.push_str(&rest[..start]);
            rest = &rest[start..];
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let word = rest[..end].trim_end_matches('.');
            rest = &rest[word.len().max(1)..];
            if let Some(address) = self.alias(word) {
                out.push_str(address);
                continue;
            }
            if !self.is_peer(word) {
                out.push_str(if word.is_empty() { "." } else { word });
                continue;
            }
            out.push_str(if self.without_names { "127.0.0.1" } else { word });
            let digits = rest.strip_prefix(':').map(|r| &r[..r.find(|c: char| !c.is_ascii_digit()).unwrap_or(r.len())]);
            if let Some(digits) = digits
                && let Some(port) = digits.parse().ok().and_then(|port: u16| self.ports.get(&port))
            {
                out.push_str(&format!(":{port}"));
                rest = &rest[1 + digits.len()..];
            }
        }
        out.push_str(rest);
        out
    }

    /// The address of a name of the pod's own, if the name does not work.
    fn alias(&self, word: &str) -> Option<&str> {
        let mut aliases = self.own_names.aliases.iter().filter(|_| self.without_names);
        aliases.find(|(_, names)| names.iter().any(|name| name == word)).map(|(address, _)| address.as_str())
    }

    /// Whether a word is a name that a pod of our headless service has (whether or not it is there yet).
    fn is_peer(&self, word: &str) -> bool {
        let Peer { namespace, subdomain, .. } = self.me;
        let Some((label, rest)) = word.split_once('.') else { return false };
        let Some(rest) = rest.strip_prefix(subdomain.as_str()) else { return false };
        let ends = ["".to_owned(), format!(".{namespace}"), format!(".{namespace}.svc")];
        let full = format!(".{namespace}.svc.{}", self.domain);
        !subdomain.is_empty() && !label.is_empty() && (ends.iter().any(|end| end == rest) || rest == full)
    }
}

/// Replaces a path, and what lies beneath it, wherever it stands as a path of its own (plain mode).
pub fn replace_path(text: &str, old: &str, new: &str) -> String {
    let old = old.trim_end_matches('/');
    let goes_on = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let (false, Some(at)) = (old.is_empty(), rest.find(old)) {
        let before = rest[..at].chars().next_back().or(out.chars().next_back());
        let after = rest[at + old.len()..].chars().next();
        out.push_str(&rest[..at]);
        let is_part = before.is_some_and(|c| goes_on(c) || c == '/') || after.is_some_and(goes_on);
        out.push_str(if is_part { old } else { new });
        rest = &rest[at + old.len()..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, hostname: &str, subdomain: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"hostname": hostname, "subdomain": subdomain, "containers": [{
                "name": "node",
                "args": ["--rdzv_endpoint=train-node-0-0.train:29400", "--other=x:1"],
                "env": [{"name": "PET_MASTER_PORT", "value": "29500"}, {"name": "JAX_COORDINATOR_ADDRESS", "value": "train-node-0-0.train:6666"}],
            }]}
        }))
        .unwrap()
    }

    #[test]
    fn addresses_are_stable_and_apart() {
        let (a, b) = (pod("a", "train-node-0-0", "train"), pod("b", "train-node-1-0", "train"));
        let first = address(&a, &BTreeSet::new());
        assert_eq!(first, address(&a, &BTreeSet::new()));
        assert_ne!(first, address(&b, &BTreeSet::new()));
        assert_ne!(first, address(&a, &[first].into()));
        assert!(first.is_loopback() && first.octets()[1] > 0);
    }

    #[test]
    fn hosts_files_name_peers_only() {
        let me = Peer::new(&pod("a", "train-node-0-0", "train"), Ipv4Addr::new(127, 1, 0, 1));
        let peer = Peer::new(&pod("b", "train-node-1-0", "train"), Ipv4Addr::new(127, 1, 0, 2));
        let other = Peer::new(&pod("c", "x", "other"), Ipv4Addr::new(127, 1, 0, 3));
        let text = hosts_file(&me, &[peer, other, me.clone()], "cluster.local", &OwnNames::default());
        let fqdn = "127.1.0.2 train-node-1-0.train.default.svc.cluster.local train-node-1-0.train.default.svc \
                    train-node-1-0.train.default train-node-1-0.train\n";
        assert!(text.contains(fqdn), "{text}");
        assert!(text.contains("train-node-0-0.train train-node-0-0\n"), "{text}");
        assert!(!text.contains("127.1.0.3"), "{text}");
    }

    #[test]
    fn search_domains_make_short_names_whole() {
        let me = Peer::new(&pod("a", "train-worker-0", "train"), Ipv4Addr::new(127, 1, 0, 1));
        let launcher = Peer::new(&pod("b", "train-launcher", "train"), Ipv4Addr::new(127, 1, 0, 2));
        let mut spec = pod("a", "train-worker-0", "train");
        spec.spec.as_mut().unwrap().dns_config = Some(
            serde_json::from_value(json!({"searches": ["train.default.svc.cluster.local", "elsewhere"]})).unwrap(),
        );
        let names = OwnNames::of(&spec);
        let text = hosts_file(&me, &[me.clone(), launcher], "cluster.local", &names);
        assert!(text.contains(" train-launcher.train train-launcher\n"), "{text}");
        assert_eq!(text.matches(" train-worker-0\n").count(), 1, "{text}");
    }

    #[test]
    fn texts_get_the_ports_that_were_chosen() {
        let pod = pod("a", "train-node-0-0", "train");
        let wanted = wanted_ports(&pod);
        assert_eq!(wanted, [6666, 29400, 29500].into());
        let ports: BTreeMap<u16, u16> = wanted.into_iter().zip(20_008..).collect();
        let other = ports[&29500];
        let me = Peer::new(&pod, Ipv4Addr::new(127, 1, 0, 1));
        let mut grouped = pod.clone();
        let hosts =
            "10.0.0.7 trainer-0.g\n10.0.0.8 data_1-0.g\nno-address x\n10.0.0.9 two names\n10.0.0.9 \n10.0.0.9 #";
        grouped.metadata.annotations = Some([(keys::HOSTS.to_owned(), hosts.to_owned())].into());
        let own = OwnNames::of(&grouped);
        let named = |address: &str, name: &str| (address.to_owned(), vec![name.to_owned()]);
        assert_eq!(own.aliases, [named("10.0.0.7", "trainer-0.g"), named("10.0.0.8", "data_1-0.g")]);
        let adapt = Adapt { me: &me, domain: "cluster.local", ports: &ports, without_names: false, own_names: &own };
        assert_eq!(adapt.variable("PET_MASTER_PORT", "29500".into()), other.to_string());
        assert_eq!(adapt.variable("X", "29500".into()), "29500");
        let cases = [
            ("--rdzv_endpoint=train-node-0-0.train:29500", format!("--rdzv_endpoint=train-node-0-0.train:{other}")),
            (
                "tcp://x.train.default.svc.cluster.local:29500/",
                format!("tcp://x.train.default.svc.cluster.local:{other}/"),
            ),
            ("x.train:80, x.train. and x.train.other:29500", "x.train:80, x.train. and x.train.other:29500".to_owned()),
            ("train:29500 ..", "train:29500 ..".to_owned()),
            ("trainer-0.g:29500", "trainer-0.g:29500".to_owned()),
        ];
        for (text, expected) in cases {
            assert_eq!(adapt.text(text), expected, "{text}");
        }
        let plain = Adapt { without_names: true, ..adapt };
        assert_eq!(plain.text("h=x.train,y.train.default:1"), "h=127.0.0.1,127.0.0.1:1");
        assert_eq!(plain.text("trainer-0.g:29500 data_1-0.g."), "10.0.0.7:29500 10.0.0.8.");
    }

    #[test]
    fn lines_of_ours_come_change_and_go() {
        let lines = |all: &[&str]| -> BTreeSet<String> { all.iter().map(|line| (*line).to_owned()).collect() };
        let before = "127.0.0.1 localhost\n10.0.0.1 me";
        let first = with_lines(before, &lines(&["10.0.0.7 a-0.g"]));
        assert_eq!(first, format!("{before}\n{BEGIN}10.0.0.7 a-0.g\n{END}"));
        let second = with_lines(&format!("{first}10.0.0.2 later\n"), &lines(&["10.0.0.8 a-0.g", "10.0.0.9 b-0.g"]));
        assert_eq!(second, format!("{before}\n10.0.0.2 later\n{BEGIN}10.0.0.8 a-0.g\n10.0.0.9 b-0.g\n{END}"));
        assert_eq!(with_lines(&second, &lines(&[])), format!("{before}\n10.0.0.2 later\n"));
        assert_eq!(with_lines("", &lines(&[])), "");
    }

    #[test]
    fn paths() {
        let cases = [
            ("/data", "/v"),
            ("--dir=/data/x:/data", "--dir=/v/x:/v"),
            ("/data2 /x/data /data.txt", "/data2 /x/data /data.txt"),
        ];
        for (text, expected) in cases {
            assert_eq!(replace_path(text, "/data", "/v"), expected, "{text}");
        }
    }
}
