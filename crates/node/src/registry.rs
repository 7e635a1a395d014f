//! What the pods of a node share: addresses and names, rendezvous ports, GPUs. One lock, held briefly.

use crate::files;
use crate::gpus::Share;
use crate::identity::{self, OwnNames, Peer};
use crate::poddir::PodDir;
use crate::prepare;
use crate::slots::{self, SLOT_PORTS, Slot};
use crate::wire::Held;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest hosts file that is compared: one that is longer is written anew.
const HOSTS_BYTES_MAX: u64 = 16 << 20;

/// Everything handed out, by pod uid.
#[derive(Debug, Default)]
pub struct Registry {
    data: PathBuf,
    domain: String,
    gpus: BTreeSet<u32>,
    share: Share,
    /// The machine's own hosts file, if the names that pods give go there.
    machine_hosts: Option<PathBuf>,
    members: Members,
}

/// The pods by uid, and what is asked of all of them: thousands may have ended and still be there.
#[derive(Debug, Default)]
struct Members {
    all: BTreeMap<String, Member>,
    /// By namespace and subdomain, of those that have one.
    services: BTreeMap<(String, String), BTreeSet<String>>,
    addresses: BTreeSet<Ipv4Addr>,
    /// Those that have GPUs or ports.
    holders: BTreeSet<String>,
}

impl Members {
    fn insert(&mut self, uid: String, member: Member) {
        self.remove(&uid);
        let Peer { namespace, subdomain, address, .. } = &member.peer;
        if !subdomain.is_empty() {
            let service = self.services.entry((namespace.clone(), subdomain.clone())).or_default();
            service.insert(uid.clone());
        }
        self.addresses.insert(*address);
        if member.has_something() {
            self.holders.insert(uid.clone());
        }
        self.all.insert(uid, member);
    }

    fn remove(&mut self, uid: &str) -> Option<Member> {
        let member = self.all.remove(uid)?;
        let Peer { namespace, subdomain, address, .. } = &member.peer;
        let service = (namespace.clone(), subdomain.clone());
        if let Some(uids) = self.services.get_mut(&service) {
            uids.remove(uid);
            if uids.is_empty() {
                self.services.remove(&service);
            }
        }
        self.addresses.remove(address);
        self.holders.remove(uid);
        Some(member)
    }

    fn get(&self, uid: &str) -> Option<&Member> {
        self.all.get(uid)
    }

    /// Changes what a pod has been given; `None` if it is not there.
    fn change<T>(&mut self, uid: &str, change: impl FnOnce(&mut Member) -> T) -> Option<T> {
        let member = self.all.get_mut(uid)?;
        let changed = change(member);
        match member.has_something() {
            true => _ = self.holders.insert(uid.to_owned()),
            false => _ = self.holders.remove(uid),
        }
        Some(changed)
    }

    /// The uids of the pods of a pod's headless service, its own among them; none for a pod without one.
    fn service_of(&self, peer: &Peer) -> impl Iterator<Item = &String> {
        self.services.get(&(peer.namespace.clone(), peer.subdomain.clone())).into_iter().flatten()
    }

    /// The same, with what they have.
    fn peers_of(&self, peer: &Peer) -> impl Iterator<Item = (&String, &Member)> {
        self.service_of(peer).filter_map(|uid| self.all.get_key_value(uid))
    }

    /// Those that have GPUs or ports.
    fn holders(&self) -> impl Iterator<Item = &Member> {
        self.holders.iter().filter_map(|uid| self.all.get(uid))
    }
}

#[derive(Clone, Debug)]
struct Member {
    peer: Peer,
    names: OwnNames,
    ports: BTreeMap<u16, u16>,
    /// Where its ports are from. `None` though it has ports: an earlier agent took them, and shims hold them.
    slot: Option<Arc<Slot>>,
    gpus: BTreeMap<String, Vec<u32>>,
}

impl Member {
    fn has_something(&self) -> bool {
        !self.ports.is_empty() || !self.gpus.is_empty()
    }
}

/// What a pod was given to start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub ports: BTreeMap<u16, u16>,
    pub gpus: BTreeMap<String, Vec<u32>>,
}

/// A port for each that was asked for, and the slot they are from.
type Chosen = (BTreeMap<u16, u16>, Option<Arc<Slot>>);

/// What there is not enough of for a pod to start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    Gpus,
    /// Another user of the machine may have most of them.
    Ports(Option<u32>),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpus => f.write_str("waiting for GPUs that other pods, or clusters on this machine, still hold"),
            Self::Ports(hoarder) => {
                write!(f, "waiting for {SLOT_PORTS} free ports in a row, which the pods of a job share: ")?;
                match hoarder {
                    None => f.write_str("other jobs of this machine have all"),
                    Some(user) => write!(f, "the user with id {user} holds most of this machine's"),
                }
            }
        }
    }
}

impl Registry {
    pub fn new(data: &Path, domain: &str, gpus: BTreeSet<u32>, share: Share) -> Self {
        let (data, domain) = (data.to_owned(), domain.to_owned());
        Self { data, domain, gpus, share, machine_hosts: None, members: Members::default() }
    }

    /// Puts the names that pods give into the machine's own hosts file.
    pub fn name_in(&mut self, machine_hosts: Option<PathBuf>) {
        self.machine_hosts = machine_hosts;
    }

    /// Takes over what a pod was given by an earlier agent.
    pub fn adopt(&mut self, launch: &Held) {
        let Ok(address) = launch.address.parse() else { return };
        let peer = Peer {
            namespace: launch.namespace.clone(),
            subdomain: launch.subdomain.clone(),
            hostname: launch.hostname.clone(),
            address,
        };
        let ports = launch.ports.clone();
        let member = Member { peer, names: OwnNames::default(), ports, slot: None, gpus: launch.gpus.clone() };
        self.members.insert(launch.uid.clone(), member);
        self.share.parts().held = self.held();
    }

    /// The pod's identity; a new pod gets an address, and its peers learn its name.
    pub fn enter(&mut self, pod: &Pod) -> Peer {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let names = OwnNames::of(pod);
        if let Some(member) = self.members.all.get_mut(&uid) {
            member.names = names;
            return member.peer.clone();
        }
        let peer = Peer::new(pod, identity::address(pod, &self.members.addresses));
        let peer_of = peer.clone();
        let member = Member { peer: peer_of, names, ports: BTreeMap::new(), slot: None, gpus: BTreeMap::new() };
        self.members.insert(uid, member);
        self.tell_peers(&peer);
        peer
    }

    /// Takes over the names that a pod gives now, while it runs.
    pub fn rename(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let Some(member) = self.members.all.get_mut(uid) else { return };
        let names = OwnNames::of(pod);
        if member.names != names {
            member.names = names;
            self.refresh_hosts(uid);
            self.name_on_machine();
        }
    }

    /// Gives back everything; peers forget the name.
    pub fn leave(&mut self, uid: &str) {
        if let Some(member) = self.members.remove(uid) {
            self.share.parts().held = self.held();
            self.tell_peers(&member.peer);
            self.hold_ports_of(&member.peer);
            self.name_on_machine();
        }
    }

    /// Gives back GPUs and ports: the pod's processes are gone, its name may still be known.
    pub fn release(&mut self, uid: &str) {
        let released = self.members.change(uid, |member| {
            member.gpus.clear();
            member.ports.clear();
            member.slot = None;
            member.peer.clone()
        });
        if let Some(peer) = released {
            self.share.parts().held = self.held();
            self.hold_ports_of(&peer);
        }
    }

    fn held(&self) -> BTreeSet<u32> {
        self.members.holders().flat_map(|member| member.gpus.values().flatten()).copied().collect()
    }

    /// Ports and GPUs for a pod that is about to start.
    pub fn give(&mut self, pod: &Pod) -> Result<Given, Lack> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let me = self.members.get(&uid).ok_or(Lack::Gpus)?.clone();
        // held until it is noted who has them
        let share = self.share.clone();
        let mut parts = share.parts();
        let held = self.held();
        let free = self.gpus.iter().filter(|gpu| !held.contains(gpu) && !parts.lent.contains(gpu)).copied().collect();
        let gpus =
            if me.gpus.is_empty() { prepare::allot_gpus(pod, &free).ok_or(Lack::Gpus)? } else { me.gpus.clone() };
        let (ports, slot) = self.choose_ports(pod, &uid, &me.peer)?;
        let noted = self.members.change(&uid, |member| {
            member.ports.clone_from(&ports);
            member.slot = slot;
            member.gpus.clone_from(&gpus);
        });
        if noted.is_some() {
            parts.held = self.held();
        }
        Ok(Given { ports, gpus })
    }

    /// Something that keeps the pod's ports taken while a process has it; `None` for a pod without ports.
    pub fn hold(&self, uid: &str) -> Option<OwnedFd> {
        self.members.get(uid)?.slot.as_ref()?.share().ok()
    }

    /// For each port that the pod wants one that its peers have for it, else a free one of the peers' slot, else of a new one.
    fn choose_ports(&self, pod: &Pod, uid: &str, me: &Peer) -> Result<Chosen, Lack> {
        let wanted = identity::wanted_ports(pod);
        if wanted.is_empty() {
            return Ok((BTreeMap::new(), None));
        }
        let own = self.members.get(uid).into_iter().filter(|_| me.subdomain.is_empty());
        let group: Vec<&Member> = self.members.peers_of(me).map(|(_, member)| member).chain(own).collect();
        let mut held: BTreeMap<u16, u16> = BTreeMap::new();
        held.extend(group.iter().flat_map(|member| &member.ports));
        let mut slot = group.iter().find_map(|member| member.slot.clone());
        if slot.is_none() {
            slot = held.values().next().and_then(|port| Slot::of_port(*port)).map(Arc::new);
        }
        let missing: Vec<u16> = wanted.iter().copied().filter(|port| !held.contains_key(port)).collect();
        if !missing.is_empty() {
            let fits = |slot: &Arc<Slot>| {
                let free: Vec<u16> = slot.ports().filter(|port| !held.values().any(|held| held == port)).collect();
                (free.len() >= missing.len()).then_some(free)
            };
            let free = match slot.as_ref().and_then(fits) {
                Some(free) => free,
                None => {
                    let name = match me.subdomain.as_str() {
                        "" => uid.to_owned(),
                        subdomain => format!("{}/{subdomain}", me.namespace),
                    };
                    // shims of other versions may hold ports without holding their slot
                    let given = self.members.holders().flat_map(|member| member.ports.values().copied()).collect();
                    let new = Arc::new(Slot::take(&name, &given).ok_or_else(|| Lack::Ports(slots::hoarder()))?);
                    slot = Some(new.clone());
                    new.ports().collect()
                }
            };
            // more ports than a slot has stay as they are: no job is known to have so many
            held.extend(missing.into_iter().zip(free));
        }
        held.retain(|port, _| wanted.contains(port));
        Ok((held, slot))
    }

    /// Takes over what only shims held until now: the last of them may have been the pod's that ended.
    fn hold_ports_of(&mut self, peer: &Peer) {
        let without =
            self.members.peers_of(peer).filter(|(_, member)| member.slot.is_none() && !member.ports.is_empty());
        let without: Vec<String> = without.map(|(uid, _)| uid.clone()).collect();
        for uid in without {
            self.members.change(&uid, |member| {
                member.slot = member.ports.values().next().and_then(|port| Slot::of_port(*port)).map(Arc::new);
            });
        }
    }

    /// Writes the hosts file of a pod, in place: it may be mounted.
    pub fn write_hosts(&self, uid: &str) -> io::Result<()> {
        self.name_on_machine();
        self.put_hosts(uid, true)
    }

    /// Brings the machine's own hosts file up to date.
    fn name_on_machine(&self) {
        let Some(path) = &self.machine_hosts else { return };
        let lines = self.members.all.values().flat_map(|member| member.names.lines()).collect();
        let written = files::read(path, HOSTS_BYTES_MAX).and_then(|old| {
            let old = String::from_utf8_lossy(&old);
            let new = identity::with_lines(&old, &lines);
            if new == old { Ok(()) } else { put(path, &new, false) }
        });
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write host names of job groups to {}; tasks here do not reach the others by name", path.display());
        }
    }

    fn put_hosts(&self, uid: &str, create: bool) -> io::Result<()> {
        let Some(member) = self.members.get(uid) else { return Ok(()) };
        let peers: Vec<Peer> = self.members.peers_of(&member.peer).map(|(_, member)| member.peer.clone()).collect();
        let text = identity::hosts_file(&member.peer, &peers, &self.domain, &member.names);
        let path = PodDir::of(&self.data, uid).hosts();
        if files::read(&path, HOSTS_BYTES_MAX).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        put(&path, &text, create)
    }

    fn tell_peers(&self, peer: &Peer) {
        for uid in self.members.service_of(peer) {
            self.refresh_hosts(uid);
        }
    }

    fn refresh_hosts(&self, uid: &str) {
        match self.put_hosts(uid, false) {
            // a pod that has none, or has just ended: what is kept of it gets none again
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(pod.uid = uid, %error, "cannot refresh a hosts file"),
            Ok(()) => {}
        }
    }
}

/// Writes a file in place.
fn put(path: &Path, text: &str, create: bool) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(create).truncate(false).mode(0o644).open(path)?;
    // One write of the whole, then the cut: a reader in between sees at worst old lines after the new ones.
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::sky::keys;
    use serde_json::json;
    use std::fs;

    fn pod(uid: &str, job: &str, index: u32, gpus: u32) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid},
            "spec": {"hostname": format!("{job}-node-0-{index}"), "subdomain": job, "containers": [{
                "name": "node",
                "env": [{"name": "PET_MASTER_PORT", "value": "29511"}],
                "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}},
            }]}
        }))
        .unwrap()
    }

    #[test]
    fn jobs_share_nothing_pods_of_a_job_share_ports() {
        let (tmp, share) = (tempfile::tempdir().unwrap(), Share::default());
        let mut registry = Registry::new(tmp.path(), "cluster.local", [0, 1].into(), share.clone());
        let pods = [pod("a0", "a", 0, 1), pod("a1", "a", 1, 1), pod("b0", "b", 0, 0), pod("b1", "b", 1, 0)];
        let first = registry.enter(&pods[0]);
        PodDir::of(tmp.path(), "a0").create().unwrap();
        registry.write_hosts("a0").unwrap();
        let second = registry.enter(&pods[1]);
        let hosts = fs::read_to_string(PodDir::of(tmp.path(), "a0").hosts()).unwrap();
        assert!(hosts.contains(&format!("{} a-node-0-1.a.ns.svc.cluster.local", second.address)), "{hosts}");
        assert_ne!(first.address, second.address);
        let mut renamed = pods[0].clone();
        renamed.metadata.annotations = Some([(keys::HOSTS.to_owned(), "10.0.0.7 trainer-0.g".to_owned())].into());
        registry.rename(&renamed);
        let hosts = fs::read_to_string(PodDir::of(tmp.path(), "a0").hosts()).unwrap();
        assert!(hosts.ends_with("10.0.0.7 trainer-0.g\n"), "{hosts}");
        let machine = tmp.path().join("machine-hosts");
        fs::write(&machine, "127.0.0.1 localhost\n").unwrap();
        registry.name_in(Some(machine.clone()));
        registry.write_hosts("a0").unwrap();
        assert!(fs::read_to_string(&machine).unwrap().contains("10.0.0.7 trainer-0.g\n"));
        registry.rename(&pods[0]);
        assert_eq!(fs::read_to_string(&machine).unwrap(), "127.0.0.1 localhost\n");
        pods[2..].iter().for_each(|pod| drop(registry.enter(pod)));
        let given: Vec<Given> = pods.iter().map(|pod| registry.give(pod).unwrap()).collect();
        assert_eq!(given[0].ports, given[1].ports);
        assert_eq!(given[2].ports, given[3].ports);
        assert_ne!(given[0].ports, given[2].ports);
        assert_eq!((&given[0].gpus["node"], &given[1].gpus["node"]), (&vec![0], &vec![1]));
        registry.enter(&pod("c0", "c", 0, 1));
        assert_eq!(registry.give(&pod("c0", "c", 0, 1)), Err(Lack::Gpus));
        registry.leave("a1");
        assert_eq!(share.held(), [0].into());
        assert!(share.lend([1].into()));
        assert_eq!(registry.give(&pod("c0", "c", 0, 1)), Err(Lack::Gpus), "another agent has it");
        assert!(share.lend([].into()));
        assert!(registry.give(&pod("c0", "c", 0, 1)).is_ok());
        let hosts = fs::read_to_string(PodDir::of(tmp.path(), "a0").hosts()).unwrap();
        assert!(!hosts.contains("a-node-0-1"), "{hosts}");

        // one that has ended stays without, whoever comes or goes
        fs::remove_file(PodDir::of(tmp.path(), "a0").hosts()).unwrap();
        registry.enter(&pods[1]);
        assert!(!PodDir::of(tmp.path(), "a0").hosts().exists());
    }

    #[test]
    fn what_is_asked_of_all_members_is_kept_in_step_with_each() {
        let tmp = tempfile::tempdir().unwrap();
        let mut registry = Registry::new(tmp.path(), "cluster.local", [0].into(), Share::default());
        let pods = [pod("a0", "a", 0, 1), pod("a1", "a", 1, 0), pod("alone", "", 0, 0)];
        let peers: Vec<Peer> = pods.iter().map(|pod| registry.enter(pod)).collect();
        pods.iter().for_each(|pod| drop(registry.give(pod).unwrap()));
        let members = &registry.members;
        assert_eq!(members.service_of(&peers[0]).collect::<Vec<_>>(), ["a0", "a1"]);
        assert_eq!(members.service_of(&peers[2]).count(), 0, "it has no service");
        assert_eq!(members.addresses, peers.iter().map(|peer| peer.address).collect());
        assert_eq!(members.holders.len(), 3, "all ask for a port");
        registry.release("a0");
        assert_eq!(registry.members.holders, ["a1".to_owned(), "alone".to_owned()].into());
        assert_eq!(registry.members.service_of(&peers[0]).count(), 2, "one that has ended keeps its name");
        pods.iter().for_each(|pod| registry.leave(pod.metadata.uid.as_deref().unwrap()));
        let Members { all, services, addresses, holders } = &registry.members;
        assert!(all.is_empty() && services.is_empty() && addresses.is_empty() && holders.is_empty());
    }
}
