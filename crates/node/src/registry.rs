//! What the pods of a node share: addresses and names, rendezvous ports, GPUs. One lock, held briefly.

use crate::identity::{self, Peer};
use crate::poddir::PodDir;
use crate::prepare;
use crate::wire::Launch;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Everything handed out, by pod uid.
#[derive(Debug, Default)]
pub struct Registry {
    data: PathBuf,
    domain: String,
    gpus: BTreeSet<u32>,
    members: BTreeMap<String, Member>,
}

#[derive(Clone, Debug)]
struct Member {
    peer: Peer,
    aliases: Vec<(String, Vec<String>)>,
    ports: BTreeMap<u16, u16>,
    gpus: BTreeMap<String, Vec<u32>>,
}

/// What a pod was given to start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub ports: BTreeMap<u16, u16>,
    pub gpus: BTreeMap<String, Vec<u32>>,
}

impl Registry {
    pub fn new(data: &Path, domain: &str, gpus: BTreeSet<u32>) -> Self {
        Self { data: data.to_owned(), domain: domain.to_owned(), gpus, members: BTreeMap::new() }
    }

    /// Takes over what a pod was given by an earlier agent.
    pub fn adopt(&mut self, launch: &Launch) {
        let Ok(address) = launch.address.parse() else { return };
        let peer = Peer {
            namespace: launch.namespace.clone(),
            subdomain: launch.subdomain.clone(),
            hostname: launch.hostname.clone(),
            address,
        };
        let member = Member { peer, aliases: Vec::new(), ports: launch.ports.clone(), gpus: launch.gpus.clone() };
        self.members.insert(launch.uid.clone(), member);
    }

    /// The pod's identity; a new pod gets an address, and its peers learn its name.
    pub fn enter(&mut self, pod: &Pod) -> Peer {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let aliases = pod.spec.iter().flat_map(|s| s.host_aliases.iter().flatten());
        let aliases = aliases.map(|a| (a.ip.clone(), a.hostnames.clone().unwrap_or_default())).collect();
        if let Some(member) = self.members.get_mut(&uid) {
            member.aliases = aliases;
            return member.peer.clone();
        }
        let taken: BTreeSet<Ipv4Addr> = self.members.values().map(|m| m.peer.address).collect();
        let peer = Peer::new(pod, identity::address(pod, &taken));
        let member = Member { peer: peer.clone(), aliases, ports: BTreeMap::new(), gpus: BTreeMap::new() };
        self.members.insert(uid, member);
        self.tell_peers(&peer);
        peer
    }

    /// Gives back everything; peers forget the name.
    pub fn leave(&mut self, uid: &str) {
        if let Some(member) = self.members.remove(uid) {
            self.tell_peers(&member.peer);
        }
    }

    /// Gives back GPUs and ports: the pod's processes are gone, its name may still be known.
    pub fn release(&mut self, uid: &str) {
        if let Some(member) = self.members.get_mut(uid) {
            member.gpus.clear();
            member.ports.clear();
        }
    }

    /// Ports and GPUs for a pod that is about to start. `None`: not enough GPUs are free now.
    pub fn give(&mut self, pod: &Pod) -> Option<Given> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let me = self.members.get(&uid)?.clone();
        let mut free = self.gpus.clone();
        for gpu in self.members.values().flat_map(|m| m.gpus.values().flatten()) {
            free.remove(gpu);
        }
        let gpus = if me.gpus.is_empty() { prepare::allot_gpus(pod, &free)? } else { me.gpus.clone() };
        let ports = self.choose_ports(pod, &uid, &me.peer);
        if let Some(member) = self.members.get_mut(&uid) {
            member.ports.clone_from(&ports);
            member.gpus.clone_from(&gpus);
        }
        Some(Given { ports, gpus })
    }

    fn choose_ports(&self, pod: &Pod, uid: &str, me: &Peer) -> BTreeMap<u16, u16> {
        let mut wanted = identity::wanted_ports(pod);
        let mut ports = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for (other, member) in &self.members {
            if other == uid || member.peer.is_peer_of(me) {
                ports.extend(member.ports.iter().map(|(from, to)| (*from, *to)));
            } else {
                taken.extend(member.ports.values().copied());
            }
        }
        ports.retain(|from, _| wanted.contains(from));
        wanted.retain(|port| !ports.contains_key(port));
        taken.extend(ports.values().copied());
        let group = match me.subdomain.as_str() {
            "" => uid.to_owned(),
            subdomain => format!("{}/{subdomain}", me.namespace),
        };
        ports.extend(identity::choose_ports(&group, &wanted, &taken, identity::port_is_free));
        ports
    }

    /// Writes the hosts file of a pod, in place: it may be mounted.
    pub fn write_hosts(&self, uid: &str) -> io::Result<()> {
        let Some(member) = self.members.get(uid) else { return Ok(()) };
        let peers: Vec<Peer> = self.members.values().map(|m| m.peer.clone()).collect();
        let text = identity::hosts_file(&member.peer, &peers, &self.domain, &member.aliases);
        let path = PodDir::of(&self.data, uid).hosts();
        if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path)?;
        // One write of the whole, then the cut: a reader in between sees at worst old lines after the new ones.
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    }

    fn tell_peers(&self, peer: &Peer) {
        let peers = self.members.iter().filter(|(_, m)| m.peer.is_peer_of(peer));
        for uid in peers.map(|(uid, _)| uid) {
            if PodDir::of(&self.data, uid).hosts().exists()
                && let Err(error) = self.write_hosts(uid)
            {
                tracing::warn!(pod.uid = uid, %error, "cannot refresh a hosts file");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        let tmp = tempfile::tempdir().unwrap();
        let mut registry = Registry::new(tmp.path(), "cluster.local", [0, 1].into());
        let pods = [pod("a0", "a", 0, 1), pod("a1", "a", 1, 1), pod("b0", "b", 0, 0), pod("b1", "b", 1, 0)];
        let first = registry.enter(&pods[0]);
        PodDir::of(tmp.path(), "a0").create().unwrap();
        registry.write_hosts("a0").unwrap();
        let second = registry.enter(&pods[1]);
        let hosts = fs::read_to_string(PodDir::of(tmp.path(), "a0").hosts()).unwrap();
        assert!(hosts.contains(&format!("{} a-node-0-1.a.ns.svc.cluster.local", second.address)), "{hosts}");
        assert_ne!(first.address, second.address);
        pods[2..].iter().for_each(|pod| drop(registry.enter(pod)));
        let given: Vec<Given> = pods.iter().map(|pod| registry.give(pod).unwrap()).collect();
        assert_eq!(given[0].ports, given[1].ports);
        assert_eq!(given[2].ports, given[3].ports);
        assert_ne!(given[0].ports, given[2].ports);
        assert_eq!((&given[0].gpus["node"], &given[1].gpus["node"]), (&vec![0], &vec![1]));
        registry.enter(&pod("c0", "c", 0, 1));
        assert_eq!(registry.give(&pod("c0", "c", 0, 1)), None);
        registry.leave("a1");
        assert!(registry.give(&pod("c0", "c", 0, 1)).is_some());
        let hosts = fs::read_to_string(PodDir::of(tmp.path(), "a0").hosts()).unwrap();
        assert!(!hosts.contains("a-node-0-1"), "{hosts}");
    }
}
